//! One connection in use.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use deadpool::managed::Object;
use mysql_async::Conn;
use mysql_async::consts::StatusFlags;
use tokio::sync::{Semaphore, watch};

use crate::error;
use crate::pool::Sessions;

#[expect(clippy::disallowed_methods, reason = "the driver's own timers count on this clock")]
pub(crate) fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// Which connections may stay, and how many are in use.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// Raised when all connections are retired.
    pub(crate) generation: AtomicU64,
    /// Those that are in use, or about to end.
    pub(crate) count: watch::Sender<usize>,
}

/// One connection that is in use, or about to end.
pub(crate) struct Use {
    uses: Arc<Uses>,
    generation: u64,
}

impl Use {
    pub(crate) fn begin(uses: &Arc<Uses>) -> Self {
        uses.count.send_modify(|count| *count += 1);
        Self { generation: uses.generation.load(Ordering::SeqCst), uses: Arc::clone(uses) }
    }

    fn is_retired(&self) -> bool {
        self.generation != self.uses.generation.load(Ordering::SeqCst)
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.uses.count.send_modify(|count| *count -= 1);
    }
}

/// The connections of a caller's pool that do not go back to it, so that its other users cannot take them all.
#[derive(Debug)]
pub(crate) struct Kept {
    most: usize,
    idle: Mutex<Vec<(Conn, tokio::time::Instant)>>,
    /// As many permits as are idle.
    count: Semaphore,
}

impl Kept {
    pub(crate) fn at_most(most: usize) -> Arc<Self> {
        Arc::new(Self { most, idle: Mutex::default(), count: Semaphore::new(0) })
    }

    /// One, when it is idle, and its last use.
    pub(crate) async fn take(&self) -> Option<(Conn, tokio::time::Instant)> {
        self.count.acquire().await.ok()?.forget();
        self.idle().pop()
    }

    /// Gives one back; to its pool if there are enough here.
    fn give(&self, conn: Conn) {
        let mut idle = self.idle();
        if idle.len() < self.most {
            idle.push((conn, now()));
            self.count.add_permits(1);
        }
    }

    /// Takes those that are idle.
    pub(crate) fn drain(&self) -> Vec<Conn> {
        let idle = std::mem::take(&mut *self.idle());
        self.count.forget_permits(idle.len());
        idle.into_iter().map(|(conn, _)| conn).collect()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Conn, tokio::time::Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection, until it is dropped. It can be used again only if the exchange on it has ended, outside a transaction.
/// Otherwise it is closed: nobody may take a late reply for his own, and nobody's grant may be part of a transaction that
/// nobody commits.
pub(crate) struct Connection {
    /// Until the end.
    source: Option<Source>,
    /// No reply can come that nobody waits for, and no transaction is open.
    is_clean: bool,
    /// Until the end.
    held: Option<Use>,
}

pub(crate) enum Source {
    Ours(Object<Sessions>),
    Callers(Conn, Arc<Kept>),
}

impl Connection {
    pub(crate) fn new(source: Source, held: Use) -> Self {
        Self { source: Some(source), is_clean: true, held: Some(held) }
    }

    /// Whether it ends when it is dropped, because all connections of its time do.
    pub(crate) fn is_retired(&self) -> bool {
        self.held.as_ref().is_none_or(Use::is_retired)
    }

    /// Whether each statement commits by itself in its session.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.source, Some(Source::Ours(_)))
    }

    /// Whether somebody has left a transaction open in its session.
    pub(crate) fn is_in_transaction(&self) -> bool {
        let Some(Source::Callers(conn, _)) = &self.source else { return false };
        is_outside(conn) == Some(false)
    }

    pub(crate) async fn exchange<T>(
        &mut self,
        exchange: impl AsyncFnOnce(&mut Conn) -> mysql_async::Result<T>,
    ) -> mysql_async::Result<T> {
        self.is_clean = false;
        let conn: &mut Conn = match self.source.as_mut().expect("it has not ended") {
            Source::Ours(conn) => conn,
            Source::Callers(conn, _) => conn,
        };
        let answer = exchange(conn).await;
        self.is_clean = match &answer {
            Ok(_) => is_outside(conn) == Some(true),
            // What is rolled back because of another transaction is whole. Anything else may have interrupted a procedure.
            Err(e) => error::conflict(e).is_some(),
        };
        answer
    }

    /// Ends it: what its session has begun is rolled back.
    pub(crate) fn close(mut self) {
        self.is_clean = false;
    }
}

/// Whether the session is outside a transaction, as its last reply said; `None` after an error, which does not report it.
pub(crate) fn is_outside(conn: &Conn) -> Option<bool> {
    let told = conn.last_ok_packet()?;
    Some(!told.status_flags().contains(StatusFlags::SERVER_STATUS_IN_TRANS))
}

impl Drop for Connection {
    fn drop(&mut self) {
        let ends = !self.is_clean || self.is_retired();
        match (self.source.take(), self.held.take()) {
            (Some(Source::Ours(conn)), Some(held)) if ends => part(Object::take(conn), held),
            (Some(Source::Callers(conn, _)), Some(held)) if ends => part(conn, held),
            (Some(Source::Callers(conn, kept)), _) => kept.give(conn),
            _ => {}
        }
    }
}

/// Ends a connection in the background, with the protocol's farewell. Without a runtime it ends too, without one.
pub(crate) fn part(conn: Conn, held: Use) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        drop(runtime.spawn(async move {
            drop(conn.disconnect().await);
            drop(held);
        }));
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}
