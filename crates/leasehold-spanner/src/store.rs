use std::fmt;
use std::sync::{Arc, Mutex};

use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, Error, EvictReply, EvictRequest, Health, Key,
    ListReply, ListRequest, ReleaseOutcome, ReleaseReply, ReleaseRequest, RenewOutcome, RenewReply,
    RenewRequest, Result, Store, Wakeups, each_or_worst,
};
use leasehold_driver::batches::{Batches, Sizes};

use crate::SpannerConfig;
use crate::batch::{Member, Transactions};
use crate::client::{Client, Times};
use crate::position::Position;
use crate::table::Sql;

/// The store's name, as in its URL.
pub(crate) const NAME: &str = "spanner";

/// Leases in a table of Cloud Spanner. Cheap to clone; clones share the connections.
///
/// Each operation is one read-write transaction, and requests about one key each share one with those that arrive while others
/// are under way. If a reply is lost, the error's effect is `Unknown`, and the same request may be sent again.
///
/// # Cancel safety
/// The future of any operation may be dropped: what was sent is carried out all the same, and no other caller is affected.
#[derive(Clone)]
pub struct SpannerStore(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) client: Arc<Client>,
    pub(crate) sql: Arc<Sql>,
    batches: Batches<Transactions>,
    pub(crate) config: SpannerConfig,
    /// Where the next purge continues, so that a small one need not begin at the start.
    pub(crate) purged_to: Mutex<Position>,
}

impl SpannerConfig {
    /// Connects.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong setting; `Unavailable` or `Denied` if the database cannot be reached or the credentials are
    /// refused.
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect(self) -> Result<SpannerStore> {
        let failed = |e: Error| e.with_context(NAME, "connect");
        let sql = Arc::new(Sql::new(self.table_name().map_err(failed)?, self.clock));
        let client = Arc::new(self.open().await.map_err(failed)?);
        let sizes = Sizes {
            most: 200,
            lanes: self.places().min(4),
            many: 8,
            are_mixed: false,
            share_a_disk: false,
        };
        let transactions = Transactions { client: Arc::clone(&client), sql: Arc::clone(&sql) };
        let batches = Batches::new(Arc::new(transactions), sizes, client.timeout);
        let purged_to = Mutex::default();
        Ok(SpannerStore(Arc::new(Inner { client, sql, batches, config: self, purged_to })))
    }
}

impl SpannerStore {
    /// Connects to the database that `url` names; see [`SpannerConfig::parse`].
    ///
    /// # Errors
    /// As [`SpannerConfig::parse`] and [`SpannerConfig::connect`].
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect(url: &str) -> Result<Self> {
        SpannerConfig::parse(url).map_err(|e| e.with_context(NAME, "connect"))?.connect().await
    }
}

impl Inner {
    async fn send<R: Member>(
        &self,
        requests: impl IntoIterator<Item = R>,
    ) -> Vec<Result<R::Reply>> {
        let until = self.client.deadline();
        let alone = |request: Arc<R>| {
            let (client, sql) = (Arc::clone(&self.client), Arc::clone(&self.sql));
            let transactions = Transactions { client, sql };
            async move {
                let alone = vec![(*request).clone()];
                R::carry_out(alone, &transactions, Times::until(until)).await?.remove(0)
            }
        };
        self.batches.carry_out(requests, until, |one| one.keys().nth(1).is_none(), alone).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.send([request.clone()]).await.remove(0)
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        let outcomes = self.send(request.leases().iter().cloned()).await;
        each_or_worst(outcomes, RenewOutcome::Failed).map(RenewReply::new)
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        let outcomes = self.send(request.leases().iter().cloned()).await;
        each_or_worst(outcomes, ReleaseOutcome::Failed).map(ReleaseReply::new)
    }
}

impl fmt::Debug for SpannerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpannerStore({})", self.0.client.server)
    }
}

impl Store for SpannerStore {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::all(NAME);
        can.notifications = false;
        can.checks_on_use = true;
        can
    }

    async fn check(&self) -> Result<Health> {
        self.capabilities().carry_out("check", &(), || self.0.check()).await
    }

    async fn prepare(&self) -> Result<()> {
        self.capabilities().carry_out("prepare", &(), || self.0.prepare()).await
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

    /// Spanner wakes nobody.
    async fn subscribe(&self, _: &[Key]) -> Result<Wakeups> {
        Ok(Wakeups::none())
    }
}
