//! A real local store whose replies can be lost, delayed or withheld, on tokio's paused time.

pub(crate) mod blocking;
pub(crate) mod log;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::inspect::{
    Capabilities, EvictReply, EvictRequest, EvictTarget, Filter, Health, ListReply, ListRequest,
    Record,
};
use leasehold::store::{Clock, Store, SystemClock, TokioClock};
use leasehold::{Effect, Error, Guard, Key, LeaseId, LocalStore, Locker, ManualClock, Result};
use leasehold_core::{
    AcquireReply, AcquireRequest, Random, RefusalReason, Refused, ReleaseEntry, ReleaseReply,
    ReleaseRequest, RenewEntry, RenewOutcome, RenewReply, RenewRequest, Wakeups,
};
use tokio::sync::Notify;

/// Longer than anything takes.
const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// What happens to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    Fine,
    /// It acts, and its reply is lost.
    LostReply,
    /// It does not act, but nobody knows.
    LostRequest,
    /// It does not act, and reports it.
    Refused,
    /// It can never succeed.
    Denied,
    /// The server can no longer do it.
    Incompatible,
    /// It takes this long to arrive.
    SlowRequest(Duration),
    /// It takes up to this long to arrive.
    Jitter(Duration),
    /// It acts at once, and its reply takes this long.
    SlowReply(Duration),
    /// It never arrives.
    Hang,
    /// It takes this long to arrive, and its reply is lost.
    Unheard(Duration),
    /// It does not act, and after this long nobody knows.
    LostLate(Duration),
    /// It takes this long to arrive, even if nobody waits for its reply.
    Detached(Duration),
    /// The call succeeds, but each of its leases failed.
    EntriesFailed,
    /// Another operation on the key is in progress.
    Busy,
    /// Another client holds the key, and the store cannot report who.
    Unnamed,
    /// Another client holds the key, whose releases wake nobody: it is to be polled this often.
    Foreign(Duration),
    /// The machine sleeps for this long meanwhile; on a manual clock.
    Asleep(Duration),
    /// The store panics.
    Panic,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sent {
    Acquire(LeaseId),
    Renew(Vec<LeaseId>),
    Release(Vec<LeaseId>),
    Subscribe,
    Check,
    /// At most this many.
    Evict(usize),
}

/// A local store behind an unreliable network.
#[derive(Debug, Clone)]
pub(crate) struct Flaky(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: LocalStore,
    clock: Arc<dyn Clock>,
    manual: Option<ManualClock>,
    can: Capabilities,
    acquires: Mutex<VecDeque<Fault>>,
    renews: Mutex<VecDeque<Fault>>,
    releases: Mutex<VecDeque<Fault>>,
    checks: Mutex<VecDeque<Fault>>,
    subscribes: Mutex<VecDeque<Fault>>,
    looks: Mutex<VecDeque<Fault>>,
    asked_at: Mutex<Vec<Duration>>,
    renewals: Mutex<Vec<RenewEntry>>,
    down: Mutex<Option<Fault>>,
    failure: Mutex<Option<Error>>,
    log: Mutex<Vec<Sent>>,
    logged: Notify,
}

impl Flaky {
    pub(crate) fn new() -> Self {
        Self::that_can(|_| {})
    }

    pub(crate) fn with_push(notifications: bool) -> Self {
        Self::that_can(|can| can.notifications = notifications)
    }

    /// A store with fewer features.
    pub(crate) fn that_can(change: impl FnOnce(&mut Capabilities)) -> Self {
        Self::on(Arc::new(TokioClock::new()), None, change)
    }

    /// A store for tests with several runtimes, which have no common time to pause.
    pub(crate) fn in_real_time() -> Self {
        Self::on(Arc::new(SystemClock::new()), None, |_| {})
    }

    pub(crate) fn on_manual_clock(clock: &ManualClock) -> Self {
        Self::on(Arc::new(clock.clone()), Some(clock.clone()), |_| {})
    }

    fn on(
        clock: Arc<dyn Clock>,
        manual: Option<ManualClock>,
        change: impl FnOnce(&mut Capabilities),
    ) -> Self {
        let store = LocalStore::with_clock(Arc::clone(&clock));
        let mut can = store.capabilities();
        change(&mut can);
        Self(Arc::new(Inner {
            store,
            clock,
            manual,
            can,
            acquires: Mutex::default(),
            renews: Mutex::default(),
            releases: Mutex::default(),
            checks: Mutex::default(),
            subscribes: Mutex::default(),
            looks: Mutex::default(),
            asked_at: Mutex::default(),
            renewals: Mutex::default(),
            down: Mutex::default(),
            failure: Mutex::default(),
            log: Mutex::default(),
            logged: Notify::new(),
        }))
    }

    pub(crate) fn locks(&self) -> Locker {
        Locker::builder(self.clone()).clock(Arc::clone(&self.0.clock)).build()
    }

    /// A `Locker` of another process on the same state, with a good network.
    pub(crate) fn others(&self) -> Locker {
        Locker::builder(self.0.store.clone()).clock(Arc::clone(&self.0.clock)).build()
    }

    pub(crate) fn now(&self) -> Duration {
        self.0.clock.now()
    }

    pub(crate) fn on_acquire(&self, faults: impl IntoIterator<Item = Fault>) {
        self.0.acquires.lock().unwrap().extend(faults);
    }

    pub(crate) fn on_renew(&self, faults: impl IntoIterator<Item = Fault>) {
        self.0.renews.lock().unwrap().extend(faults);
    }

    pub(crate) fn on_release(&self, faults: impl IntoIterator<Item = Fault>) {
        self.0.releases.lock().unwrap().extend(faults);
    }

    pub(crate) fn on_check(&self, faults: impl IntoIterator<Item = Fault>) {
        self.0.checks.lock().unwrap().extend(faults);
    }

    pub(crate) fn on_subscribe(&self, faults: impl IntoIterator<Item = Fault>) {
        self.0.subscribes.lock().unwrap().extend(faults);
    }

    /// What happens to listings and evictions.
    pub(crate) fn on_look(&self, faults: impl IntoIterator<Item = Fault>) {
        self.0.looks.lock().unwrap().extend(faults);
    }

    /// When each acquire was sent.
    pub(crate) fn asked_at(&self) -> Vec<Duration> {
        self.0.asked_at.lock().unwrap().clone()
    }

    /// Every renewal that was sent.
    pub(crate) fn renewals(&self) -> Vec<RenewEntry> {
        self.0.renewals.lock().unwrap().clone()
    }

    /// The next acquire fails with this.
    pub(crate) fn fail_acquire(&self, error: Error) {
        *self.0.failure.lock().unwrap() = Some(error);
    }

    /// Releases past the front end.
    pub(crate) async fn release_directly(&self, lease: ReleaseEntry) {
        self.0.store.release(&ReleaseRequest::new(vec![lease])).await.unwrap();
    }

    /// Ends when `count` acquires were sent.
    pub(crate) async fn until_acquires(&self, count: usize) {
        let sent = |log: &[Sent]| log.iter().filter(|s| matches!(s, Sent::Acquire(_))).count();
        self.until(|log| sent(log) >= count).await;
    }

    /// From now on this happens to every request that changes leases, until `up`.
    pub(crate) fn down(&self, fault: Fault) {
        *self.0.down.lock().unwrap() = Some(fault);
    }

    pub(crate) fn up(&self) {
        *self.0.down.lock().unwrap() = None;
    }

    pub(crate) fn log(&self) -> Vec<Sent> {
        self.0.log.lock().unwrap().clone()
    }

    pub(crate) fn acquires(&self) -> Vec<LeaseId> {
        let pick = |sent| match sent {
            Sent::Acquire(id) => Some(id),
            _ => None,
        };
        self.log().into_iter().filter_map(pick).collect()
    }

    pub(crate) fn renews(&self) -> Vec<Vec<LeaseId>> {
        let pick = |sent| match sent {
            Sent::Renew(ids) => Some(ids),
            _ => None,
        };
        self.log().into_iter().filter_map(pick).collect()
    }

    /// The limit of each eviction that was sent.
    pub(crate) fn evictions(&self) -> Vec<usize> {
        let pick = |sent| match sent {
            Sent::Evict(limit) => Some(limit),
            _ => None,
        };
        self.log().into_iter().filter_map(pick).collect()
    }

    pub(crate) fn released(&self, id: &LeaseId) -> usize {
        let names = |sent: &Sent| matches!(sent, Sent::Release(ids) if ids.contains(id));
        self.log().iter().filter(|sent| names(sent)).count()
    }

    /// Ends when the log satisfies `wanted`; fails after an hour of test time.
    pub(crate) async fn until(&self, wanted: impl Fn(&[Sent]) -> bool) {
        let logged = self.logged(wanted);
        tokio::time::timeout(HOUR, logged).await.expect("what was waited for was never sent");
    }

    async fn logged(&self, wanted: impl Fn(&[Sent]) -> bool) {
        loop {
            let logged = self.0.logged.notified();
            tokio::pin!(logged);
            logged.as_mut().enable();
            if wanted(&self.log()) {
                return;
            }
            logged.await;
        }
    }

    /// The live records of `key`, read past the front end.
    pub(crate) async fn records(&self, key: &str) -> Vec<Record> {
        let filter = Filter::default().with_key(Key::new(key).unwrap());
        self.0.store.list(&ListRequest::new(filter)).await.unwrap().records
    }

    pub(crate) async fn is_free(&self, key: &str) -> bool {
        self.records(key).await.is_empty()
    }

    /// Ends when nobody holds `key`; fails after an hour of test time.
    pub(crate) async fn until_free(&self, key: &str) {
        let mut freed = self.0.store.subscribe(&[Key::new(key).unwrap()]).await.unwrap();
        let until = self.now() + HOUR;
        while !self.is_free(key).await {
            assert!(self.now() < until, "{key} was never freed");
            // No event reports that a term has ended.
            tokio::select! {
                _ = freed.next() => {}
                () = tokio::time::sleep(ms(100)) => {}
            }
        }
    }

    /// Ends the lease as an operator would.
    pub(crate) async fn evict(&self, key: &str, reason: &str) {
        let records = self.records(key).await;
        let targets = records.iter().map(EvictTarget::of).collect();
        let reason = Some(reason.try_into().unwrap());
        self.0.store.evict(&EvictRequest::exactly(targets, reason)).await.unwrap();
    }

    fn note(&self, sent: Sent) {
        self.0.log.lock().unwrap().push(sent);
        self.0.logged.notify_waiters();
    }

    fn fault(&self, faults: &Mutex<VecDeque<Fault>>) -> Fault {
        let down = *self.0.down.lock().unwrap();
        down.or_else(|| faults.lock().unwrap().pop_front()).unwrap_or(Fault::Fine)
    }

    async fn through<T: Send + 'static>(
        fault: Fault,
        request: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let gone = |effect| Err(Error::unavailable(effect, "the network failed"));
        match fault {
            Fault::Fine
            | Fault::EntriesFailed
            | Fault::Busy
            | Fault::Unnamed
            | Fault::Foreign(_)
            | Fault::Asleep(_) => request.await,
            Fault::LostReply => {
                request.await?;
                gone(Effect::Unknown)
            }
            Fault::LostRequest => gone(Effect::Unknown),
            Fault::LostLate(pause) => {
                tokio::time::sleep(pause).await;
                gone(Effect::Unknown)
            }
            Fault::Refused => gone(Effect::NotApplied),
            Fault::Denied => Err(Error::denied("the password is wrong")),
            Fault::Incompatible => Err(Error::incompatible("the server has no tables any more")),
            Fault::SlowRequest(pause) => {
                tokio::time::sleep(pause).await;
                request.await
            }
            Fault::Jitter(most) => {
                tokio::time::sleep(Random::seeded().up_to(most)).await;
                request.await
            }
            Fault::SlowReply(pause) => {
                let reply = request.await;
                tokio::time::sleep(pause).await;
                reply
            }
            Fault::Hang => std::future::pending().await,
            Fault::Unheard(pause) => {
                tokio::time::sleep(pause).await;
                request.await?;
                std::future::pending().await
            }
            Fault::Detached(pause) => {
                let task = spawn(async move {
                    tokio::time::sleep(pause).await;
                    request.await
                });
                task.await.unwrap()
            }
            Fault::Panic => panic!("planted"),
        }
    }
}

impl Store for Flaky {
    fn capabilities(&self) -> Capabilities {
        self.0.can
    }

    async fn check(&self) -> Result<Health> {
        self.note(Sent::Check);
        let fault = self.0.checks.lock().unwrap().pop_front().unwrap_or(Fault::Fine);
        let store = self.0.store.clone();
        Self::through(fault, async move { store.check().await }).await
    }

    async fn prepare(&self) -> Result<()> {
        self.0.store.prepare().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.note(Sent::Acquire(request.id().clone()));
        self.0.asked_at.lock().unwrap().push(self.now());
        if let Some(error) = self.0.failure.lock().unwrap().take() {
            return Err(error);
        }
        let fault = self.fault(&self.0.acquires);
        let why = match fault {
            Fault::Busy => Some(RefusalReason::Busy),
            Fault::Unnamed | Fault::Foreign(_) => Some(RefusalReason::Held(None)),
            _ => None,
        };
        if let Some(why) = why {
            let key = request.claims().first().key.clone();
            let mut refused = Refused::new(key, why, None);
            if let Fault::Foreign(within) = fault {
                refused.poll_within = Some(within);
            }
            return Ok(AcquireReply::Refused(refused));
        }
        let (store, request) = (self.0.store.clone(), request.clone());
        Self::through(fault, async move { store.acquire(&request).await }).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        self.note(Sent::Renew(request.leases().iter().map(|l| l.id().clone()).collect()));
        self.0.renewals.lock().unwrap().extend_from_slice(request.leases());
        let fault = self.fault(&self.0.renews);
        if fault == Fault::EntriesFailed {
            let failed = RenewOutcome::Failed(Error::unavailable(Effect::NotApplied, "busy"));
            return Ok(RenewReply::new(vec![failed; request.leases().len()]));
        }
        let (store, request) = (self.0.store.clone(), request.clone());
        Self::through(fault, async move { store.renew(&request).await }).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        self.note(Sent::Release(request.leases().iter().map(|l| l.id().clone()).collect()));
        let (store, request) = (self.0.store.clone(), request.clone());
        let request = async move { store.release(&request).await };
        Self::through(self.fault(&self.0.releases), request).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        let fault = self.0.looks.lock().unwrap().pop_front().unwrap_or(Fault::Fine);
        let (store, request) = (self.0.store.clone(), request.clone());
        Self::through(fault, async move { store.list(&request).await }).await
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        self.note(Sent::Evict(request.limit()));
        let fault = self.0.looks.lock().unwrap().pop_front().unwrap_or(Fault::Fine);
        if let (Fault::Asleep(time), Some(clock)) = (fault, &self.0.manual) {
            clock.advance(time);
        }
        let (store, request) = (self.0.store.clone(), request.clone());
        Self::through(fault, async move { store.evict(&request).await }).await
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        self.note(Sent::Subscribe);
        if !self.0.can.notifications {
            return Ok(Wakeups::none());
        }
        let fault = self.fault(&self.0.subscribes);
        let (store, keys) = (self.0.store.clone(), keys.to_vec());
        Self::through(fault, async move { store.subscribe(&keys).await }).await
    }
}

/// Takes `key` as another process would, without renewing it.
pub(crate) async fn taken(store: &Flaky, key: &str, ttl: Duration) -> Guard {
    let keepalive = leasehold::Keepalive::Off;
    store.others().lock(key).ttl(ttl).keepalive(keepalive).await.unwrap()
}

/// The longest a default-drift deadline may lag behind the whole term.
pub(crate) fn drift(ttl: Duration) -> Duration {
    ttl / 100 + ms(2)
}

/// A caller of its own.
#[expect(clippy::disallowed_methods, reason = "a test's own task")]
pub(crate) fn spawn<T: Send + 'static>(
    caller: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(caller)
}
