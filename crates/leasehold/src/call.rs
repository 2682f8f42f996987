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
    polled: bool,
    abandoned: Abandoned,
    keeper: Arc<Keeper>,
    orphan: Option<Orphan<T>>,
}

/// What must be released after a reply that nobody waits for.
type Orphan<T> = Box<dyn FnOnce(T) -> Option<Releasing> + Send>;

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
        orphan: impl FnOnce(T) -> Option<Releasing> + Send + 'static,
    ) -> Self {
        Self {
            future: Some(Box::pin(future)),
            polled: false,
            abandoned,
            keeper: Arc::clone(keeper),
            orphan: Some(Box::new(orphan)),
        }
    }
}

impl<T: Send + 'static> Future for Call<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let this = &mut *self;
        this.polled = true;
        let future = this.future.as_mut().expect("a finished future is not polled again");
        let reply = future.as_mut().poll(context);
        if reply.is_ready() {
            this.future = None;
        }
        reply
    }
}

impl<T: Send + 'static> Drop for Call<T> {
    fn drop(&mut self) {
        let (Some(future), Some(orphan), true) =
            (self.future.take(), self.orphan.take(), self.polled)
        else {
            return;
        };
        self.abandoned.0.store(true, Ordering::Release);
        self.keeper.finish_call(Box::pin(async move { orphan(future.await) }));
    }
}
