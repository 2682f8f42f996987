//! MySQL and MariaDB as the server of a [`SqlStore`].

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use leasehold_core::{Effect, EvictTarget, Health, Reason, Result};
use leasehold_driver::Deadline;
use leasehold_sql::{
    Connection, Dialect, Exchange, Outcome, Position, Purge, ScannedRow, SqlStore, Stored, locked,
};
use mysql_async::Row;

use crate::call::{Call, micros};
use crate::calls::{self, Calls};
use crate::config::{MysqlConfig, NAME};
use crate::error;
use crate::pool::{Pool, Unanswered};
use crate::rows::{Reply, column, required, stored};
use crate::session::Sessions;
use crate::sql::Sql;

/// The longest pauses, the first and the last, before the next try of a call whose rows somebody else has locked.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(200));

/// A server of MySQL or MariaDB, and a database there.
pub struct Mysql {
    pub(crate) pool: Pool,
    pub(crate) sql: Sql,
    /// The number of the last batch. They begin anywhere, so that no other store has the same ones.
    batches: AtomicI64,
    /// In microseconds.
    forget_after: Option<i64>,
}

/// Leases in a database of MySQL or MariaDB. Cheap to clone; clones share the connections.
///
/// Connect with [`connect`](SqlStore::connect), or with [`MysqlConfig::connect`]. Concurrent requests for exclusive locks of one
/// key are batched, each batch in one transaction; every other request has a transaction of its own, and none is part of a
/// transaction of yours. If a reply is lost, the error's effect is `Unknown`, and the same request may be sent again.
///
/// # Cancel safety
/// The future of any operation may be dropped: what was sent is carried out all the same, and no other caller is affected.
pub type MysqlStore = SqlStore<Mysql>;

impl MysqlConfig {
    /// Connects. [`check`](leasehold_core::Store::check) states whether the server is fit, and
    /// [`prepare`](leasehold_core::Store::prepare) creates the store's objects.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong setting; `Unavailable` or `Denied` if the server cannot be reached or refuses the
    /// login.
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect(self) -> Result<MysqlStore> {
        Mysql::new(self).await.map(MysqlStore::new).map_err(|e| e.with_context(NAME, "connect"))
    }
}

impl Mysql {
    async fn new(config: MysqlConfig) -> Result<Self> {
        let (pool, sql, forget_after) = config.open_parts().await?;
        let batches = AtomicI64::new(fastrand::i64(..));
        Ok(Self { pool, sql, batches, forget_after: forget_after.map(micros) })
    }

    /// The rows of a call that waits for no row, on a connection of its own.
    pub(crate) async fn read(&self, deadline: Deadline, call: Call<'_>) -> Result<Vec<Row>> {
        let connection = self.pool.get(deadline).await?;
        let rows = self.pool.query(connection, deadline, &self.sql, call).await.1;
        rows.map_err(|failure| self.pool.error(failure))
    }

    /// What the rows of a call report that finds nothing of it done while somebody else has locked one of its rows: tried on
    /// a connection of its own until that has ended. `None` if it did not end within the time limit. One that may be sent
    /// twice is sent again, on a new connection, after `first`.
    async fn patiently<T>(
        &self,
        deadline: Deadline,
        mut first: Option<Duration>,
        call: impl Fn() -> Call<'static>,
        read: impl Fn(&[Row]) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut pause = PAUSES.0;
        let mut was_locked = false;
        loop {
            // A try that there is no time for would leave its outcome unknown.
            if was_locked && deadline.left() < self.pool.timeout() / 10 {
                return Ok(None);
            }
            let connection = match self.pool.get(deadline).await {
                Ok(connection) => connection,
                Err(_) if was_locked && deadline.left().is_zero() => return Ok(None),
                Err(error) => return Err(error),
            };
            let (is_last, step) = match first.take() {
                Some(first) => (false, deadline.within(first)),
                None => (true, deadline),
            };
            match self.pool.query(connection, step, &self.sql, call()).await.1 {
                Ok(rows) => {
                    if let Some(found) = read(&rows)? {
                        return Ok(Some(found));
                    }
                }
                Err(Unanswered::Server(e)) if error::is_conflict(&e) => {}
                Err(failure) => match self.pool.error(failure) {
                    e if !is_last && e.effect() == Effect::Unknown => {
                        self.pool.retire();
                        continue;
                    }
                    error => return Err(error),
                },
            }
            was_locked = true;
            tokio::time::sleep(pause.mul_f64(fastrand::f64()).min(deadline.left())).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// The reply in the rows of a call about one request; `None` if somebody else's transaction holds a row of its keys, or
    /// if it is for the general procedure to decide.
    fn reply<R: Calls>(&self, request: &R, rows: &[Row]) -> Result<Option<R::Reply>> {
        let Some(row) = rows.first() else { return Ok(None) };
        request.reply(&Reply(self.pool.server(), row))
    }

    /// What rows hold, each with the clock of its reading.
    fn stored(&self, rows: &[Row]) -> Result<Vec<(i64, Stored)>> {
        let server = self.pool.server();
        let mut all = Vec::with_capacity(rows.len());
        for row in rows {
            all.push((required(server, row, "o_now")?, stored(server, row)));
        }
        Ok(all)
    }
}

impl<R: Calls> Exchange<R> for Mysql {
    async fn send(&self, request: &R, begin: Deadline) -> Outcome<R::Reply> {
        let exchange = async |connection, until| {
            self.pool.query(connection, until, &self.sql, request.one()).await
        };
        let replied = self.pool.briefly(begin, exchange).await;
        let reply =
            replied.and_then(|rows| rows.and_then(|rows| self.reply(request, &rows)).transpose());
        reply.map_or(Outcome::SendAlone, Outcome::Done)
    }

    async fn send_batch(&self, requests: &[&R], begin: Deadline) -> Vec<Outcome<R::Reply>> {
        let server = self.pool.server();
        let mut outcomes: Vec<_> = requests.iter().map(|_| Outcome::SendAlone).collect();
        let joined = requests.iter().enumerate().filter(|(_, one)| requests[0].may_join(one));
        let (places, members): (Vec<usize>, Vec<&R>) = joined.map(|(at, one)| (at, *one)).unzip();
        let exchange = async |connection: Connection<Sessions>, until| {
            let call = if self.pool.is_direct(&connection) {
                R::batch_direct(&self.sql, &members)
            } else {
                R::batch(self.batches.fetch_add(1, Ordering::Relaxed), &members)
            };
            self.pool.query(connection, until, &self.sql, call).await
        };
        let reply = self.pool.briefly(begin, exchange).await;
        match reply {
            Some(Ok(rows)) => {
                for row in rows {
                    let key: Vec<u8> = required(server, &row, "key").unwrap_or_default();
                    let nth = members
                        .binary_search_by(|member| member.key().as_str().as_bytes().cmp(&key));
                    if let Ok(nth) = nth {
                        outcomes[places[nth]] = Outcome::Done(R::member(&Reply(server, &row)));
                    }
                }
            }
            Some(Err(error)) if error.effect() != Effect::NotApplied => {
                places.iter().for_each(|at| outcomes[*at] = Outcome::Done(Err(error.clone())));
            }
            // Each is tried alone.
            None | Some(Err(_)) => {}
        }
        outcomes
    }

    async fn send_alone(&self, request: &R, until: Deadline) -> Outcome<R::Reply> {
        let first = R::MAY_BE_REPEATED.then(|| request.patience(self.pool.timeout()));
        let read = |rows: &[Row]| self.reply(request, rows);
        let reply = self.patiently(until, first, || request.any(), read).await;
        reply.transpose().map_or(Outcome::RowLocked, Outcome::Done)
    }
}

impl Dialect for Mysql {
    const NAME: &'static str = NAME;

    type Source = Sessions;

    async fn connect(url: &str) -> Result<Self> {
        Self::new(MysqlConfig::parse(url)?).await
    }

    fn pool(&self) -> &leasehold_sql::Pool<Sessions> {
        &self.pool
    }

    async fn check(&self) -> Result<Health> {
        self.health(self.pool.deadline()).await
    }

    async fn prepare(&self) -> Result<()> {
        self.create_objects().await
    }

    async fn look_up(&self, keys: &[String]) -> Result<Vec<(i64, Stored)>> {
        self.stored(&self.read(self.pool.deadline(), calls::look_up(keys)).await?)
    }

    async fn page(&self, after: &Position, most: usize) -> Result<(Vec<(i64, Stored)>, bool)> {
        let rows = self.read(self.pool.deadline(), calls::page(after, most)).await?;
        Ok((self.stored(&rows)?, rows.len() == most))
    }

    async fn evict(&self, targets: &[EvictTarget], reason: Option<&Reason>) -> Result<Vec<i64>> {
        let server = self.pool.server();
        let until = self.pool.deadline();
        let call = || calls::evict(targets, reason);
        let gone = self.patiently(until, None, call, |rows| calls::gone(server, rows)).await?;
        gone.ok_or_else(|| locked(server))
    }

    async fn scan(
        &self,
        keys: Option<&[String]>,
        after: &Position,
        most: usize,
    ) -> Result<Vec<ScannedRow>> {
        let server = self.pool.server();
        let call = calls::scan(keys, after, most, self.forget_after);
        let scanned = |row: &Row| {
            let flag = |name| column::<i64>(server, row, name).map(|flag| flag == Some(1));
            Ok(ScannedRow {
                now: required(server, row, "o_now")?,
                stored: stored(server, row),
                is_last: flag("o_more")?,
                is_over: flag("o_over")?,
                is_forgettable: flag("o_old")?,
            })
        };
        self.read(self.pool.deadline(), call).await?.iter().map(scanned).collect()
    }

    async fn purge(&self, purge: &Purge) -> Result<Vec<i64>> {
        let server = self.pool.server();
        let rows = self.read(self.pool.deadline(), calls::purge(purge)).await?;
        calls::gone(server, &rows)?.ok_or_else(|| error::unexpected(server, "a purge that waits"))
    }
}

impl fmt::Debug for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mysql({})", self.pool.server())
    }
}
