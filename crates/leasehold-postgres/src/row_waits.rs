//! Who may keep a connection while it waits for a row.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Effect, Error, Result};
use leasehold_driver::Deadline;
use tokio::sync::{Semaphore, SemaphorePermit};

/// How long a request may keep a connection that waits for a row, unless it has a turn to wait.
const BRIEF: Duration = Duration::from_millis(100);

/// The turns of requests on connections of their own. Each may have to wait for a row that somebody else's transaction
/// holds. At least one connection, of more than one, is never kept by such a wait and never used by an acquire, so that
/// renewals, releases, lists, evictions and checks continue.
#[derive(Debug, Clone)]
pub(crate) struct RowWaits {
    acquires: Arc<Turns>,
    others: Arc<Turns>,
}

/// The turns of one kind of requests.
#[derive(Debug)]
struct Turns {
    /// To use a connection.
    connections: Semaphore,
    /// To wait for a row with it.
    waits: Semaphore,
    /// To try again after a brief wait that found the row locked.
    retries: Semaphore,
}

impl Turns {
    fn new(connections: usize, waits: usize) -> Arc<Self> {
        let [connections, waits, retries] = [connections, waits, 1].map(Semaphore::new);
        Arc::new(Self { connections, waits, retries })
    }

    /// A turn to try again, one request after the other. Between their tries the connection is free for as long as a
    /// try may keep it.
    async fn again(&self) -> Option<SemaphorePermit<'_>> {
        let turn = self.retries.acquire().await.ok()?;
        tokio::time::sleep(BRIEF).await;
        Some(turn)
    }
}

impl RowWaits {
    /// For so many connections, of which so many may be kept by waits.
    pub(crate) fn new(connections: usize, waits: usize) -> Self {
        Self {
            acquires: Turns::new(connections.saturating_sub(1).max(1), waits.saturating_sub(1)),
            others: Turns::new(Semaphore::MAX_PERMITS, waits.min(1)),
        }
    }

    /// The tries of an acquire, or of another request, to `server`.
    pub(crate) fn tries<'t>(&'t self, server: &'t str, acquires: bool) -> Tries<'t> {
        let turns = if acquires { &*self.acquires } else { &*self.others };
        Tries { server, turns, turn: None, wait: turns.waits.try_acquire().ok(), again: None }
    }
}

/// The tries of a request, with the turns that it has.
pub(crate) struct Tries<'t> {
    server: &'t str,
    turns: &'t Turns,
    /// To use a connection.
    turn: Option<SemaphorePermit<'t>>,
    /// To wait for a row with it.
    wait: Option<SemaphorePermit<'t>>,
    /// To try again.
    again: Option<SemaphorePermit<'t>>,
}

impl leasehold_sql::Tries for Tries<'_> {
    async fn begin(&mut self, until: Deadline) -> Result<()> {
        self.turn = None;
        let turn = until.bound(self.turns.connections.acquire()).await;
        let (server, limit) = (self.server, until.limit());
        let turn = turn.ok_or_else(|| {
            Error::unavailable(
                Effect::NotApplied,
                format!(
                    "other acquires kept all connections to {server} that acquires may use for {limit:?}"
                ),
            )
        })?;
        // The semaphores are never closed.
        self.turn = turn.ok();
        Ok(())
    }

    /// The server gives up first, so that the outcome is known.
    fn patience(&self, until: Deadline) -> Duration {
        let most = until.earlier().left();
        if self.wait.is_some() { most } else { most.min(BRIEF) }
    }

    async fn pause(&mut self, until: Deadline, was_last: bool) -> bool {
        if self.wait.is_some() && was_last {
            return false;
        }
        (self.turn, self.wait, self.again) = (None, None, None);
        let turns = self.turns;
        let next = async {
            tokio::select! {
                biased;
                wait = turns.waits.acquire() => (wait.ok(), None),
                again = turns.again() => (None, again),
            }
        };
        let Some(next) = until.earlier().bound(next).await else { return false };
        (self.wait, self.again) = next;
        true
    }
}
