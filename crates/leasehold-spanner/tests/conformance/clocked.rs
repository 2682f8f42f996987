//! Spanner on a clock of the tests.

use std::sync::Arc;

use leasehold_conformance::Result;
use leasehold_core::{
    AcquireReply, AcquireRequest, AnyStore, Capabilities, Clock as _, EvictReply, EvictRequest,
    Health, Key, ListReply, ListRequest, ManualClock, ReleaseReply, ReleaseRequest, RenewReply,
    RenewRequest, Store, Wakeups,
};
use leasehold_testkit::spanner::Emulator;
use tokio::sync::RwLock;

/// An emulator, and the clock that is in a table there.
pub(crate) struct Clocked {
    pub(crate) emulator: Emulator,
    pub(crate) clock: ManualClock,
    moves: Arc<RwLock<()>>,
}

impl Clocked {
    pub(crate) async fn start() -> Result<Self> {
        let (emulator, clock) = (Emulator::start().await?, ManualClock::new());
        emulator.set_clock(clock.wall_micros()).await?;
        Ok(Self { emulator, clock, moves: Arc::default() })
    }

    /// Changes the clock, here and in its table, while no request of a [`Steady`] store is under way.
    pub(crate) async fn change(&self, change: impl FnOnce(&ManualClock)) -> Result {
        let _alone = self.moves.write().await;
        change(&self.clock);
        self.emulator.set_clock(self.clock.wall_micros()).await
    }

    /// A store for which the clock here and the one in the table are always the same.
    pub(crate) fn steady(&self, store: AnyStore) -> AnyStore {
        AnyStore::new(Steady { store, moves: Arc::clone(&self.moves) })
    }
}

/// A store during whose requests the clock stands still.
#[derive(Debug)]
struct Steady {
    store: AnyStore,
    moves: Arc<RwLock<()>>,
}

impl Store for Steady {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn check(&self) -> leasehold_core::Result<Health> {
        let _steady = self.moves.read().await;
        self.store.check().await
    }

    async fn prepare(&self) -> leasehold_core::Result<()> {
        let _steady = self.moves.read().await;
        self.store.prepare().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> leasehold_core::Result<AcquireReply> {
        let _steady = self.moves.read().await;
        self.store.acquire(request).await
    }

    async fn renew(&self, request: &RenewRequest) -> leasehold_core::Result<RenewReply> {
        let _steady = self.moves.read().await;
        self.store.renew(request).await
    }

    async fn release(&self, request: &ReleaseRequest) -> leasehold_core::Result<ReleaseReply> {
        let _steady = self.moves.read().await;
        self.store.release(request).await
    }

    async fn list(&self, request: &ListRequest) -> leasehold_core::Result<ListReply> {
        let _steady = self.moves.read().await;
        self.store.list(request).await
    }

    async fn evict(&self, request: &EvictRequest) -> leasehold_core::Result<EvictReply> {
        let _steady = self.moves.read().await;
        self.store.evict(request).await
    }

    async fn subscribe(&self, keys: &[Key]) -> leasehold_core::Result<Wakeups> {
        self.store.subscribe(keys).await
    }
}
