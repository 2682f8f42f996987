//! MySQL and MariaDB as the server of a [`SqlStore`].

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use leasehold_core::{Effect, EvictTarget, Health, Reason, Result};
use leasehold_driver::Deadline;
use leasehold_sql::{
    Dialect, Exchange, ExpiredRow, Outcome, Position, Purge, Server, SqlStore, Stored, locked,
};
use mysql_async::Row;

use crate::call::{Call, micros};
use crate::calls::{self, Calls};
use crate::config::{MysqlConfig, NAME};
use crate::connection::Connection;
use crate::error;
use crate::pool::{Pool, Unanswered};
use crate::rows::{column, required, stored};
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
        rows.map_err(|failure| failure.into_error(&self.pool.server))
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
            if was_locked && deadline.left() < self.pool.timeout / 10 {
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
                Err(Unanswered::Conflict(_)) => {}
                Err(Unanswered::Failed(e)) if !is_last && e.effect() == Effect::Unknown => {
                    self.pool.retire();
                    continue;
                }
                Err(failure) => return Err(failure.into_error(&self.pool.server)),
            }
            was_locked = true;
            tokio::time::sleep(pause.mul_f64(fastrand::f64()).min(deadline.left())).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// The rows of a call on a reserved connection, or `None` if it was rolled back because of somebody else's
    /// transaction.
    async fn briefly(&self, connection: Connection, call: Call<'_>) -> Option<Result<Vec<Row>>> {
        let deadline = self.pool.deadline();
        let (connection, rows) = self.pool.query(connection, deadline, &self.sql, call).await;
        if let Some(connection) = connection {
            self.pool.reserve(connection);
        }
        match rows {
            Ok(rows) => Some(Ok(rows)),
            Err(Unanswered::Conflict(_)) => None,
            Err(Unanswered::Failed(error)) => Some(Err(error)),
        }
    }

    /// What rows say, each with the clock of its reading.
    fn stored(&self, rows: &[Row]) -> Result<Vec<(i64, Stored)>> {
        let server = &self.pool.server;
        let mut all = Vec::with_capacity(rows.len());
        for row in rows {
            all.push((required(server, row, "o_now")?, stored(server, row)));
        }
        Ok(all)
    }
}

impl<R: Calls> Exchange<R> for Mysql {
    async fn send(&self, request: &R, begin: Deadline) -> Outcome<R::Reply> {
        let connection = match self.pool.reserved(begin).await {
            Ok(connection) => connection,
            Err(_) if begin.left().is_zero() => return Outcome::SendAlone,
            Err(error) => return Outcome::Done(Err(error)),
        };
        match self.briefly(connection, request.one()).await {
            None => Outcome::RowLocked,
            Some(Err(error)) => Outcome::Done(Err(error)),
            Some(Ok(rows)) => match calls::read(&self.pool.server, request, &rows).transpose() {
                Some(reply) => Outcome::Done(reply),
                None => Outcome::SendAlone,
            },
        }
    }

    async fn send_batch(&self, requests: &[&R], begin: Deadline) -> Vec<Outcome<R::Reply>> {
        let server = &self.pool.server;
        let mut outcomes: Vec<_> = requests.iter().map(|_| Outcome::SendAlone).collect();
        let joined = requests.iter().enumerate().filter(|(_, one)| requests[0].may_join(one));
        let (places, members): (Vec<usize>, Vec<&R>) = joined.map(|(at, one)| (at, *one)).unzip();
        let reply = match self.pool.reserved(begin).await {
            Ok(connection) => {
                let call = if self.pool.is_direct(&connection) {
                    R::batch_direct(&self.sql, &members)
                } else {
                    R::batch(self.batches.fetch_add(1, Ordering::Relaxed), &members)
                };
                self.briefly(connection, call).await
            }
            Err(error) => Some(Err(error)),
        };
        match reply {
            Some(Ok(rows)) => {
                for row in rows {
                    let key: Vec<u8> = required(server, &row, "key").unwrap_or_default();
                    let nth = members
                        .binary_search_by(|member| member.key().as_str().as_bytes().cmp(&key));
                    if let Ok(nth) = nth {
                        outcomes[places[nth]] = Outcome::Done(R::member(server, &row));
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
        let server = &self.pool.server;
        let first = R::MAY_BE_REPEATED.then(|| request.patience(self.pool.timeout));
        let read = |rows: &[Row]| calls::read(server, request, rows);
        match self.patiently(until, first, || request.any(), read).await.transpose() {
            Some(reply) => Outcome::Done(reply),
            None => Outcome::RowLocked,
        }
    }
}

impl Server for Mysql {
    fn lanes(&self) -> usize {
        self.pool.lanes
    }

    fn timeout(&self) -> Duration {
        self.pool.timeout
    }

    fn retire(&self) {
        self.pool.retire();
    }
}

impl Dialect for Mysql {
    const NAME: &'static str = NAME;

    async fn connect(url: &str) -> Result<Self> {
        Self::new(MysqlConfig::parse(url)?).await
    }

    fn server(&self) -> &str {
        &self.pool.server
    }

    async fn check(&self) -> Result<Health> {
        self.health(self.pool.deadline()).await
    }

    async fn prepare(&self) -> Result<()> {
        self.create_objects().await
    }

    async fn close(&self) {
        self.pool.close().await;
    }

    async fn look_up(&self, keys: &[String]) -> Result<Vec<(i64, Stored)>> {
        self.stored(&self.read(self.pool.deadline(), calls::look_up(keys)).await?)
    }

    async fn page(&self, after: &Position, most: usize) -> Result<(Vec<(i64, Stored)>, bool)> {
        let rows = self.read(self.pool.deadline(), calls::page(after, most)).await?;
        Ok((self.stored(&rows)?, rows.len() == most))
    }

    async fn evict(&self, targets: &[EvictTarget], reason: Option<&Reason>) -> Result<Vec<i64>> {
        let server = &self.pool.server;
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
    ) -> Result<(Vec<ExpiredRow>, Option<Position>)> {
        let server = &self.pool.server;
        let call = calls::scan(keys, after, most, self.forget_after);
        let rows = self.read(self.pool.deadline(), call).await?;
        let (mut expired, mut next) = (Vec::new(), None);
        for row in &rows {
            let stored = stored(server, row);
            let flag = |name| column::<i64>(server, row, name).map(|flag| flag == Some(1));
            if flag("o_more")? {
                next = Some(Position::of(&stored));
            }
            let now = required(server, row, "o_now")?;
            expired.extend(ExpiredRow::of(now, stored, flag("o_over")?, flag("o_old")?));
        }
        Ok((expired, next))
    }

    async fn purge(&self, purge: &Purge) -> Result<Vec<i64>> {
        let server = &self.pool.server;
        let rows = self.read(self.pool.deadline(), calls::purge(purge)).await?;
        calls::gone(server, &rows)?.ok_or_else(|| error::unexpected(server, "a purge that waits"))
    }
}

impl fmt::Debug for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mysql({})", self.pool.server)
    }
}
