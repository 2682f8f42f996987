use std::fmt;
use std::sync::{Arc, OnceLock};

use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, Clock, EvictReply, EvictRequest, EvictScope,
    Health, Key, Level, ListReply, ListRequest, ReleaseOutcome, ReleaseReply, ReleaseRequest,
    RenewOutcome, RenewReply, RenewRequest, Request, Result, Store, Table, Wakeups,
};
use leasehold_driver::SystemClock;

use crate::locks::{LocalLocks, StoreTable};

const NAME: &str = "local";

/// A store inside this process. Clones share their leases.
#[derive(Clone)]
pub struct LocalStore(Arc<StoreTable>);

impl LocalStore {
    /// An empty store on the machine's clocks.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock::new()))
    }

    /// An empty store on another clock, for tests that do not sleep.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(StoreTable::new(clock)))
    }

    /// A store over the table of these locks: a lease excludes a lock of the same key, and a lock excludes a lease. A lock
    /// of the whole table excludes every lease.
    ///
    /// The store is fair: a request that is refused keeps its place among the waiters of its keys, by its claims, as long
    /// as somebody is [subscribed](Store::subscribe) to these keys. When it is its turn, the keys stay reserved for it for
    /// 100 ms.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
    /// use leasehold_core::{AcquireReply, AcquireRequest, Claims, Key, LeaseId, Mode, Store, Ttl};
    /// use leasehold_local::LocalStore;
    /// use leasehold_local::locks::{LocalLocks, Options};
    /// use std::time::Duration;
    ///
    /// let locks = LocalLocks::<Key>::new();
    /// let store = LocalStore::over(&locks);
    /// let guard = locks.try_acquire(Key::new("job")?, &Options::new()).expect("nobody has it");
    /// let claims = Claims::one(Key::new("job")?, Mode::Exclusive);
    /// let ttl = Ttl::new(Duration::from_secs(30))?;
    /// let reply = store.acquire(&AcquireRequest::new(LeaseId::mint()?, claims, ttl)).await?;
    /// assert!(matches!(reply, AcquireReply::Refused(_)));
    /// # drop(guard);
    /// # Ok(()) }
    /// ```
    pub fn over(locks: &LocalLocks<Key>) -> Self {
        Self(Arc::new(StoreTable::over(locks)))
    }

    /// The one store of this process, which the URL `local:` names.
    pub fn shared() -> Self {
        static SHARED: OnceLock<LocalStore> = OnceLock::new();
        SHARED.get_or_init(Self::new).clone()
    }

    /// A copy of the leases, for tests that look behind the [`Store`] trait.
    pub fn snapshot(&self) -> Table {
        self.0.snapshot()
    }

    /// Lets the table decide about a request that is admitted.
    async fn carry_out<T>(
        &self,
        operation: &'static str,
        request: &impl Request,
        decide: impl FnOnce(&StoreTable) -> Result<T>,
    ) -> Result<T> {
        let decided = async { decide(&self.0) };
        self.capabilities().carry_out(operation, request, || decided).await
    }
}

impl Default for LocalStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LocalStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalStore")
    }
}

impl Store for LocalStore {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::all(NAME);
        can.fair = self.0.is_fair();
        can
    }

    async fn check(&self) -> Result<Health> {
        let mut health = Health::new(Level::Fenced);
        health.schema = Some(1);
        health.clock_difference_us = Some(0);
        // Its leases and its clients end together, so it forgets nothing that a client knows.
        health.durable = true;
        health.identity = Some(format!("local:{:p}", self.0.address()));
        Ok(health)
    }

    async fn prepare(&self) -> Result<()> {
        Ok(())
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.carry_out("acquire", request, |table| table.acquire(request)).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        let renewed = self.carry_out("renew", request, |table| Ok(table.renew(request))).await?;
        for (lease, outcome) in request.leases().iter().zip(&renewed.leases) {
            if matches!(outcome, RenewOutcome::Lost(_)) {
                self.0.wake(lease.claims().keys().cloned());
            }
        }
        Ok(renewed)
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        let released =
            self.carry_out("release", request, |table| Ok(table.release(request))).await?;
        for (lease, outcome) in request.leases().iter().zip(&released.leases) {
            if lease.wakes() && !matches!(outcome, ReleaseOutcome::Kept(_)) {
                self.0.wake(lease.keys().iter().cloned());
            }
        }
        Ok(released)
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.carry_out("list", request, |table| table.list(request)).await
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        self.carry_out("evict", request, |table| match request.scope() {
            EvictScope::Expired(filter) => Ok(table.purge(filter, request.limit())),
            EvictScope::Exactly { targets, .. } => {
                let evicted = table.evict(targets, request);
                table.wake(evicted.removed.iter().map(|target| target.key.clone()));
                Ok(evicted)
            }
        })
        .await
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        Ok(self.0.subscribe(keys))
    }
}
