use std::fmt;
use std::sync::Arc;

use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, Error, EvictReply, EvictRequest, Health, Key,
    ListReply, ListRequest, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Result, Store,
    Wakeups,
};

use crate::RedisConfig;
use crate::inner::{Inner, MAX_CLAIMS, NAME};

/// Leases in a Redis server, or in the nodes of a Redis Cluster. Cheap to clone; clones share the connections.
///
/// The requests of all callers share one pipelined connection to a server, which is replaced when it breaks or stalls. A
/// renewal and what only reads is sent again on another connection then; what else was sent is sent once, unless a cluster
/// node redirects it without running it. If its reply is lost, the error's effect is `Unknown`, and the same request may be
/// sent again.
///
/// # Cancel safety
/// The future of any operation may be dropped: what was sent is carried out all the same, and no other caller is
/// affected.
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

impl RedisConfig {
    /// Connects. [`check`](leasehold_core::Store::check) reports whether the server is fit.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong setting; `Unavailable` or `Denied` if the server cannot be reached or refuses
    /// the login; `Incompatible` if it does not support RESP3.
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect(self) -> Result<RedisStore> {
        let named = |error: Error| error.with_context(NAME, "connect");
        let (servers, names, max_holders) = self.servers().map_err(named)?;
        servers.connect().await.map_err(named)?;
        Ok(RedisStore(Arc::new(Inner::new(servers, names, max_holders))))
    }
}

impl RedisStore {
    /// Connects to the server that `url` names; see [`RedisConfig::parse`].
    ///
    /// # Errors
    /// As [`RedisConfig::parse`] and [`RedisConfig::connect`].
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect(url: &str) -> Result<Self> {
        RedisConfig::parse(url).map_err(|e| e.with_context(NAME, "connect"))?.connect().await
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisStore({})", self.0.servers.name())
    }
}

impl Store for RedisStore {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::all(NAME);
        can.in_order = true;
        can.max_claims = Some(MAX_CLAIMS);
        can.max_holders = Some(self.0.max_holders);
        can.checks_on_use = self.0.servers.are_many();
        can
    }

    async fn check(&self) -> Result<Health> {
        self.capabilities().carry_out("check", &(), || self.0.servers.check()).await
    }

    /// Only connects; there is nothing to create.
    async fn prepare(&self) -> Result<()> {
        self.capabilities().carry_out("prepare", &(), || self.0.servers.connect()).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.capabilities().carry_out("acquire", request, || self.0.acquire(request)).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        self.capabilities().carry_out("renew", request, || self.0.renew(request)).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        self.capabilities().carry_out("release", request, || self.0.release(request)).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.capabilities().carry_out("list", request, || self.0.list(request)).await
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        self.capabilities().carry_out("evict", request, || self.0.evict(request)).await
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        self.capabilities().carry_out("subscribe", &(), || self.0.subscribe(keys)).await
    }

    /// The protocol requires no message at the end.
    async fn close(&self) {
        self.0.servers.close();
    }
}
