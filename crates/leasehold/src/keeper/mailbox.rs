use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{BoxFuture, Random};
use tokio::sync::Notify;

use crate::lease::cleanup::Cleanup;

/// The shortest and the longest pause before what failed is sent again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// Work for the Keeper: requests whose callers went away, and leases to be released.
///
/// A lease is first sent at once, or when its keys need not stay taken any more. All that failed share one timer and
/// travel together when that fires.
#[derive(Default)]
pub(super) struct Mailbox {
    letters: Mutex<Letters>,
    unfinished: Arc<Unfinished>,
}

#[derive(Default)]
struct Letters {
    requests: Vec<BoxFuture<'static, ()>>,
    cleanups: Vec<Due>,
    /// When what failed is sent again.
    retry_at: Option<Duration>,
    /// How often it failed in a row.
    failures: u32,
    /// A lease without end is not worth another try.
    closed: bool,
}

struct Due {
    at: Duration,
    cleanup: Cleanup,
    unfinished: Unfinishing,
}

#[derive(Default)]
struct Unfinished {
    count: Mutex<usize>,
    none: Notify,
}

/// One piece of work that is not finished; dropped when it is.
pub(super) struct Unfinishing(Arc<Unfinished>);

impl Mailbox {
    /// Says that something is not finished for as long as the answer lives.
    pub(super) fn unfinished(&self) -> Unfinishing {
        *self.unfinished.count() += 1;
        Unfinishing(Arc::clone(&self.unfinished))
    }

    pub(super) fn push_request(&self, request: BoxFuture<'static, ()>) {
        self.letters().requests.push(request);
    }

    /// Adds a lease to be sent at `at`, or when the shared timer fires if it failed before.
    pub(super) fn push(&self, cleanup: Cleanup, at: Duration, now: Duration) {
        let unfinished = self.unfinished();
        let mut letters = self.letters();
        if letters.closed && cleanup.is_endless() {
            return;
        }
        let at = if cleanup.has_failed() { letters.retry_at(now) } else { at };
        letters.cleanups.push(Due { at, cleanup, unfinished });
    }

    /// The store answers: what fails next is soon sent again.
    pub(super) fn is_answered(&self) {
        self.letters().failures = 0;
    }

    /// From now on a lease without end is not worth another try.
    pub(super) fn close(&self) {
        let mut letters = self.letters();
        letters.closed = true;
        letters.cleanups.retain(|due| !due.cleanup.is_endless());
    }

    pub(super) fn take_requests(&self) -> Vec<BoxFuture<'static, ()>> {
        std::mem::take(&mut self.letters().requests)
    }

    /// The leases that are due. One that failed is dropped once its term is over.
    pub(super) fn take_due(&self, now: Duration) -> Vec<(Unfinishing, Cleanup)> {
        let mut letters = self.letters();
        letters.retry_at = letters.retry_at.filter(|at| *at > now);
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut letters.cleanups).into_iter().partition(|due| due.at <= now);
        letters.cleanups = later;
        due.into_iter()
            .filter(|due| !due.cleanup.has_failed() || due.cleanup.matters(now))
            .map(|due| (due.unfinished, due.cleanup))
            .collect()
    }

    /// When the next lease is due.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.letters().cleanups.iter().map(|due| due.at).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        let letters = self.letters();
        letters.requests.is_empty() && letters.cleanups.is_empty()
    }

    /// Ends when no work is left, neither here nor in progress.
    pub(super) async fn drained(&self) {
        loop {
            // It hears of every end from now on.
            let none = self.unfinished.none.notified();
            if *self.unfinished.count() == 0 {
                return;
            }
            none.await;
        }
    }

    fn letters(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Letters {
    /// When the shared timer fires; sets it if it is not.
    fn retry_at(&mut self, now: Duration) -> Duration {
        if let Some(at) = self.retry_at.filter(|at| *at > now) {
            return at;
        }
        let pause = PAUSE.0.saturating_mul(1 << self.failures.min(16)).min(PAUSE.1);
        self.failures = self.failures.saturating_add(1);
        let at = now.saturating_add(pause / 2 + Random::seeded().up_to(pause / 2));
        self.retry_at = Some(at);
        at
    }
}

impl Unfinished {
    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Unfinishing {
    fn drop(&mut self) {
        let mut count = self.0.count();
        *count -= 1;
        if *count == 0 {
            self.0.none.notify_waiters();
        }
    }
}
