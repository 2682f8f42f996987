//! PostgreSQL as the server of a [`SqlStore`](leasehold_sql::SqlStore).

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{AcquireRequest, Health, Key, Result, Wakeups};
use leasehold_driver::batches::Requests;
use leasehold_sql::{Client, Dialect, SqlStore, Tries};

use crate::call::Call;
use crate::config::{NAME, PostgresConfig};
use crate::listener::Listener;
use crate::pool::{PATIENCE, Pool};
use crate::session::Sessions;
use crate::sql::Sql;

/// The longest pause of a waiter whom nobody wakes.
const UNWOKEN: Duration = Duration::from_secs(1);

/// A PostgreSQL server, and a schema there.
#[expect(missing_debug_implementations, reason = "nobody has one outside a store")]
pub struct Postgres {
    pub(crate) pool: Pool,
    pub(crate) sql: Arc<Sql>,
    /// How long a statement that has others behind it waits for a row, in milliseconds; `None` if the session knows it.
    pub(crate) patience: Option<String>,
    pub(crate) listener: Option<Arc<Listener>>,
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
        PostgresStore::of(Postgres::new(self)).await
    }
}

impl Postgres {
    async fn new(config: PostgresConfig) -> Result<Self> {
        let (pool, schema, waker) = config.open_parts().await?;
        let sql = Arc::new(Sql::new(schema));
        let listener = waker.map(|server| Listener::new(*server, pool.clone(), Arc::clone(&sql)));
        let patience = (!pool.direct).then(|| PATIENCE.as_millis().to_string());
        Ok(Self { pool, sql, patience, listener })
    }
}

impl Client for Postgres {
    type Source = Sessions;

    fn pool(&self) -> &Arc<leasehold_sql::Pool<Sessions>> {
        &self.pool.connections
    }

    fn tries(&self, takes: bool) -> impl Tries + '_ {
        self.pool.row_waits.tries(self.pool.server(), takes)
    }
}

impl Dialect for Postgres {
    const NAME: &'static str = NAME;

    fn batch<'c>(&'c self, requests: &Requests<'c>) -> Call<'c> {
        self.together(requests)
    }

    async fn connect(url: &str) -> Result<Self> {
        Self::new(PostgresConfig::parse(url)?).await
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
        self.listener.as_ref().is_some_and(|all| all.is_cut_off()).then_some(UNWOKEN)
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
}
