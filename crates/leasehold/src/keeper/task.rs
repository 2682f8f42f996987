use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_core::{BoxFuture, Clock};

use super::Keeper;

/// Reports the end of the task, however it ended.
struct Running(Arc<Keeper>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running_in.store(0, Ordering::Release);
    }
}

/// The task, which already counts as running.
pub(super) fn run(keeper: Arc<Keeper>) -> impl Future<Output = ()> + Send {
    work(Running(keeper))
}

async fn work(running: Running) {
    let keeper = &running.0;
    let mut flights = FuturesUnordered::<BoxFuture<'static, ()>>::new();
    loop {
        flights.extend(keeper.renewals());
        flights.extend(keeper.take_work());
        let renewal = keeper.schedule.plan();
        let next = renewal.into_iter().chain(keeper.mailbox.next_due()).min();
        // Without a guard there is no held lease. What the last guard left may have arrived just now.
        let orphaned = keeper.orphaned.load(Ordering::Acquire);
        if orphaned && flights.is_empty() && keeper.mailbox.is_empty() {
            return;
        }
        tokio::select! {
            () = keeper.wake.notified() => {}
            Some(()) = flights.next() => {}
            () = sleep_until(&*keeper.clock, next) => {}
        }
    }
}

async fn sleep_until(clock: &dyn Clock, at: Option<Duration>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
