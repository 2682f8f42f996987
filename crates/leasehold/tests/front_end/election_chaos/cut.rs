use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::inspect::{Capabilities, EvictReply, EvictRequest, Health, ListReply, ListRequest};
use leasehold::store::{AnyStore, Clock, Store, SystemClock};
use leasehold::{Effect, Error, Key, Result};
use leasehold_core::{
    AcquireReply, AcquireRequest, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Wakeups,
};

/// A store whose connection can be cut. It records when a lock was last requested.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    store: AnyStore,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    cut: AtomicBool,
    asked: Mutex<Vec<Duration>>,
}

impl Cut {
    pub(crate) fn new(store: AnyStore) -> Self {
        Self { store, state: Arc::default() }
    }

    pub(crate) fn cut(&self, cut: bool) {
        self.state.cut.store(cut, Ordering::SeqCst);
    }

    /// When locks were requested since the last call.
    pub(crate) fn take_asked(&self) -> Vec<Duration> {
        std::mem::take(&mut self.state.asked.lock().unwrap())
    }

    /// A request does not arrive, or its reply does not.
    async fn through<T>(&self, request: impl Future<Output = Result<T>>) -> Result<T> {
        let gone = || Error::unavailable(Effect::Unknown, "the network is cut");
        if self.state.cut.load(Ordering::SeqCst) {
            return Err(gone());
        }
        let reply = request.await;
        if self.state.cut.load(Ordering::SeqCst) { Err(gone()) } else { reply }
    }
}

impl Store for Cut {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn check(&self) -> Result<Health> {
        self.through(self.store.check()).await
    }

    async fn prepare(&self) -> Result<()> {
        self.through(self.store.prepare()).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.state.asked.lock().unwrap().push(SystemClock::new().now());
        self.through(self.store.acquire(request)).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        self.through(self.store.renew(request)).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        self.through(self.store.release(request)).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.through(self.store.list(request)).await
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        self.through(self.store.evict(request)).await
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        self.through(self.store.subscribe(keys)).await
    }
}
