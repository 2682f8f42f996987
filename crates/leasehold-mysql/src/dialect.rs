//! MySQL and MariaDB as the server of a [`SqlStore`].

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use leasehold_core::{AcquireRequest, Health, Result};
use leasehold_driver::Deadline;
use leasehold_driver::batches::Requests;
use leasehold_sql::{Client, Dialect, SqlStore, Tries};

use crate::call::Call;
use crate::config::{MysqlConfig, NAME};
use crate::pool::Pool;
use crate::session::Sessions;
use crate::sql::Sql;

/// The longest pauses, the first and the last, before the next try of a call whose rows somebody else has locked.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(200));

/// A server of MySQL or MariaDB, and a database there.
#[expect(missing_debug_implementations, reason = "nobody has one outside a store")]
pub struct Mysql {
    pub(crate) pool: Pool,
    pub(crate) sql: Sql,
    /// The number of the last batch. They begin anywhere, so that no other store has the same ones.
    pub(crate) batches: AtomicI64,
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
        MysqlStore::of(Mysql::new(self)).await
    }
}

impl Mysql {
    async fn new(config: MysqlConfig) -> Result<Self> {
        let (pool, sql) = config.open_pool(1).await?;
        Ok(Self { pool, sql, batches: AtomicI64::new(fastrand::i64(..)) })
    }
}

impl Client for Mysql {
    type Source = Sessions;

    const ONE_MAY_BE_UNDECIDED: bool = true;

    fn pool(&self) -> &Arc<leasehold_sql::Pool<Sessions>> {
        &self.pool.connections
    }

    fn tries(&self, _: bool) -> impl Tries + '_ {
        Polls { pause: PAUSES.0, least: self.pool.timeout() / 10 }
    }
}

/// The tries of a request: the server does not wait for rows, so they are tried again and again.
struct Polls {
    /// The longest pause before the next.
    pause: Duration,
    /// A try that has less time would leave its outcome unknown.
    least: Duration,
}

impl Tries for Polls {
    async fn pause(&mut self, until: Deadline, _: bool) -> bool {
        tokio::time::sleep(self.pause.mul_f64(fastrand::f64()).min(until.left())).await;
        self.pause = (self.pause * 2).min(PAUSES.1);
        until.left() >= self.least
    }
}

impl Dialect for Mysql {
    const NAME: &'static str = NAME;

    fn batch<'c>(&'c self, requests: &Requests<'c>) -> Call<'c> {
        self.together(requests)
    }

    /// MySQL may wait a second for another client that adds a key.
    fn mixes(&self) -> bool {
        self.pool.is_mariadb
    }

    /// A batch names one process.
    fn may_join(first: &AcquireRequest, other: &AcquireRequest) -> bool {
        let (first, other) = (first.note(), other.note());
        first.host() == other.host()
            && first.pid() == other.pid()
            && first.program() == other.program()
    }

    async fn connect(url: &str) -> Result<Self> {
        Self::new(MysqlConfig::parse(url)?).await
    }

    async fn check(&self) -> Result<Health> {
        self.health(self.pool.deadline()).await
    }

    async fn prepare(&self) -> Result<()> {
        self.create_objects().await
    }
}
