//! Real local stores as nodes, each behind a connection that can fail. All of it runs on tokio's paused time: no
//! sleep here, or in the tests that use this, waits for anything but the events before it.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, BoxFuture, Capabilities, Claims, Clock, FencingToken, Filter,
    Health, Key, LeaseId, ListReply, ListRequest, Mode, Record, ReleaseEntry, ReleaseOutcome,
    ReleaseRequest, RenewEntry, RenewOutcome, RenewRequest, Result, Store, Ttl,
};
use leasehold_driver::TokioClock;
use leasehold_local::LocalStore;
use leasehold_quorum::{QuorumConfig, QuorumStore};
use leasehold_testkit::faulty::{Hook, Reply, Script, quarantined};

pub(crate) use leasehold_testkit::faulty::{Fault, Faulty, Request, Sent};

pub(crate) const TERM: Duration = Duration::from_secs(30);

/// The limit of a node at that term.
pub(crate) const LIMIT: Duration = Duration::from_millis(500);

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// One node.
#[derive(Debug, Clone)]
pub(crate) struct Node(Arc<Inner>);

struct Inner {
    /// Replaced by a restart that forgets.
    store: Mutex<LocalStore>,
    clock: Arc<Skewed>,
    can: Capabilities,
    script: Script,
    health: Mutex<Option<Health>>,
    /// Changes the pages that it returns.
    mislead: Mutex<Option<Mislead>>,
    /// Until when it grants nothing.
    quarantine: Mutex<Duration>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node of the test")
    }
}

pub(crate) type Mislead = Arc<dyn Fn(ListReply, &ListRequest) -> Result<ListReply> + Send + Sync>;

impl Deref for Node {
    type Target = Script;

    fn deref(&self) -> &Script {
        &self.0.script
    }
}

/// A clock whose wall time is ahead.
#[derive(Debug)]
pub(crate) struct Skewed {
    clock: TokioClock,
    ahead: u64,
}

impl Clock for Skewed {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn wall_micros(&self) -> u64 {
        self.clock.wall_micros() + self.ahead
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep_until(at)
    }
}

impl Node {
    pub(crate) fn new(clock: TokioClock, ahead: u64) -> Self {
        Self::that_can(clock, ahead, |_| {})
    }

    /// A node with other features.
    pub(crate) fn that_can(
        clock: TokioClock,
        ahead: u64,
        change: impl FnOnce(&mut Capabilities),
    ) -> Self {
        let clock = Arc::new(Skewed { clock, ahead });
        let store = LocalStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
        let mut can = store.capabilities();
        change(&mut can);
        Self(Arc::new(Inner {
            store: Mutex::new(store),
            clock,
            can,
            script: Script::default(),
            health: Mutex::default(),
            mislead: Mutex::default(),
            quarantine: Mutex::default(),
        }))
    }

    /// Changes its pages. A request with a cursor is served as the first.
    pub(crate) fn mislead(&self, mislead: Option<Mislead>) {
        *self.0.mislead.lock().unwrap() = mislead;
    }

    /// Restarts without any memory.
    pub(crate) fn forget(&self) {
        let store = LocalStore::with_clock(Arc::clone(&self.0.clock) as Arc<dyn Clock>);
        *self.0.store.lock().unwrap() = store;
    }

    /// Grants nothing for this long.
    pub(crate) fn quarantine(&self, time: Duration) {
        *self.0.quarantine.lock().unwrap() = self.0.clock.now() + time;
    }

    /// Sets what `check` finds.
    pub(crate) fn set_health(&self, change: impl FnOnce(&mut Health)) {
        let mut health = Health::new(leasehold_core::Level::Fenced);
        health.durable = true;
        health.identity = Some(format!("{:p}", Arc::as_ptr(&self.0)));
        change(&mut health);
        *self.0.health.lock().unwrap() = Some(health);
    }

    /// The store itself, past the connection.
    pub(crate) fn local(&self) -> LocalStore {
        self.0.store.lock().unwrap().clone()
    }

    /// The live records, past the connection.
    pub(crate) async fn records(&self) -> Vec<Record> {
        self.local().list(&ListRequest::new(Filter::default())).await.unwrap().records
    }

    pub(crate) async fn has(&self, id: &LeaseId) -> bool {
        self.records().await.iter().any(|record| record.id.as_ref() == Some(id))
    }

    /// What the node itself replies.
    async fn reply(self, request: Request) -> Result<Reply> {
        let rest = self.0.quarantine.lock().unwrap().saturating_sub(self.0.clock.now());
        let health = self.0.health.lock().unwrap().clone();
        let mislead = self.0.mislead.lock().unwrap().clone();
        match (request, health, mislead) {
            (Request::Acquire(_), ..) if !rest.is_zero() => Err(quarantined(rest)),
            (Request::Check, Some(health), _) => Ok(Reply::Check(health)),
            (Request::List(request), _, Some(mislead)) => {
                let first = ListRequest::new(request.filter().clone()).with_limit(request.limit());
                mislead(self.local().list(&first).await?, &request).map(Reply::List)
            }
            (request, ..) => request.send_to(self.local()).await,
        }
    }
}

impl Hook for Node {
    fn store(&self) -> impl Store {
        self.local()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.can
    }

    async fn handle(&self, request: Request) -> Result<Reply> {
        self.carry(request, |request| self.clone().reply(request)).await
    }
}

/// A quorum of such nodes, whose wall clocks are some seconds apart.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) store: QuorumStore,
    pub(crate) clock: TokioClock,
}

impl Cluster {
    pub(crate) fn new(count: usize, fenced: bool) -> Self {
        Self::with(count, |config| config.fenced(fenced))
    }

    pub(crate) fn with(count: usize, change: impl FnOnce(QuorumConfig) -> QuorumConfig) -> Self {
        let clock = TokioClock::new();
        let ahead = |at: usize| u64::try_from(at).unwrap() * 3_000_000;
        let nodes: Vec<_> = (0..count).map(|at| Node::new(clock, ahead(at))).collect();
        let store = open(&nodes, clock, change);
        Self { nodes, store, clock }
    }

    /// Another process's store on the same nodes.
    pub(crate) fn another(&self, change: impl FnOnce(QuorumConfig) -> QuorumConfig) -> QuorumStore {
        open(&self.nodes, self.clock, change)
    }

    /// Delivers every hung request, and waits for every straggler.
    pub(crate) async fn mend(&self) {
        self.nodes.iter().for_each(|node| node.up());
        self.store.settled().await;
        assert_eq!(self.store.remembered(), 0, "what is answered is forgotten");
    }

    /// How many nodes have the lease.
    pub(crate) async fn copies(&self, id: &LeaseId) -> usize {
        let mut copies = 0;
        for node in &self.nodes {
            copies += usize::from(node.has(id).await);
        }
        copies
    }
}

fn open(
    nodes: &[Node],
    clock: TokioClock,
    change: impl FnOnce(QuorumConfig) -> QuorumConfig,
) -> QuorumStore {
    let mut config = QuorumConfig::new().clock(Arc::new(clock));
    for (at, node) in nodes.iter().enumerate() {
        config = config.node(format!("n{at}"), Faulty(node.clone()));
    }
    change(config).build().unwrap()
}

pub(crate) fn key() -> Key {
    Key::new("job").unwrap()
}

pub(crate) fn id(name: &str) -> LeaseId {
    LeaseId::foreign(name.as_bytes()).unwrap()
}

pub(crate) fn claims() -> Claims {
    Claims::one(key(), Mode::Exclusive)
}

pub(crate) fn ttl(term: Duration) -> Ttl {
    Ttl::new(term).unwrap()
}

pub(crate) fn ask(id: &LeaseId) -> AcquireRequest {
    AcquireRequest::new(id.clone(), claims(), ttl(TERM))
}

pub(crate) fn renewal(id: &LeaseId) -> RenewEntry {
    RenewEntry::extend(id.clone(), claims(), ttl(TERM))
}

pub(crate) fn renew(id: &LeaseId) -> RenewRequest {
    RenewRequest::new(vec![renewal(id)])
}

pub(crate) fn release(id: &LeaseId) -> ReleaseRequest {
    ReleaseRequest::new(vec![ReleaseEntry::new(id.clone(), [key()])])
}

/// The token of a grant, which must succeed.
pub(crate) async fn grant(store: &impl Store, id: &LeaseId) -> Option<FencingToken> {
    match store.acquire(&ask(id)).await {
        Ok(AcquireReply::Granted(granted)) => granted.token,
        other => panic!("{id} was not granted: {other:?}"),
    }
}

/// Three nodes, all of which have the lease.
pub(crate) async fn held() -> (Cluster, LeaseId) {
    let (cluster, own) = (Cluster::new(3, false), id("own"));
    grant(&cluster.store, &own).await;
    cluster.store.settled().await;
    (cluster, own)
}

pub(crate) async fn refused(store: &impl Store, id: &LeaseId) {
    let answer = store.acquire(&ask(id)).await;
    assert!(matches!(answer, Ok(AcquireReply::Refused(_))), "{answer:?}");
}

pub(crate) async fn renewed(store: &impl Store, id: &LeaseId) -> RenewOutcome {
    match store.renew(&renew(id)).await {
        Ok(mut renewed) => renewed.leases.remove(0),
        Err(error) => RenewOutcome::Failed(error),
    }
}

pub(crate) async fn released(store: &impl Store, id: &LeaseId) -> ReleaseOutcome {
    match store.release(&release(id)).await {
        Ok(mut released) => released.leases.remove(0),
        Err(error) => ReleaseOutcome::Failed(error),
    }
}
