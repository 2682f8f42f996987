use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, EvictReply, EvictRequest, Health, Key, ListReply,
    ListRequest, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Result, Store, Wakeups,
};

use crate::PostgresConfig;
use crate::inner::{Inner, NAME};
use crate::pool::Links;
use crate::server::Server;
use crate::sql::SchemaName;

/// Leases in a PostgreSQL database. Cheap to clone; clones share the connections.
///
/// Requests for exclusive locks of one key that arrive while others are under way travel together, in one transaction;
/// all other requests have a transaction each. No request is part of a transaction of yours. If a reply is lost, the
/// error's effect is `Unknown`, and the same request may be sent again.
///
/// # Cancel safety
/// The future of any operation may be dropped: what was sent is carried out all the same, and no other caller is
/// affected.
#[derive(Clone)]
pub struct PostgresStore(Arc<Inner>);

impl PostgresStore {
    /// Connects to the server that `url` names; see [`PostgresConfig::from_url`].
    ///
    /// # Errors
    /// As [`PostgresConfig::from_url`] and [`PostgresConfig::open`].
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn from_url(url: &str) -> Result<Self> {
        PostgresConfig::from_url(url).map_err(|e| e.with_context(NAME, "open"))?.open().await
    }

    pub(crate) fn new(
        links: Links,
        schema: SchemaName,
        forget_after: Option<Duration>,
        waker: Option<Server>,
    ) -> Self {
        Self(Arc::new(Inner::new(links, schema, forget_after, waker)))
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresStore({})", self.0.database.links.server)
    }
}

impl Store for PostgresStore {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::none(NAME);
        can.shared = true;
        can.shared_limit = true;
        can.many_keys = true;
        can.never = true;
        can.keep = true;
        can.tokens = true;
        can.raise = true;
        can.notifications = self.0.listener.is_some();
        can.reports_expired = true;
        can.compares_tokens = true;
        can.checks_on_use = true;
        can
    }

    async fn check(&self) -> Result<Health> {
        self.0.check().await.map_err(|e| e.with_context(NAME, "check"))
    }

    async fn prepare(&self) -> Result<()> {
        self.0.prepare().await.map_err(|e| e.with_context(NAME, "prepare"))
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.capabilities().admit(request)?;
        self.0.acquire(request).await.map_err(|e| e.with_context(NAME, "acquire"))
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

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        let Some(listener) = &self.0.listener else { return Ok(Wakeups::none()) };
        listener.listen(keys).await.map_err(|e| e.with_context(NAME, "subscribe"))
    }

    async fn close(&self) {
        self.0.close().await;
    }
}
