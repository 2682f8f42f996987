//! A real local store whose replies can be lost, delayed or withheld, on tokio's paused time.

pub(crate) mod blocking;
pub(crate) mod log;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold::inspect::{Capabilities, EvictRequest, EvictTarget, Filter, ListRequest, Record};
use leasehold::store::{Clock, Store, SystemClock, TokioClock};
use leasehold::{Guard, Key, LocalStore, Locker, ManualClock, Result};
use leasehold_core::{ReleaseEntry, ReleaseRequest, Wakeups};
use leasehold_testkit::faulty::{Hook, Reply, Request, Script};

pub(crate) use leasehold_testkit::faulty::{Fault, Faulty, Sent};

/// Longer than anything takes.
const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A local store behind an unreliable network.
#[derive(Debug, Clone)]
pub(crate) struct Flaky(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: LocalStore,
    clock: Arc<dyn Clock>,
    can: Capabilities,
    script: Script,
}

impl Deref for Flaky {
    type Target = Script;

    fn deref(&self) -> &Script {
        &self.0.script
    }
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
        Self::on(Arc::new(TokioClock::new()), change)
    }

    /// A store for tests with several runtimes, which have no common time to pause.
    pub(crate) fn in_real_time() -> Self {
        Self::on(Arc::new(SystemClock::new()), |_| {})
    }

    pub(crate) fn on_manual_clock(clock: &ManualClock) -> Self {
        Self::on(Arc::new(clock.clone()), |_| {})
    }

    fn on(clock: Arc<dyn Clock>, change: impl FnOnce(&mut Capabilities)) -> Self {
        let store = LocalStore::with_clock(Arc::clone(&clock));
        let mut can = store.capabilities();
        change(&mut can);
        Self(Arc::new(Inner { store, clock, can, script: Script::default() }))
    }

    pub(crate) fn locks(&self) -> Locker {
        Locker::builder(Faulty(self.clone())).clock(Arc::clone(&self.0.clock)).build()
    }

    /// A `Locker` of another process on the same state, with a good network.
    pub(crate) fn others(&self) -> Locker {
        Locker::builder(self.0.store.clone()).clock(Arc::clone(&self.0.clock)).build()
    }

    pub(crate) fn now(&self) -> Duration {
        self.0.clock.now()
    }

    /// Releases past the front end.
    pub(crate) async fn release_directly(&self, lease: ReleaseEntry) {
        self.0.store.release(&ReleaseRequest::new(vec![lease])).await.unwrap();
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
}

impl Hook for Flaky {
    fn store(&self) -> impl Store {
        self.0.store.clone()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.can
    }

    async fn handle(&self, request: Request) -> Result<Reply> {
        if matches!(request, Request::Subscribe(_)) && !self.0.can.notifications {
            self.note(&request);
            return Ok(Reply::Subscribe(Wakeups::none()));
        }
        let store = self.0.store.clone();
        self.carry(request, |request| request.send_to(store)).await
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
