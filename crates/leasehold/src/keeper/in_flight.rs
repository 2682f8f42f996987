use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::BoxFuture;

use super::mailbox::Unfinishing;
use super::{Keeper, caught};
use crate::lease::cleanup::Cleanup;

/// How long a request that was given up, and whose lease was released by another request, is still awaited.
const LISTEN: Duration = Duration::from_secs(60);

/// A request that was sent, and from then on is never dropped (F6): if its caller goes away, the Keeper completes it.
pub(crate) struct InFlight<T: Send + 'static> {
    /// `None` once it is answered.
    future: Option<BoxFuture<'static, T>>,
    duty: Arc<OnOrphan>,
}

/// What must be released if nobody waits for a request any more: its caller went away, or its runtime ended.
///
/// The request and its waiter share this. When the last of them drops it, what is still in it is released in the
/// background.
pub(crate) struct OnOrphan {
    keeper: Arc<Keeper>,
    cleanups: Mutex<Vec<Cleanup>>,
    /// The caller is gone: nothing more must be sent for it.
    orphaned: AtomicBool,
}

impl OnOrphan {
    pub(crate) fn new(keeper: &Arc<Keeper>, cleanups: Vec<Cleanup>) -> Arc<Self> {
        let cleanups = Mutex::new(cleanups);
        Arc::new(Self { keeper: Arc::clone(keeper), cleanups, orphaned: AtomicBool::new(false) })
    }

    pub(crate) fn is_orphaned(&self) -> bool {
        self.orphaned.load(Ordering::Acquire)
    }

    /// Nothing is left to release.
    pub(crate) fn settle(&self) {
        self.cleanups().clear();
    }

    pub(super) fn cleanups(&self) -> MutexGuard<'_, Vec<Cleanup>> {
        self.cleanups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases what the request may leave, without waiting for the request.
    fn act(&self) {
        let mut cleanups = self.cleanups().clone();
        self.cleanups().retain(Cleanup::may_be_needed_again);
        // A release without an answer has failed; what an acquire may leave was never sent for release.
        cleanups.iter_mut().filter(|cleanup| !cleanup.may_be_needed_again()).for_each(|cleanup| {
            cleanup.doubt();
            cleanup.fail();
        });
        self.keeper.release(cleanups);
    }
}

impl Drop for OnOrphan {
    fn drop(&mut self) {
        let cleanups = std::mem::take(&mut *self.cleanups());
        if !cleanups.is_empty() {
            self.keeper.release(cleanups);
        }
    }
}

impl<T: Send + 'static> InFlight<T> {
    pub(crate) fn new(
        duty: &Arc<OnOrphan>,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        Self { future: Some(Box::pin(request)), duty: Arc::clone(duty) }
    }
}

impl<T: Send + 'static> Future for InFlight<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Taken out while it is polled: after a panic it is not polled again.
        let mut future = self.future.take().expect("a finished future is not polled again");
        let reply = future.as_mut().poll(context);
        if reply.is_pending() {
            self.future = Some(future);
        }
        reply
    }
}

impl<T: Send + 'static> Drop for InFlight<T> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.duty.orphaned.store(true, Ordering::Release);
            let keeper = &self.duty.keeper;
            keeper.finish_request(Box::pin(future.map(drop)), Arc::clone(&self.duty));
        }
    }
}

impl Keeper {
    /// Completes a request whose caller went away.
    fn finish_request(self: &Arc<Self>, request: BoxFuture<'static, ()>, duty: Arc<OnOrphan>) {
        let unfinished = vec![self.mailbox.unfinished()];
        let through = Arc::clone(self).see_through(request, duty, unfinished);
        self.mailbox.push_request(Box::pin(through), self.clock.now());
        self.attend();
    }

    /// Waits for the answer to a request. If it does not come within the limit, what the request may leave is
    /// released, and the answer is awaited for a while longer: its ids stay reserved, and what it wins late is
    /// released too.
    pub(super) async fn see_through(
        self: Arc<Self>,
        request: BoxFuture<'static, ()>,
        duty: Arc<OnOrphan>,
        unfinished: Vec<Unfinishing>,
    ) {
        let mut answer = Box::pin(caught(request));
        let until = self.clock.now().saturating_add(self.limit);
        let is_answered = tokio::select! {
            biased;
            _ = &mut answer => true,
            () = self.clock.sleep_until(until) => false,
        };
        if is_answered {
            drop(answer);
            // Returns what failed to the queue before this counts as finished.
            drop(duty);
            drop(unfinished);
            return;
        }
        duty.act();
        drop(unfinished);
        let until = self.clock.now().saturating_add(LISTEN);
        tokio::select! {
            biased;
            _ = &mut answer => {}
            () = self.clock.sleep_until(until) => duty.settle(),
        }
    }
}
