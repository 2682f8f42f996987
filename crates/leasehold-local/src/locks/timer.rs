//! Waits of tasks until an instant, on any executor.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::{BoxFuture, Clock};
use tokio::runtime::Handle;

use super::holder::{Instant, NEVER, nanos};
use super::sweeper::{Sweeper, Timed};
use super::sync::wake;

/// Ends when the clock shows `at`: by the clock's own timer, or where that needs a tokio runtime and there is none, by
/// the sweeper's thread.
pub(super) fn sleep_until(clock: &Arc<dyn Clock>, at: Instant) -> BoxFuture<'static, ()> {
    let instant = Duration::from_nanos(at);
    if Handle::try_current().is_ok() || clock.park_limit(instant).is_none() {
        return clock.sleep_until(instant);
    }
    let alarm = Alarm { clock: clock.clone(), at, waker: Mutex::default() };
    Box::pin(Sleep { alarm: Arc::new(alarm), is_set: false })
}

/// What the sweeper's thread wakes.
struct Alarm {
    clock: Arc<dyn Clock>,
    at: Instant,
    waker: Mutex<Option<Waker>>,
}

impl Alarm {
    fn is_due(&self) -> bool {
        nanos(self.clock.now()) >= self.at
    }

    fn replace(&self, waker: Option<Waker>) -> Option<Waker> {
        std::mem::replace(&mut *self.waker.lock().unwrap_or_else(PoisonError::into_inner), waker)
    }
}

impl Timed for Alarm {
    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn run_if_due(&self) -> Instant {
        if !self.is_due() {
            return self.at;
        }
        if let Some(waker) = self.replace(None) {
            wake(waker);
        }
        NEVER
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // It may have been the last that the thread knew.
        Sweeper::look();
    }
}

struct Sleep {
    alarm: Arc<Alarm>,
    /// The sweeper knows the alarm.
    is_set: bool,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Before the clock is read: so an alarm that rang without a waker is seen here.
        drop(self.alarm.replace(Some(context.waker().clone())));
        if self.alarm.is_due() {
            return Poll::Ready(());
        }
        if !self.is_set {
            let alarm: Weak<Alarm> = Arc::downgrade(&self.alarm);
            self.is_set = Sweeper::watch(alarm);
            if !self.is_set {
                // Without a thread it is polled until then.
                context.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }
}
