//! What all operations of a quorum share: its nodes, and the requests in progress.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Capabilities, Clock, ReleaseOutcome, ReleaseRequest, Store as _};
use leasehold_driver::outliving;
use tokio::sync::watch;

use crate::config::Limits;
use crate::node::Node;
use crate::queues::{Place, Queues};

pub(crate) const NAME: &str = "quorum";

pub(crate) struct Inner {
    pub(crate) nodes: Vec<Node>,
    pub(crate) can: Capabilities,
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) queues: Arc<Queues>,
    running: watch::Sender<usize>,
}

/// Counts the requests in progress.
struct Running(Arc<Inner>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running -= 1);
    }
}

impl Inner {
    pub(crate) fn new(
        nodes: Vec<Node>,
        can: Capabilities,
        limits: Limits,
        clock: Arc<dyn Clock>,
    ) -> Arc<Self> {
        let queues = Queues::new(nodes.len());
        Arc::new(Self { nodes, can, limits, clock, queues, running: watch::Sender::new(0) })
    }

    /// Ends when no request is in progress.
    pub(crate) async fn settled(&self) {
        let settled = self.running.subscribe().wait_for(|running| *running == 0).await.is_ok();
        debug_assert!(settled, "the sender is ours");
    }

    /// Runs a node's request in its own task, which nobody cancels: no driver takes back a sent request (C15).
    pub(crate) fn spawn(self: &Arc<Self>, request: impl Future<Output = ()> + Send + 'static) {
        self.running.send_modify(|running| *running += 1);
        let running = Running(Arc::clone(self));
        drop(outliving(async move {
            request.await;
            drop(running);
            Ok(())
        }));
    }

    /// Releases on one node until it answers or the limit passes. Every attempt has its own task, and the places
    /// are kept until all are answered: a late one must not end a later lease of the same id.
    pub(crate) async fn release_surely(
        self: &Arc<Self>,
        node: usize,
        request: &Arc<ReleaseRequest>,
        places: &[Place],
    ) {
        let until = self.clock.now().saturating_add(self.limits.release);
        const PAUSE: Duration = Duration::from_millis(50);
        let limit = self.limits.of_term(None);
        let mut pause = PAUSE;
        loop {
            let (answered, answer) = tokio::sync::oneshot::channel();
            let (store, request) = (self.nodes[node].store.clone(), Arc::clone(request));
            let places = places.to_vec();
            self.spawn(async move {
                let released = store.release(&request).await;
                let done = released.is_ok_and(|released| {
                    !released.leases.iter().any(|l| matches!(l, ReleaseOutcome::Failed(_)))
                });
                drop(places);
                // After the limit nobody waits for it.
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

    /// Waits for `ready`, until `limit` at the latest.
    pub(crate) async fn within<T>(
        &self,
        limit: Duration,
        ready: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::select! {
            biased;
            ready = ready => Some(ready),
            () = self.clock.sleep_until(limit) => None,
        }
    }
}
