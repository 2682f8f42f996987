use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::tally;
use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, EvictReply, EvictRequest, Feature, Health, Key,
    ListReply, ListRequest, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Result, Store,
    Wakeups,
};

use crate::config::QuorumConfig;
use crate::inner::{Inner, NAME};

/// Why a quorum lacks a feature, as the refusal states it.
const REASONS: &[(Feature, &str)] = &[
    (
        Feature::SharedLimit,
        "three clients could each hold two of three nodes; use a single store, or exclusive or unlimited shared \
         locks",
    ),
    (Feature::Tokens, "set the option fenced, which needs durable writes on every node"),
    (Feature::Never, "a node that lost one looks like a node that never had it"),
    (Feature::Terms, "the option max_ttl sets the longest"),
];

/// As [`REASONS`], for a quorum with tokens.
const FENCED_REASONS: &[(Feature, &str)] = &[
    (
        Feature::Shared,
        "two majorities could give the same token to two readers; leave out the option fenced, or use a single store",
    ),
    REASONS[2],
    REASONS[3],
];

/// A store made of several independent stores. Clones share their queues.
///
/// [`QuorumConfig`] creates one.
#[derive(Clone)]
pub struct QuorumStore(pub(crate) Arc<Inner>);

impl QuorumConfig {
    /// Creates the store. Nothing is sent; [`check`](Store::check) checks the nodes.
    ///
    /// # Errors
    /// `InvalidInput` for no nodes, two nodes of one name, or a limit out of range; `Unsupported` if tokens are
    /// requested and a node has none.
    pub fn build(self) -> Result<QuorumStore> {
        self.validate().map_err(|error| error.with_context(NAME, "connect"))?;
        Ok(QuorumStore::start(self))
    }
}

impl QuorumStore {
    fn start(config: QuorumConfig) -> Self {
        let QuorumConfig { nodes, limits, fenced, clock } = config;
        let each: Vec<_> = nodes.iter().map(|node| node.store.capabilities()).collect();
        let mut can = tally::capabilities(NAME, &each, limits.max_ttl, fenced);
        can.reasons = if fenced { FENCED_REASONS } else { REASONS };
        Self(Inner::new(nodes, can, limits, clock))
    }

    /// Ends when the nodes have answered every request sent so far, including those that continue after an early
    /// answer, roll-backs and re-additions. For tests, and before a runtime ends.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn settled(&self) {
        self.0.settled().await;
    }

    /// How many keys of leases are kept because a request that names them is unanswered.
    #[doc(hidden)]
    pub fn remembered(&self) -> usize {
        self.0.queues.len()
    }
}

impl fmt::Debug for QuorumStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0.nodes).finish()
    }
}

impl Store for QuorumStore {
    fn capabilities(&self) -> Capabilities {
        self.0.can
    }

    async fn check(&self) -> Result<Health> {
        self.0.can.carry_out("check", &(), || self.0.check()).await
    }

    async fn prepare(&self) -> Result<()> {
        self.0.can.carry_out("prepare", &(), || self.0.prepare()).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.0.can.carry_out("acquire", request, || self.0.acquire(request)).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        self.0.can.carry_out("renew", request, || self.0.renew(request)).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        self.0.can.carry_out("release", request, || self.0.release(request)).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.0.can.carry_out("list", request, || self.0.list(request)).await
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        self.0.can.carry_out("evict", request, || self.0.evict(request)).await
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        self.0.can.carry_out("subscribe", &(), || self.0.subscribe(keys)).await
    }

    /// Waits for the nodes' answers, so that those that answer do not keep what was rolled back or released, and closes the
    /// nodes: each for the limit of a node (500 ms, or `node_timeout`) at most.
    async fn close(&self) {
        let until = || self.0.clock.now().saturating_add(self.0.limits.of_term(None));
        self.0.within(until(), self.settled()).await;
        let closing = join_all(self.0.nodes.iter().map(|node| node.store.close()));
        self.0.within(until(), closing).await;
    }
}
