//! The thread that does what is due at some instant: it sweeps tables, and wakes tasks outside a runtime. The first lock
//! that can go stale, or such a task, starts it; the last table that has such locks ends it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Builder, Thread};
use std::time::Duration;

use leasehold_core::Clock;

use super::holder::{Instant, NEVER};
use super::per_process::PerProcess;
use super::sync::isolate;

/// What the thread does something for.
pub(super) trait Timed: Send + Sync {
    /// The clock that says when something is due.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Does what is due, and says when it is next.
    fn run_if_due(&self) -> Instant;
}

/// Not of the engine, so not of its `sync`: models have no such thread.
static SWEEPER: PerProcess<Mutex<Sweeper>> = PerProcess::new();

#[derive(Default)]
pub(super) struct Sweeper {
    known: Vec<Weak<dyn Timed>>,
    thread: Option<Thread>,
}

impl Sweeper {
    /// Does what is due as long as `timed` lives; false if there is no thread for it.
    pub(super) fn watch(timed: Weak<dyn Timed>) -> bool {
        let mut sweeper = Self::lock();
        match &sweeper.thread {
            Some(thread) => thread.unpark(),
            None => {
                let run = Builder::new().name("leasehold-sweep".into()).spawn(Self::run);
                let Ok(handle) = run else { return false };
                sweeper.thread = Some(handle.thread().clone());
            }
        }
        sweeper.known.push(timed);
        true
    }

    /// Ends the thread if there is nothing left for it to do.
    pub(super) fn look() {
        let mut sweeper = Self::lock();
        sweeper.known.retain(|timed| timed.strong_count() > 0);
        if let Some(thread) = sweeper.thread.as_ref().filter(|_| sweeper.known.is_empty()) {
            thread.unpark();
        }
    }

    fn lock() -> MutexGuard<'static, Self> {
        SWEEPER.get().lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run() {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            let known = {
                let mut sweeper = Self::lock();
                sweeper.known.retain(|timed| timed.strong_count() > 0);
                if sweeper.known.is_empty() {
                    sweeper.thread = None;
                    return;
                }
                sweeper.known.clone()
            };
            let mut limit = None;
            let mut sleeps = Vec::new();
            for timed in known {
                let Some(timed) = timed.upgrade() else { continue };
                isolate(|| {
                    let (clock, due) = (timed.clock(), timed.run_if_due());
                    // Its last user may be gone: then it ends here.
                    drop(timed);
                    if due == NEVER {
                        return;
                    }
                    let at = Duration::from_nanos(due);
                    match clock.park_limit(at) {
                        Some(left) => {
                            limit = Some(limit.map_or(left, |limit: Duration| limit.min(left)));
                        }
                        None => sleeps.push(clock.sleep_until(at)),
                    }
                });
            }
            let mut context = Context::from_waker(&waker);
            let over = |sleep: &mut leasehold_core::BoxFuture<'static, ()>| {
                matches!(sleep.as_mut().poll(&mut context), Poll::Ready(()))
            };
            if sleeps.iter_mut().any(over) {
                continue;
            }
            match limit {
                Some(limit) => std::thread::park_timeout(limit),
                None => std::thread::park(),
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
