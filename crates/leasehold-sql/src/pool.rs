//! The pool of a store.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Effect, Error, Result};
use leasehold_driver::{Deadline, outliving};
use tokio::sync::watch;

use crate::connection::{Connection, Pool, Pooled};
use crate::doubt::now;
use crate::error::{all_in_use, no_connection, unanswered};
use crate::session::{Call, Failed, Row, Session, Source};

/// The server of a caller's pool, for messages.
pub const CALLERS: &str = "the pool's server";

/// The fewest connections: one is reserved for batches.
const FEWEST: usize = 2;

/// The most connections that are reserved, of our own.
const LANES: usize = 2;

/// How many connections of a caller's pool are kept for what goes in no batch.
const KEPT: usize = 1;

/// A connection that was idle for longer is checked before it is used, because it may have ended.
const IDLE: Duration = Duration::from_secs(1);

/// The longest time for the answer to a ping.
const LONGEST_PING: Duration = Duration::from_millis(250);

/// Why an exchange has no result.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "the server has answered or it has not")]
pub enum Unanswered<E> {
    /// The driver's error.
    Server(E),
    /// There was no answer within this time.
    Late(Duration),
}

/// What an exchange returns, and its connection if that can be used again.
pub type Exchanged<S, T> = (Option<Connection<S>>, Result<T, Unanswered<Failed<S>>>);

impl<S: Source> Pool<S> {
    /// At most so many connections to `server`, and at least two. One is reserved for batches, or two if there are `others`
    /// beside them.
    pub fn own(
        source: S,
        server: String,
        timeout: Duration,
        most: usize,
        others: usize,
    ) -> Arc<Self> {
        let most = most.max(FEWEST);
        let lanes = LANES.min(most - others).max(1);
        Arc::new(Self::new(source, (server, timeout), (most, lanes), None))
    }

    /// The connections of a caller's pool, which has at most so many. Those that the store keeps, `lanes` of them for batches,
    /// are taken now, until `until`, whose limit is that of all operations.
    ///
    /// # Errors
    /// `InvalidInput` if it has too few; those of [`get`](Self::get).
    pub async fn of_callers(
        source: S,
        most: usize,
        until: Deadline,
        lanes: usize,
    ) -> Result<Arc<Self>> {
        let reserved = lanes + KEPT;
        if most <= reserved {
            return Err(Error::invalid_input(format!(
                "the pool has at most {most} connections; it must have {} or more, because the store keeps {reserved} of \
                 them",
                reserved + 1
            )));
        }
        let of_pool = (CALLERS.to_owned(), until.limit());
        let pool = Arc::new(Self::new(source, of_pool, (most, lanes), Some(KEPT)));
        let mut taken = Vec::new();
        for _ in 0..reserved {
            taken.push(pool.get(until).await?);
        }
        taken.drain(KEPT..).for_each(Connection::reserve);
        Ok(pool)
    }

    /// The server, for messages.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The time limit of an operation.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// When an operation that begins now must have ended.
    pub fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    /// A connection that is reserved for batches.
    pub(crate) async fn reserved(self: &Arc<Self>, until: Deadline) -> Result<Connection<S>> {
        loop {
            let reserved = tokio::select! {
                biased;
                pooled = self.next_reserved() => Connection::new(pooled, self),
                connection = self.get(until) => return connection,
            };
            if let Some(alive) = until.bound(self.alive(reserved)).await.flatten() {
                return Ok(alive);
            }
        }
    }

    /// A connection, outside a transaction.
    ///
    /// # Errors
    /// `Unavailable` if there is none until then, or if the server is read-only; those of connecting. All without effect.
    pub async fn get(self: &Arc<Self>, until: Deadline) -> Result<Connection<S>> {
        // Boxed, as every exchange, for the driver's futures are large and each operation has them several times over.
        let got = Box::pin(async {
            loop {
                self.doubt.settle(self.is_writable()).await?;
                tokio::select! {
                    biased;
                    // Nobody makes a connection meanwhile.
                    () = self.doubt.raised() => {}
                    connection = self.fresh() => return connection,
                }
            }
        });
        let at_first = self.all_in_use();
        until.bound(got).await.unwrap_or_else(|| {
            // Others may give theirs up at the same deadline.
            Err(match at_first.or_else(|| self.all_in_use()) {
                Some(most) => all_in_use(&self.server, most, until.limit()),
                None => no_connection(&self.server, until.limit()),
            })
        })
    }

    /// An idle connection that is alive, or a new one.
    async fn fresh(self: &Arc<Self>) -> Result<Connection<S>> {
        loop {
            let connection = tokio::select! {
                biased;
                pooled = self.take() => Connection::new(pooled, self),
                made = self.make() => made?,
            };
            if let Some(alive) = self.alive(connection).await {
                return Ok(alive);
            }
        }
    }

    /// The connection, unless it has ended or may have ended.
    async fn alive(&self, mut connection: Connection<S>) -> Option<Connection<S>> {
        if !connection.is_usable() {
            return None;
        }
        if connection.idle() > IDLE {
            let patience = Deadline::after((self.timeout / 20).min(LONGEST_PING));
            match patience.bound(connection.ping()).await {
                Some(true) => {}
                Some(false) => return None,
                // The others may be as dead.
                None => {
                    self.retire();
                    return None;
                }
            }
        }
        Some(connection)
    }

    /// Makes a connection as soon as the pool may have another. One of our own is completed even if its requester
    /// leaves, and is idle then, because the server would log an incomplete handshake.
    async fn make(self: &Arc<Self>) -> Result<Connection<S>> {
        let slot = Arc::clone(&self.slots).acquire_owned().await.expect("it is never closed");
        // First, so that one that is retired meanwhile counts as such.
        let (open, retired) = (self.open.subscribe(), *self.retired.borrow());
        let (pool, making) = (Arc::clone(self), Arc::clone(&self.making));
        let made = async move {
            let session = pool.source.connect(&pool.server).await?;
            drop(making);
            let pooled = Pooled { session, slot, open, retired, used: now() };
            Ok(Connection::new(pooled, &pool))
        };
        if self.are_callers {
            return made.await;
        }
        let (until, server) = (self.deadline(), self.server.clone());
        let in_time = async move {
            let late = || Err(no_connection(&server, until.limit()));
            until.bound(made).await.unwrap_or_else(late)
        };
        outliving(in_time).await.map_err(|e| e.with_effect(Effect::NotApplied))
    }

    /// Checks on a connection whether the server is writable. If it is not, closes all connections.
    async fn is_writable(self: &Arc<Self>) -> Result<()> {
        let mut answer = Ok(());
        for _ in 0..=self.source.idle() {
            let mut connection = self.fresh().await?;
            let Some(error) = connection.read_only(&self.server).await? else { return Ok(()) };
            self.retire();
            answer = Err(error);
        }
        answer
    }

    /// Call this after a reply which suggests that the server was demoted. Closes all connections; a new one asks the
    /// server before others are used.
    pub fn doubt(&self) {
        self.doubt.raise();
        self.retire();
    }

    /// Changes at every [`retire`](Self::retire).
    pub fn retirements(&self) -> watch::Receiver<u64> {
        self.retired.subscribe()
    }

    /// [`close`](Self::close) waits until the receiver is dropped.
    pub fn open(&self) -> watch::Receiver<()> {
        self.open.subscribe()
    }

    /// Ends the connections that are our own, each as the protocol requires, idle ones at once; a caller's return to their pool.
    /// Requests under way may still connect, and their connections end with them. Connections that have not ended by
    /// the deadline are left open.
    pub async fn close(&self, until: Deadline) {
        let _closing = self.closing();
        until.bound(self.open.closed()).await;
    }

    /// What an exchange returns before the deadline, and the connection if it can be used again.
    pub async fn exchange<T>(
        &self,
        mut connection: Connection<S>,
        until: Deadline,
        exchange: impl AsyncFnOnce(&mut S::Session) -> Result<T, Failed<S>>,
    ) -> Exchanged<S, T> {
        let answer = until.bound(Box::pin(exchange(&mut connection))).await;
        self.answered(connection, until, answer)
    }

    /// The rows that a call returns before the deadline, and the connection if it can be used again.
    pub async fn query(
        &self,
        mut connection: Connection<S>,
        until: Deadline,
        call: Call<'_, S>,
    ) -> Exchanged<S, Vec<Row<S>>> {
        let answer = until.bound(connection.query(call)).await;
        self.answered(connection, until, answer)
    }

    /// What an exchange returned, if it did before the deadline, and the connection if it can be used again.
    pub(crate) fn answered<T>(
        &self,
        connection: Connection<S>,
        until: Deadline,
        answer: Option<Result<T, Failed<S>>>,
    ) -> Exchanged<S, T> {
        let result = match answer {
            Some(Ok(result)) => Ok(result),
            Some(Err(error)) => {
                // Of a connection that is retired it is known.
                if S::Session::casts_doubt(&error) && !connection.is_retired() {
                    self.doubt();
                }
                Err(Unanswered::Server(error))
            }
            // What was sent there may still act, so this one is ended. The others may be as dead.
            None => {
                self.retire();
                Err(Unanswered::Late(until.limit()))
            }
        };
        (Some(connection).filter(Connection::is_usable), result)
    }

    /// The error of a request without a result.
    pub fn error(&self, failure: Unanswered<Failed<S>>) -> Error {
        match failure {
            Unanswered::Server(error) => S::Session::error(&self.server, error),
            Unanswered::Late(limit) => unanswered(&self.server, limit, Effect::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt as _;
    use futures_util::future::join;

    use super::*;
    use crate::reply::ReadRows;
    use crate::session::Answer;
    use crate::stored::Stored;

    /// Its sessions die with it.
    #[derive(Default)]
    struct Server {
        is_dead: Arc<AtomicBool>,
    }

    struct Fake(Arc<AtomicBool>);

    impl Source for Server {
        type Session = Fake;

        async fn connect(&self, _: &str) -> Result<Fake> {
            Ok(Fake(Arc::clone(&self.is_dead)))
        }
    }

    impl ReadRows for Fake {
        type Row = ();

        fn integer(_: &str, (): &(), _: &str) -> Result<Option<i64>> {
            Ok(None)
        }

        fn text(_: &str, (): &(), _: &str) -> Result<Option<String>> {
            Ok(None)
        }

        fn flag(_: &str, (): &(), _: &str) -> Result<bool> {
            Ok(false)
        }

        fn stored(_: &str, (): &()) -> Result<Stored> {
            Err(Error::unexpected("it has no rows"))
        }
    }

    impl Session for Fake {
        type Error = ();
        type Call<'c> = ();

        fn query<'q, 'c: 'q>(&'q mut self, (): ()) -> Answer<'q, Vec<()>, ()> {
            Box::pin(async { Ok(Vec::new()) })
        }

        fn is_usable(&self) -> bool {
            true
        }

        async fn ping(&mut self) -> bool {
            !self.0.load(Ordering::Relaxed)
        }

        async fn read_only(&mut self, _: &str) -> Result<Option<Error>> {
            Ok(None)
        }

        async fn end(self) {}

        fn is_conflict((): &()) -> bool {
            false
        }

        fn casts_doubt((): &()) -> bool {
            false
        }

        fn error(_: &str, (): ()) -> Error {
            Error::unexpected("it answers")
        }
    }

    /// Three connections, two of them reserved.
    fn pool() -> Arc<Pool<Server>> {
        Pool::own(Server::default(), "a server".to_owned(), Duration::from_secs(60), 3, 1)
    }

    #[tokio::test(start_paused = true)]
    async fn batches_do_not_queue_behind_other_requests() {
        let pool = pool();
        let until = pool.deadline();
        let all = [pool.get(until).await, pool.get(until).await, pool.get(until).await];
        let [first, second, third] = all.map(Result::unwrap);
        let mut other = pin!(pool.get(until));
        assert!(other.as_mut().now_or_never().is_none());
        let mut batch = pin!(pool.reserved(until));
        assert!(batch.as_mut().now_or_never().is_none());
        drop(first);
        assert!(other.as_mut().now_or_never().is_none());
        // One is enough for one batch.
        drop(second);
        let second = other.await.unwrap();
        let one = batch.await.unwrap();
        let mut batches = pin!(join(pool.reserved(until), pool.reserved(until)));
        assert!(batches.as_mut().now_or_never().is_none());
        drop(second);
        drop(third);
        let (two, three) = batches.await;
        one.reserve();
        let one = pool.reserved(until).now_or_never().unwrap().unwrap();
        drop(two);
        let free = pool.get(until).now_or_never().unwrap().unwrap();
        // What waited and has gone keeps nothing.
        assert!(pool.reserved(until).now_or_never().is_none());
        drop(free);
        let free = pool.get(until).now_or_never().unwrap();
        one.reserve();
        assert!(pool.get(until).now_or_never().is_none());
        assert!(pool.reserved(until).now_or_never().is_some());
        drop((three, free));
    }

    #[tokio::test(start_paused = true)]
    async fn no_batch_uses_a_reserved_connection_that_has_died() {
        let pool = pool();
        let until = pool.deadline();
        let (one, two) = join(pool.reserved(until), pool.reserved(until)).await;
        [one, two].into_iter().for_each(|reserved| reserved.unwrap().reserve());
        tokio::time::advance(IDLE * 2).await;
        pool.source.is_dead.store(true, Ordering::Relaxed);
        let began = now();
        let reserved = pool.reserved(until).await.unwrap();
        assert_eq!(reserved.idle(), now() - began, "it is new");
    }
}
