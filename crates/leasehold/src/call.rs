use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use leasehold_core::BoxFuture;

use crate::keeper::{Keeper, Releasing};

/// A request that is never dropped once it was polled (F6): if its caller goes away, the Keeper learns the
/// reply and releases what nobody wants. Never polled, it sends nothing.
pub(crate) struct Call<L: Leaves> {
    future: Option<BoxFuture<'static, L::Reply>>,
    state: State,
    abandoned: Abandoned,
    keeper: Arc<Keeper>,
    leaves: Option<L>,
}

#[derive(PartialEq, Eq)]
enum State {
    Unsent,
    Sent,
    Answered,
}

/// What a request may leave at the store that nobody wants once its caller is gone.
pub(crate) trait Leaves: Send + Unpin + 'static {
    type Reply: Send + 'static;

    /// What must be released after this reply.
    fn after(self, reply: Self::Reply) -> Vec<Releasing>;

    /// What must be released if no reply ever comes.
    fn without(&self) -> Vec<Releasing>;
}

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

impl<L: Leaves> Call<L> {
    pub(crate) fn new(
        keeper: &Arc<Keeper>,
        abandoned: Abandoned,
        future: impl Future<Output = L::Reply> + Send + 'static,
        leaves: L,
    ) -> Self {
        Self {
            future: Some(Box::pin(future)),
            state: State::Unsent,
            abandoned,
            keeper: Arc::clone(keeper),
            leaves: Some(leaves),
        }
    }
}

impl<L: Leaves> Future for Call<L> {
    type Output = L::Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<L::Reply> {
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

impl<L: Leaves> Drop for Call<L> {
    fn drop(&mut self) {
        if self.state != State::Sent {
            return;
        }
        self.abandoned.0.store(true, Ordering::Release);
        let Some(leaves) = self.leaves.take() else { return };
        let fallback = leaves.without();
        match self.future.take() {
            Some(future) => {
                let future = Box::pin(async move { leaves.after(future.await) });
                self.keeper.finish_call(Orphaned { future, fallback });
            }
            None => self.keeper.release(fallback),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use leasehold_core::AnyStore;
    use leasehold_core::term::Drift;
    use leasehold_driver::TokioClock;
    use leasehold_local::LocalStore;

    use super::*;

    struct Nothing;

    impl Leaves for Nothing {
        type Reply = ();

        fn after(self, (): ()) -> Vec<Releasing> {
            Vec::new()
        }

        fn without(&self) -> Vec<Releasing> {
            Vec::new()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_was_never_polled_is_not_sent_by_the_keeper_either() {
        let clock = Arc::new(TokioClock::new());
        let store = AnyStore::new(LocalStore::new());
        let keeper = Arc::new(Keeper::new(store, clock, Drift::default(), Duration::MAX));
        for polls in [0, 1] {
            let is_sent = Abandoned::default();
            let sent = is_sent.clone();
            let request = async move {
                tokio::task::yield_now().await;
                sent.0.store(true, Ordering::Release);
            };
            let mut call = Call::new(&keeper, Abandoned::default(), request, Nothing);
            for _ in 0..polls {
                assert!((&mut call).now_or_never().is_none());
            }
            drop(call);
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(is_sent.is_set(), polls > 0);
        }
    }
}
