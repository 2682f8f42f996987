use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::store::{AnyStore, Clock, Store, SystemClock};
use leasehold::{Effect, Error, Result};
use leasehold_testkit::faulty::{Hook, Reply, Request};

/// A connection that can be cut. It records when a lock was last requested.
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

    fn connected(&self) -> Result<()> {
        let gone = || Error::unavailable(Effect::Unknown, "the network is cut");
        if self.state.cut.load(Ordering::SeqCst) { Err(gone()) } else { Ok(()) }
    }
}

impl Hook for Cut {
    fn store(&self) -> impl Store {
        self.store.clone()
    }

    /// A request does not arrive, or its reply does not.
    async fn handle(&self, request: Request) -> Result<Reply> {
        if matches!(request, Request::Acquire(_)) {
            self.state.asked.lock().unwrap().push(SystemClock::new().now());
        }
        self.connected()?;
        let reply = request.send_to(self.store.clone()).await;
        self.connected().and(reply)
    }
}
