use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::tally;
use leasehold_core::{
    Acquire, Acquired, Capabilities, Clock, Evict, Evicted, Health, Key, LeaseReleased, List, Page,
    Release, Released, Renew, Renewed, Result, Store, Wakeups,
};
use tokio::sync::watch;

use crate::QuorumConfig;
use crate::config::Limits;
use crate::node::Node;
use crate::round::Round;
use crate::turns::{Turn, Turns};

pub(crate) const NAME: &str = "quorum";

/// Why a quorum lacks what it lacks, by the words of the refusal.
const REASONS: &[(&str, &str)] = &[
    (
        "limit on shared holders",
        "three clients could each hold two of three nodes; use one store for it, or exclusive or unlimited \
         shared locks",
    ),
    (
        "fencing tokens",
        "make it with the option fenced, which needs nodes that all report durable writes",
    ),
    ("leases without end", "a node that forgot one could not be told from one that never had it"),
    ("takes terms of", "the option max_ttl sets the longest"),
];

/// As [`REASONS`], of a quorum with tokens.
const FENCED_REASONS: &[(&str, &str)] = &[
    (
        "shared locks",
        "readers that different majorities grant at one moment could get one token; make it without the \
         option fenced, or use one store for it",
    ),
    REASONS[2],
    REASONS[3],
];

/// A store made of several independent stores. Clones share their turns.
///
/// See [`QuorumConfig`] for how to make one.
#[derive(Clone)]
pub struct QuorumStore(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) nodes: Vec<Node>,
    pub(crate) can: Capabilities,
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) turns: Arc<Turns>,
    running: watch::Sender<usize>,
}

impl QuorumStore {
    pub(crate) fn start(config: QuorumConfig) -> Self {
        let QuorumConfig { nodes, limits, fenced, clock } = config;
        let each: Vec<_> = nodes.iter().map(|node| node.store.capabilities()).collect();
        let mut can = tally::capabilities(NAME, &each, limits.max_ttl, fenced);
        can.reasons = if fenced { FENCED_REASONS } else { REASONS };
        let turns = Turns::new(nodes.len());
        Self(Arc::new(Inner { nodes, can, limits, clock, turns, running: watch::Sender::new(0) }))
    }

    /// Ends when every request sent so far has been answered by its node, those that run on after an early
    /// answer, roll-backs and re-additions among them. For tests, and before a runtime ends.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn settled(&self) {
        let settled = self.0.running.subscribe().wait_for(|running| *running == 0).await.is_ok();
        debug_assert!(settled, "the sender is ours");
    }

    /// How many lease ids are remembered because a request that names them is not answered yet.
    #[doc(hidden)]
    pub fn remembered(&self) -> usize {
        self.0.turns.len()
    }
}

impl fmt::Debug for QuorumStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0.nodes).finish()
    }
}

/// Requests in progress, counted.
struct Running(Arc<Inner>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}

impl Inner {
    /// Runs a node's request in a task of its own, which nobody drops: no driver takes a sent request back
    /// (C15).
    #[expect(clippy::disallowed_methods, reason = "a node's request outlives its caller")]
    pub(crate) fn spawn(self: &Arc<Self>, request: impl Future<Output = ()> + Send + 'static) {
        self.running.send_modify(|running| *running += 1);
        let running = Running(Arc::clone(self));
        tokio::spawn(async move {
            request.await;
            drop(running);
        });
    }

    /// Asks every node alike, and waits for all within the limit.
    pub(crate) async fn ask_all<T, F>(
        self: &Arc<Self>,
        operation: &'static str,
        ask: impl Fn(Node) -> F,
    ) -> Round<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut round = Round::new(self, operation, self.limits.of_term(None));
        for (at, node) in self.nodes.iter().enumerate() {
            let (reporter, asking) = (round.reporter(at), ask(node.clone()));
            self.spawn(async move { reporter.tell(asking.await) });
        }
        round.all().await;
        round
    }

    /// Releases on one node until that is answered or `until` is over. Every attempt has a task of its own, and
    /// the turn lasts until all of them are answered: a late one must not end a later life of the lease.
    pub(crate) async fn release_surely(
        self: &Arc<Self>,
        node: usize,
        request: &Release,
        turn: &Turn,
        until: Duration,
    ) {
        const PAUSE: Duration = Duration::from_millis(50);
        let limit = self.limits.of_term(None);
        let mut pause = PAUSE;
        loop {
            let (answered, answer) = tokio::sync::oneshot::channel();
            let (store, request) = (self.nodes[node].store.clone(), request.clone());
            let turn = turn.clone();
            self.spawn(async move {
                let released = store.release(&request).await;
                let done = released.is_ok_and(|released| {
                    !released.leases.iter().any(|l| matches!(l, LeaseReleased::Failed(_)))
                });
                drop(turn);
                // Nobody waits any more after the limit.
                answered.send(done).unwrap_or_default();
            });
            let done = tokio::select! {
                biased;
                done = answer => done.unwrap_or(false),
                () = self.clock.sleep_until(self.clock.now().saturating_add(limit)) => false,
            };
            let next = self.clock.now().saturating_add(pause);
            if done || next >= until {
                return;
            }
            self.clock.sleep_until(next).await;
            pause = (pause * 2).min(limit.max(PAUSE));
        }
    }

    /// Waits for `ready`, but no longer than until `limit`; says whether it came.
    pub(crate) async fn within(&self, limit: Duration, ready: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            () = ready => true,
            () = self.clock.sleep_until(limit) => false,
        }
    }
}

impl Store for QuorumStore {
    fn capabilities(&self) -> Capabilities {
        self.0.can
    }

    async fn check(&self) -> Result<Health> {
        self.0.check().await
    }

    async fn prepare(&self) -> Result<()> {
        self.0.prepare().await
    }

    async fn acquire(&self, request: &Acquire) -> Result<Acquired> {
        self.0.can.admit(request)?;
        self.0.acquire(request).await
    }

    async fn renew(&self, request: &Renew) -> Result<Renewed> {
        self.0.can.admit(request)?;
        self.0.renew(request).await
    }

    async fn release(&self, request: &Release) -> Result<Released> {
        self.0.can.admit(request)?;
        self.0.release(request).await
    }

    async fn list(&self, request: &List) -> Result<Page> {
        self.0.can.admit(request)?;
        self.0.list(request).await
    }

    async fn evict(&self, request: &Evict) -> Result<Evicted> {
        self.0.can.admit(request)?;
        self.0.evict(request).await
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        self.0.subscribe(keys).await
    }

    /// Ends no later than a node is waited for (500 ms, or `node_timeout`), so that the nodes that answer do not keep what
    /// was taken back or released.
    async fn drain(&self) {
        let until = self.0.clock.now().saturating_add(self.0.limits.of_term(None));
        self.0.within(until, self.settled()).await;
    }
}
