//! PostgreSQL as the server of a [`SqlStore`](leasehold_sql::SqlStore).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{AcquireRequest, Effect, EvictTarget, Health, Key, Reason, Result, Wakeups};
use leasehold_driver::Deadline;
use leasehold_sql::{
    Dialect, Exchange, Outcome, Position, Purge, ScannedRow, SqlStore, Stored, locked,
};
use tokio_postgres::Row;

use crate::call::{Call, Reply, micros};
use crate::calls::{self, Patience, Statements, stored};
use crate::config::{NAME, PostgresConfig};
use crate::error;
use crate::listener::Listener;
use crate::pool::{Pool, Unanswered};
use crate::row_waits::{BRIEF, Turns};
use crate::session::Sessions;
use crate::sql::Sql;

/// The longest pause of a waiter whom nobody wakes.
const UNHEARD: Duration = Duration::from_secs(1);

/// A PostgreSQL server, and a schema there.
pub struct Postgres {
    pub(crate) pool: Pool,
    pub(crate) sql: Arc<Sql>,
    pub(crate) listener: Option<Listener>,
    /// In microseconds.
    forget_after: Option<i64>,
}

/// Leases in a PostgreSQL database. Cheap to clone; clones share the connections.
///
/// Connect with [`connect`](SqlStore::connect), or with [`PostgresConfig::connect`]. Concurrent requests for exclusive locks of one
/// key are batched, each batch in one transaction; every other request has a transaction of its own, and none is part of a
/// transaction of yours. If a reply is lost, the error's effect is `Unknown`, and the same request may be sent again.
///
/// # Cancel safety
/// The future of any operation may be dropped: what was sent is carried out all the same, and no other caller is affected.
pub type PostgresStore = SqlStore<Postgres>;

impl PostgresConfig {
    /// Connects. [`check`](leasehold_core::Store::check) states whether the server is fit, and
    /// [`prepare`](leasehold_core::Store::prepare) creates the schema.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong setting; `Unavailable` or `Denied` if the server cannot be reached or refuses the
    /// login.
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect(self) -> Result<PostgresStore> {
        Postgres::new(self)
            .await
            .map(PostgresStore::new)
            .map_err(|e| e.with_context(NAME, "connect"))
    }
}

impl Postgres {
    async fn new(config: PostgresConfig) -> Result<Self> {
        let (pool, schema, forget_after, waker) = config.open_parts().await?;
        let sql = Arc::new(Sql::new(schema));
        let listener = waker.map(|server| Listener::new(*server, pool.clone(), Arc::clone(&sql)));
        Ok(Self { pool, sql, listener, forget_after: forget_after.map(micros) })
    }

    /// The rows of a statement that waits for no row, on a connection of its own.
    pub(crate) async fn read(&self, call: &Call<'_>) -> Result<Vec<Row>> {
        let (pool, until) = (&self.pool, self.pool.deadline());
        loop {
            let connection = pool.get(until).await?;
            match pool.query(connection, until, call).await.1 {
                Err(Unanswered::Server(e)) if error::is_conflict(&e) => {}
                rows => return rows.map_err(|failure| pool.error(failure)),
            }
        }
    }

    /// The rows of a statement on a connection of its own. `None` if somebody else's transaction held a row for the whole
    /// time limit. One that is not answered within `first` is sent again, on another connection.
    async fn patiently<'a>(
        &self,
        call: impl Fn(Patience) -> Call<'a>,
        turns: &Turns,
        until: Deadline,
        mut first: Option<Duration>,
    ) -> Result<Option<Vec<Row>>> {
        let pool = &self.pool;
        // To wait for a row, or to try again.
        let mut held = (turns.waits.try_acquire().ok(), None);
        while !until.left().is_zero() {
            let turn = until.bound(turns.connections.acquire()).await;
            let Some(turn) = turn else { return Err(pool.no_turn(until)) };
            let connection = pool.get(until).await?;
            let (is_last, step) = match first.take() {
                Some(first) => (false, until.within(first)),
                None => (true, until),
            };
            // The server gives up first, so that the outcome is known.
            let most = step.earlier().left();
            let patience = if held.0.is_some() { most } else { most.min(BRIEF) };
            let call = call(Some(patience.as_millis().max(1).to_string()));
            match pool.query_patiently(connection, step, patience, &call).await {
                Ok(None) if held.0.is_none() || !is_last => {}
                Ok(rows) => return Ok(rows),
                // Rolled back because of another transaction, which is about to end.
                Err(Unanswered::Server(e)) if error::is_conflict(&e) => continue,
                // The older connections are retired.
                Err(Unanswered::Late(_)) if !is_last => continue,
                Err(failure) => return Err(pool.error(failure)),
            }
            drop((turn, held));
            let next = async {
                tokio::select! {
                    biased;
                    wait = turns.waits.acquire() => (wait.ok(), None),
                    again = turns.again() => (None, again),
                }
            };
            match until.earlier().bound(next).await {
                Some(next) => held = next,
                None => break,
            }
        }
        Ok(None)
    }

    /// The rows of a statement on a reserved connection; `None` as [`briefly`](leasehold_sql::Pool::briefly).
    async fn briefly(&self, call: &Call<'_>, begin: Deadline) -> Option<Result<Vec<Row>>> {
        let exchange = async |connection, until| self.pool.query(connection, until, call).await;
        self.pool.briefly(begin, exchange).await
    }

    /// How a request ended whose statement returned these rows.
    fn outcome<R: Statements>(&self, request: &R, rows: Result<Vec<Row>>) -> Outcome<R::Reply> {
        let server = self.pool.server();
        let reply = rows.and_then(|rows| {
            let row = rows.first().ok_or_else(|| error::unexpected(server, "no row"))?;
            request.reply(&Reply(server, row))
        });
        reply.transpose().map_or(Outcome::RowLocked, Outcome::Done)
    }
}

impl<R: Statements> Exchange<R> for Postgres {
    async fn send(&self, request: &R, begin: Deadline) -> Outcome<R::Reply> {
        match self.briefly(&request.one(&self.sql, self.pool.patience()), begin).await {
            None => Outcome::SendAlone,
            Some(rows) => self.outcome(request, rows),
        }
    }

    async fn send_batch(&self, requests: &[&R], begin: Deadline) -> Vec<Outcome<R::Reply>> {
        let mut outcomes: Vec<_> = requests.iter().map(|_| Outcome::SendAlone).collect();
        match self.briefly(&R::batch(requests, &self.sql, self.pool.patience()), begin).await {
            Some(Ok(rows)) => {
                for row in rows {
                    let nth = row.try_get::<_, i64>("o_nth").ok();
                    let nth = nth.and_then(|nth| usize::try_from(nth - 1).ok());
                    if let Some(outcome) = nth.and_then(|nth| outcomes.get_mut(nth)) {
                        *outcome = Outcome::Done(R::member(&Reply(self.pool.server(), &row)));
                    }
                }
            }
            Some(Err(error)) if error.effect() != Effect::NotApplied => {
                outcomes.fill_with(|| Outcome::Done(Err(error.clone())));
            }
            // Each is tried alone.
            None | Some(Err(_)) => {}
        }
        outcomes
    }

    async fn send_alone(&self, request: &R, until: Deadline) -> Outcome<R::Reply> {
        let turns = R::turns(&self.pool.row_waits);
        let first = R::MAY_BE_REPEATED.then(|| request.patience(self.pool.timeout()));
        let call = |patience| request.any(&self.sql, patience);
        match self.patiently(call, turns, until, first).await.transpose() {
            None => Outcome::RowLocked,
            Some(rows) => self.outcome(request, rows),
        }
    }
}

impl Dialect for Postgres {
    const NAME: &'static str = NAME;

    type Source = Sessions;

    async fn connect(url: &str) -> Result<Self> {
        Self::new(PostgresConfig::parse(url)?).await
    }

    fn pool(&self) -> &leasehold_sql::Pool<Sessions> {
        &self.pool
    }

    async fn check(&self) -> Result<Health> {
        self.health().await
    }

    async fn prepare(&self) -> Result<()> {
        self.create_schema().await
    }

    fn wakes(&self) -> bool {
        self.listener.is_some()
    }

    fn is_awaited(&self, request: &AcquireRequest) -> bool {
        self.listener.as_ref().is_some_and(|all| all.is_subscribed(request.claims().keys()))
    }

    fn poll_within(&self) -> Option<Duration> {
        self.listener.as_ref().is_some_and(Listener::is_deaf).then_some(UNHEARD)
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        match &self.listener {
            Some(listener) => listener.listen(keys).await,
            None => Ok(Wakeups::none()),
        }
    }

    async fn close(&self) {
        let until = self.pool.deadline();
        if let Some(listener) = &self.listener {
            until.bound(listener.close()).await;
        }
        self.pool.close(until).await;
    }

    async fn look_up(&self, keys: &[String]) -> Result<Vec<(i64, Stored)>> {
        let rows = self.read(&calls::look_up(&self.sql, keys)).await?;
        Ok(rows.iter().filter_map(stored).collect())
    }

    async fn page(&self, after: &Position, most: usize) -> Result<(Vec<(i64, Stored)>, bool)> {
        let rows = self.read(&calls::page(&self.sql, after, most)).await?;
        Ok((rows.iter().filter_map(stored).collect(), rows.len() == most))
    }

    async fn evict(&self, targets: &[EvictTarget], reason: Option<&Reason>) -> Result<Vec<i64>> {
        let evict = |patience| calls::evict(&self.sql, patience, targets, reason);
        let (turns, server) = (self.pool.row_waits.of_others(), self.pool.server());
        let rows = self.patiently(evict, turns, self.pool.deadline(), None).await?;
        positions(server, &rows.ok_or_else(|| locked(server))?)
    }

    async fn scan(
        &self,
        keys: Option<&[String]>,
        after: &Position,
        most: usize,
    ) -> Result<Vec<ScannedRow>> {
        let call = calls::scan(&self.sql, keys, after, most, self.forget_after);
        let scanned = |row: &Row| {
            let ((now, stored), is) = (stored(row)?, |column: usize| row.get(column));
            let (is_last, is_over, is_forgettable) = (is(2), is(3), is(4));
            Some(ScannedRow { now, stored, is_last, is_over, is_forgettable })
        };
        Ok(self.read(&call).await?.iter().filter_map(scanned).collect())
    }

    async fn purge(&self, purge: &Purge) -> Result<Vec<i64>> {
        positions(self.pool.server(), &self.read(&calls::purge(&self.sql, purge)).await?)
    }
}

/// The positions that a function returns.
fn positions(server: &str, rows: &[Row]) -> Result<Vec<i64>> {
    let position = |row: &Row| row.try_get::<_, i32>(0).map(i64::from);
    rows.iter().map(|row| position(row).map_err(|e| error::unexpected(server, e))).collect()
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Postgres({})", self.pool.server())
    }
}
