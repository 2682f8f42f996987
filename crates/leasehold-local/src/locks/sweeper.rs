//! The thread that sweeps the tables of the process: started by the first lock that can go stale, and ended with the
//! last table that has such locks.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Builder, Thread};
use std::time::Duration;

use leasehold_core::Clock;

use super::holder::{Instant, NEVER};

/// A table that the sweeper knows.
pub(super) trait Sweepable: Send + Sync {
    /// The clock that says when a sweep is due.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Sweeps if a sweep is due, and says when the next one is.
    fn sweep_if_due(&self) -> Instant;
}

/// Not of the engine, so not of its `sync`: models have no such thread.
static SWEEPER: LazyLock<Mutex<Sweeper>> = LazyLock::new(Mutex::default);

#[derive(Default)]
pub(super) struct Sweeper {
    tables: Vec<Weak<dyn Sweepable>>,
    thread: Option<Thread>,
}

impl Sweeper {
    /// Sweeps a table as long as it lives; false if there is no thread for it.
    pub(super) fn watch(table: Weak<dyn Sweepable>) -> bool {
        let mut sweeper = Self::lock();
        match &sweeper.thread {
            Some(thread) => thread.unpark(),
            None => {
                let run = Builder::new().name("leasehold-sweep".into()).spawn(Self::run);
                let Ok(handle) = run else { return false };
                sweeper.thread = Some(handle.thread().clone());
            }
        }
        sweeper.tables.push(table);
        true
    }

    /// Has the thread look which tables there still are.
    pub(super) fn look() {
        if let Some(thread) = &Self::lock().thread {
            thread.unpark();
        }
    }

    fn lock() -> MutexGuard<'static, Self> {
        SWEEPER.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run() {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            let tables = {
                let mut sweeper = Self::lock();
                sweeper.tables.retain(|table| table.strong_count() > 0);
                if sweeper.tables.is_empty() {
                    sweeper.thread = None;
                    return;
                }
                sweeper.tables.clone()
            };
            let mut limit = None;
            let mut sleeps = Vec::new();
            for table in tables {
                let Some(table) = table.upgrade() else { continue };
                let (clock, due) = (table.clock(), table.sweep_if_due());
                // Its last user may be gone: then it ends here.
                drop(table);
                if due == NEVER {
                    continue;
                }
                let at = Duration::from_nanos(due);
                match clock.park_limit(at) {
                    Some(left) => {
                        limit = Some(limit.map_or(left, |limit: Duration| limit.min(left)))
                    }
                    None => sleeps.push(clock.sleep_until(at)),
                }
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
