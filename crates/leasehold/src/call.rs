use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use leasehold_core::BoxFuture;

use crate::keeper::{Keeper, Releasing};

/// A request that is never dropped once it was polled (F6): if its caller goes away, the Keeper learns the
/// reply and releases what nobody wants. Never polled, it sends nothing.
pub(crate) struct Call<T: Send + 'static> {
    future: Option<BoxFuture<'static, T>>,
    state: State,
    abandoned: Abandoned,
    keeper: Arc<Keeper>,
    orphan: Option<Orphan<T>>,
    fallback: Vec<Releasing>,
}

#[derive(PartialEq, Eq)]
enum State {
    Unsent,
    Sent,
    Answered,
}

/// What must be released after a reply that nobody waits for.
type Orphan<T> = Box<dyn FnOnce(T) -> Vec<Releasing> + Send>;

/// A request whose caller went away.
pub(crate) struct Orphaned {
    /// Ends with what must then be released.
    pub(crate) future: BoxFuture<'static, Vec<Releasing>>,
    /// What must be released if it never ends.
    pub(crate) fallback: Vec<Releasing>,
}

/// Tells a request in progress that its caller is gone, so that it sends nothing more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Abandoned(Arc<AtomicBool>);

impl Abandoned {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl<T: Send + 'static> Call<T> {
    pub(crate) fn new(
        keeper: &Arc<Keeper>,
        abandoned: Abandoned,
        future: impl Future<Output = T> + Send + 'static,
        orphan: impl FnOnce(T) -> Vec<Releasing> + Send + 'static,
        fallback: Vec<Releasing>,
    ) -> Self {
        Self {
            future: Some(Box::pin(future)),
            state: State::Unsent,
            abandoned,
            keeper: Arc::clone(keeper),
            orphan: Some(Box::new(orphan)),
            fallback,
        }
    }
}

impl<T: Send + 'static> Future for Call<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        this.state = State::Sent;
        // Taken out while it is polled: one that panics is not polled again.
        let mut future = this.future.take().expect("a finished future is not polled again");
        let reply = future.as_mut().poll(context);
        match &reply {
            Poll::Ready(_) => this.state = State::Answered,
            Poll::Pending => this.future = Some(future),
        }
        reply
    }
}

impl<T: Send + 'static> Drop for Call<T> {
    fn drop(&mut self) {
        if self.state != State::Sent {
            return;
        }
        self.abandoned.0.store(true, Ordering::Release);
        let fallback = std::mem::take(&mut self.fallback);
        match (self.future.take(), self.orphan.take()) {
            (Some(future), Some(orphan)) => {
                let future = Box::pin(async move { orphan(future.await) });
                self.keeper.finish_call(Orphaned { future, fallback });
            }
            _ => self.keeper.release(fallback),
        }
    }
}
