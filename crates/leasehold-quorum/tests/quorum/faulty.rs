//! Real local stores as nodes, each behind a connection that can fail. All of it runs on tokio's paused time: no
//! sleep here, or in the tests that use this, waits for anything but the events before it.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, BoxFuture, Capabilities, Claims, Clock, Effect, Error,
    EvictReply, EvictRequest, FencingToken, Filter, Health, Key, LeaseId, ListReply, ListRequest,
    Mode, Record, ReleaseEntry, ReleaseOutcome, ReleaseReply, ReleaseRequest, RenewEntry,
    RenewOutcome, RenewReply, RenewRequest, Result, Store, Ttl, Wakeups,
};
use leasehold_driver::TokioClock;
use leasehold_local::LocalStore;
use leasehold_quorum::{QuorumConfig, QuorumStore};
use tokio::sync::watch;

pub(crate) const TERM: Duration = Duration::from_secs(30);

/// The limit of a node at that term.
pub(crate) const LIMIT: Duration = Duration::from_millis(500);

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// What happens to a request to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    Up,
    /// It fails at once and does not act.
    Down,
    /// It arrives when the node is mended, and not before; not for a [`next`](Node::next) request.
    Hung,
    /// It arrives after this long.
    SlowRequest(Duration),
    /// It acts at once, and its reply takes this long.
    SlowReply(Duration),
    /// The node grants nothing for this long after its start.
    Quarantined(Duration),
}

/// A request to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    Acquire(LeaseId),
    Renew(Vec<LeaseId>),
    Release(Vec<LeaseId>),
    Other,
}

/// One node.
#[derive(Clone)]
pub(crate) struct Node(Arc<Inner>);

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node of the test")
    }
}

struct Inner {
    /// Replaced by a restart that forgets.
    store: Mutex<LocalStore>,
    clock: Arc<Skewed>,
    fault: watch::Sender<Fault>,
    /// What happens to the next requests, before `fault`.
    next: Mutex<Vec<Fault>>,
    /// Draws a fault for each request without one.
    draw: Mutex<Option<Draw>>,
    asked: Mutex<Vec<Asked>>,
    acquires: Mutex<Vec<AcquireRequest>>,
    health: Mutex<Option<Health>>,
    /// Changes the pages that it returns.
    mislead: Mutex<Option<Mislead>>,
    /// Until when it grants nothing.
    quarantine: Mutex<Duration>,
}

pub(crate) type Mislead = Arc<dyn Fn(ListReply, &ListRequest) -> Result<ListReply> + Send + Sync>;

pub(crate) type Draw = Box<dyn FnMut() -> Fault + Send>;

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
        let clock = Arc::new(Skewed { clock, ahead });
        let store = LocalStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
        Self(Arc::new(Inner {
            store: Mutex::new(store),
            clock,
            fault: watch::Sender::new(Fault::Up),
            next: Mutex::default(),
            draw: Mutex::default(),
            asked: Mutex::default(),
            acquires: Mutex::default(),
            health: Mutex::default(),
            mislead: Mutex::default(),
            quarantine: Mutex::default(),
        }))
    }

    pub(crate) fn set(&self, fault: Fault) {
        self.0.fault.send_replace(fault);
    }

    /// Sets what happens to the next requests, in order.
    pub(crate) fn next(&self, faults: &[Fault]) {
        assert!(!faults.contains(&Fault::Hung), "a node that is up lets it through at once");
        self.0.next.lock().unwrap().extend(faults);
    }

    /// Every request without a [`next`](Self::next) one draws its fault.
    pub(crate) fn draw(&self, draw: Option<Draw>) {
        *self.0.draw.lock().unwrap() = draw;
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

    /// As [`forget`](Self::forget), and grants nothing for this long.
    pub(crate) fn restart(&self, quarantine: Duration) {
        self.forget();
        *self.0.quarantine.lock().unwrap() = self.0.clock.now() + quarantine;
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
    pub(crate) fn store(&self) -> LocalStore {
        self.0.store.lock().unwrap().clone()
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.0.asked.lock().unwrap().clone()
    }

    /// Every acquire that it received.
    pub(crate) fn acquires(&self) -> Vec<AcquireRequest> {
        self.0.acquires.lock().unwrap().clone()
    }

    pub(crate) fn forget_asked(&self) {
        self.0.asked.lock().unwrap().clear();
        self.0.acquires.lock().unwrap().clear();
    }

    /// The live records, past the connection.
    pub(crate) async fn records(&self) -> Vec<Record> {
        self.store().list(&ListRequest::new(Filter::default())).await.unwrap().records
    }

    pub(crate) async fn has(&self, id: &LeaseId) -> bool {
        self.records().await.iter().any(|record| record.id.as_ref() == Some(id))
    }

    async fn through<T, F: Future<Output = Result<T>>>(
        &self,
        asked: Asked,
        act: impl FnOnce(LocalStore) -> F,
    ) -> Result<T> {
        let is_acquire = matches!(asked, Asked::Acquire(_));
        self.0.asked.lock().unwrap().push(asked);
        let next = {
            let mut next = self.0.next.lock().unwrap();
            if next.is_empty() { None } else { Some(next.remove(0)) }
        };
        let drawn = || self.0.draw.lock().unwrap().as_mut().map(|draw| draw());
        let fault = next.or_else(drawn).unwrap_or_else(|| *self.0.fault.borrow());
        match fault {
            Fault::Up | Fault::SlowReply(_) => {}
            Fault::Down => return Err(Error::unavailable(Effect::NotApplied, "the node is down")),
            Fault::Hung => {
                let mut fault = self.0.fault.subscribe();
                fault.wait_for(|fault| *fault == Fault::Up).await.unwrap();
            }
            Fault::SlowRequest(time) => tokio::time::sleep(time).await,
            Fault::Quarantined(rest) if is_acquire => return Err(quarantined(rest)),
            Fault::Quarantined(_) => {}
        }
        let rest = self.0.quarantine.lock().unwrap().saturating_sub(self.0.clock.now());
        if is_acquire && !rest.is_zero() {
            return Err(quarantined(rest));
        }
        let reply = act(self.store()).await;
        if let Fault::SlowReply(time) = fault {
            tokio::time::sleep(time).await;
        }
        reply
    }
}

fn quarantined(rest: Duration) -> Error {
    Error::unavailable(Effect::NotApplied, "the node is in quarantine").with_retry_after(rest)
}

impl Store for Node {
    fn capabilities(&self) -> Capabilities {
        self.store().capabilities()
    }

    async fn check(&self) -> Result<Health> {
        let health = self.0.health.lock().unwrap().clone();
        self.through(Asked::Other, |store| async move {
            match health {
                Some(health) => Ok(health),
                None => store.check().await,
            }
        })
        .await
    }

    async fn prepare(&self) -> Result<()> {
        self.through(Asked::Other, |store| async move { store.prepare().await }).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        let asked = Asked::Acquire(request.id().clone());
        self.0.acquires.lock().unwrap().push(request.clone());
        self.through(asked, |store| async move { store.acquire(request).await }).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        let ids = request.leases().iter().map(|lease| lease.id().clone()).collect();
        self.through(Asked::Renew(ids), |store| async move { store.renew(request).await }).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        let ids = request.leases().iter().map(|lease| lease.id().clone()).collect();
        self.through(Asked::Release(ids), |store| async move { store.release(request).await }).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        let mislead = self.0.mislead.lock().unwrap().clone();
        self.through(Asked::Other, |store| async move {
            match mislead {
                None => store.list(request).await,
                Some(mislead) => {
                    let first =
                        ListRequest::new(request.filter().clone()).with_limit(request.limit());
                    mislead(store.list(&first).await?, request)
                }
            }
        })
        .await
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        self.through(Asked::Other, |store| async move { store.evict(request).await }).await
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        self.through(Asked::Other, |store| async move { store.subscribe(keys).await }).await
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
        self.nodes.iter().for_each(|node| node.set(Fault::Up));
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
        config = config.node(format!("n{at}"), node.clone());
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
