use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, EvictReply, EvictRequest, Health, Key, ListReply,
    ListRequest, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Result, Store, Wakeups,
};
use leasehold_driver::sql::SqlLeases;

use crate::MysqlConfig;
use crate::database::Database;
use crate::pool::Links;
use crate::sql::Sql;

/// The store's name, as in its URL.
pub(crate) const NAME: &str = "mysql";

/// Leases in a database of MySQL or MariaDB. Cheap to clone; clones share the connections.
///
/// Requests for exclusive locks of one key that arrive while others are under way travel together, in one transaction;
/// all other requests have a transaction each. No request is part of a transaction of yours. If a reply is lost, the
/// error's effect is `Unknown`, and the same request may be sent again.
///
/// # Cancel safety
/// The future of any operation may be dropped: what was sent is carried out all the same, and no other caller is
/// affected.
#[derive(Clone)]
pub struct MysqlStore(Arc<Inner>);

struct Inner {
    database: Arc<Database>,
    leases: SqlLeases<Database>,
}

impl MysqlStore {
    /// Connects to the server that `url` names; see [`MysqlConfig::from_url`].
    ///
    /// # Errors
    /// As [`MysqlConfig::from_url`] and [`MysqlConfig::open`].
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn from_url(url: &str) -> Result<Self> {
        MysqlConfig::from_url(url).map_err(|e| e.with_context(NAME, "open"))?.open().await
    }

    pub(crate) fn new(links: Links, sql: Sql, forget_after: Option<Duration>) -> Self {
        let database = Arc::new(Database::new(links, sql, forget_after));
        let leases = SqlLeases::new(Arc::clone(&database));
        Self(Arc::new(Inner { database, leases }))
    }
}

impl fmt::Debug for MysqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MysqlStore({})", self.0.database.links.server)
    }
}

impl Store for MysqlStore {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::none(NAME);
        can.shared = true;
        can.shared_limit = true;
        can.many_keys = true;
        can.never = true;
        can.keep = true;
        can.tokens = true;
        can.raise = true;
        can.reports_expired = true;
        can.compares_tokens = true;
        can.checks_on_use = true;
        can
    }

    async fn check(&self) -> Result<Health> {
        self.0
            .database
            .check(self.0.database.links.deadline())
            .await
            .map_err(|e| e.with_context(NAME, "check"))
    }

    async fn prepare(&self) -> Result<()> {
        self.0.database.prepare().await.map_err(|e| e.with_context(NAME, "prepare"))
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.capabilities().admit(request)?;
        self.0.leases.acquire(request, false).await.map_err(|e| e.with_context(NAME, "acquire"))
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        self.capabilities().admit(request)?;
        self.0.leases.renew(request).await.map_err(|e| e.with_context(NAME, "renew"))
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        self.capabilities().admit(request)?;
        self.0.leases.release(request).await.map_err(|e| e.with_context(NAME, "release"))
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.capabilities().admit(request)?;
        self.0.leases.list(request).await.map_err(|e| e.with_context(NAME, "list"))
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        self.capabilities().admit(request)?;
        self.0.leases.evict(request).await.map_err(|e| e.with_context(NAME, "evict"))
    }

    async fn subscribe(&self, _: &[Key]) -> Result<Wakeups> {
        Ok(Wakeups::none())
    }

    /// Says farewell on every connection that is the store's own; those of a caller's pool stay there.
    async fn close(&self) {
        self.0.database.links.close().await;
    }
}
