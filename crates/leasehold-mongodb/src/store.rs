use std::fmt;
use std::sync::Arc;

use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, Error, EvictReply, EvictRequest, Health, Key,
    ListReply, ListRequest, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Result, Store,
    Wakeups,
};
use leasehold_driver::outliving;

use crate::MongodbConfig;
use crate::inner::{Inner, NAME};
use crate::ops::Leases;
use crate::schema;

/// Leases in a collection of MongoDB. Cheap to clone; clones share the connections.
///
/// A request about one key is one command, in which the server decides by its own clock. Those that arrive while others are
/// under way go in batches of two commands. A request about several keys is a transaction. No request is part of a transaction of yours. If a reply is lost, the error's effect is `Unknown`, and the
/// same request may be sent again.
///
/// # Cancel safety
/// The future of any operation may be dropped: what was sent is carried out all the same, and no other caller is affected.
#[derive(Clone)]
pub struct MongodbStore(Leases);

impl MongodbConfig {
    /// Connects, and learns what the server can do.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong setting; `Unavailable`, `Denied` or `Incompatible` if no server can be reached, the login is
    /// refused, or the server cannot be used.
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect(self) -> Result<MongodbStore> {
        let inner = self.open().await.map_err(|e| e.with_context(NAME, "connect"))?;
        Ok(MongodbStore(Leases::new(Arc::new(inner))))
    }
}

impl MongodbStore {
    /// Connects to the servers that `url` names; see [`MongodbConfig::parse`].
    ///
    /// # Errors
    /// As [`MongodbConfig::parse`] and [`MongodbConfig::connect`].
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect(url: &str) -> Result<Self> {
        MongodbConfig::parse(url)
            .map_err(|e: Error| e.with_context(NAME, "connect"))?
            .connect()
            .await
    }
}

impl MongodbStore {
    pub(crate) fn leases(&self) -> Leases {
        self.0.clone()
    }

    pub(crate) fn inner(&self) -> Arc<Inner> {
        Arc::clone(&self.0.inner)
    }
}

impl fmt::Debug for MongodbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MongodbStore({})", self.0.inner.commands.server())
    }
}

impl Store for MongodbStore {
    fn capabilities(&self) -> Capabilities {
        self.0.inner.capabilities()
    }

    async fn check(&self) -> Result<Health> {
        self.capabilities().carry_out("check", &(), || self.0.inner.check()).await
    }

    /// Creates the collection and mongo-lock's indexes.
    async fn prepare(&self) -> Result<()> {
        let commands = self.0.inner.commands.clone();
        let until = commands.deadline();
        let prepared = outliving(async move { schema::prepare(&commands, until).await });
        self.capabilities().carry_out("prepare", &(), || prepared).await
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
        self.capabilities().carry_out("list", request, || self.0.inner.list(request)).await
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        self.capabilities().carry_out("evict", request, || self.0.inner.evict(request)).await
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        self.capabilities().carry_out("subscribe", &(), || self.0.inner.subscribe(keys)).await
    }
}
