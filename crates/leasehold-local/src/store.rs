use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::stream;
use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, Clock, EvictReply, EvictRequest, EvictScope,
    Health, Key, Level, ListReply, ListRequest, Now, ReleaseOutcome, ReleaseReply, ReleaseRequest,
    RenewOutcome, RenewReply, RenewRequest, Request, Result, Store, Table, Wakeups,
};
use leasehold_driver::SystemClock;
use tokio::sync::broadcast::{self, error::RecvError};

const NAME: &str = "local";

/// How many hints a slow waiter may lag behind before a single hint replaces them.
const HINTS: usize = 256;

/// How often an operation also removes what ended long ago.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// A store inside this process. Clones share their leases.
#[derive(Clone)]
pub struct LocalStore(Arc<Inner>);

struct Inner {
    table: Mutex<Swept>,
    clock: Arc<dyn Clock>,
    freed: broadcast::Sender<Key>,
}

struct Swept {
    table: Table,
    /// When the table next forgets what ended long ago, which takes a look at every key.
    next: Duration,
}

impl LocalStore {
    /// An empty store on the machine's clocks.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock::new()))
    }

    /// An empty store on another clock, for tests that do not sleep.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        let table = Mutex::new(Swept { table: Table::default(), next: Duration::ZERO });
        Self(Arc::new(Inner { table, clock, freed: broadcast::Sender::new(HINTS) }))
    }

    /// The one store of this process, which the URL `local:` names.
    pub fn shared() -> Self {
        static SHARED: OnceLock<LocalStore> = OnceLock::new();
        SHARED.get_or_init(Self::new).clone()
    }

    /// A copy of the table, for tests that look behind the [`Store`] trait.
    pub fn snapshot(&self) -> Table {
        self.table().table.clone()
    }

    fn table(&self) -> MutexGuard<'_, Swept> {
        // A panic cannot leave the table half changed: only code that does not panic changes it.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the table decide about a request that is admitted.
    async fn carry_out<T>(
        &self,
        operation: &'static str,
        request: &impl Request,
        decide: impl FnOnce(&mut Table, Now) -> Result<T>,
    ) -> Result<T> {
        let decided = async {
            let mut swept = self.table();
            let now = Now::read(&*self.0.clock);
            if swept.next <= now.boot {
                swept.table.forget(now);
                swept.next = now.boot + SWEEP_EVERY;
            }
            decide(&mut swept.table, now)
        };
        self.capabilities().carry_out(operation, request, decided).await
    }

    fn wake(&self, keys: impl IntoIterator<Item = Key>) {
        if self.0.freed.receiver_count() > 0 {
            for key in keys {
                // Having no listener is not a failure: a wake-up is a hint.
                self.0.freed.send(key).unwrap_or_default();
            }
        }
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
        Capabilities::all(NAME)
    }

    async fn check(&self) -> Result<Health> {
        let mut health = Health::new(Level::Fenced);
        health.schema = Some(1);
        health.clock_difference_us = Some(0);
        // Its leases and its clients end together, so it forgets nothing that a client knows.
        health.durable = true;
        health.identity = Some(format!("local:{:p}", Arc::as_ptr(&self.0)));
        Ok(health)
    }

    async fn prepare(&self) -> Result<()> {
        Ok(())
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.carry_out("acquire", request, |table, now| table.acquire(request, now)).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        let renewed =
            self.carry_out("renew", request, |table, now| Ok(table.renew(request, now))).await?;
        for (lease, outcome) in request.leases().iter().zip(&renewed.leases) {
            if matches!(outcome, RenewOutcome::Lost(_)) {
                self.wake(lease.claims().keys().cloned());
            }
        }
        Ok(renewed)
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        let released = self
            .carry_out("release", request, |table, now| Ok(table.release(request, now)))
            .await?;
        for (lease, outcome) in request.leases().iter().zip(&released.leases) {
            if lease.wakes() && !matches!(outcome, ReleaseOutcome::Kept(_)) {
                self.wake(lease.keys().iter().cloned());
            }
        }
        Ok(released)
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.carry_out("list", request, |table, now| table.list(request, now)).await
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        let evicted =
            self.carry_out("evict", request, |table, now| Ok(table.evict(request, now))).await?;
        if matches!(request.scope(), EvictScope::Exactly { .. }) {
            self.wake(evicted.removed.iter().map(|target| target.key.clone()));
        }
        Ok(evicted)
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        let keys: Arc<[Key]> = keys.into();
        let freed = self.0.freed.subscribe();
        let hints = stream::unfold((freed, keys), |(mut freed, keys)| async move {
            loop {
                match freed.recv().await {
                    Ok(key) if keys.contains(&key) => return Some((key, (freed, keys))),
                    Ok(_) => {}
                    // A missed hint may have been for this key.
                    Err(RecvError::Lagged(_)) => {
                        return Some((keys.first()?.clone(), (freed, keys)));
                    }
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        Ok(Wakeups::new(hints))
    }
}
