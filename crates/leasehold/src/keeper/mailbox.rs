use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{BoxFuture, Random};
use tokio::sync::Notify;

use crate::lease::cleanup::Cleanup;

/// The shortest and the longest pause before failed releases are sent again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// Work for the Keeper: requests whose callers went away, and leases to release.
///
/// A lease is first sent at once, or when its keys need not stay taken any longer. All leases whose release failed
/// share one timer and are sent together when it fires.
#[derive(Default)]
pub(super) struct Mailbox {
    letters: Mutex<Letters>,
    /// How many times in a row the sending failed.
    failures: AtomicU32,
    unfinished: Arc<Unfinished>,
}

#[derive(Default)]
struct Letters {
    requests: Vec<BoxFuture<'static, ()>>,
    /// When the oldest request came.
    requested_at: Option<Duration>,
    cleanups: Vec<Due>,
    /// When the failed ones are sent again.
    retry_at: Option<Duration>,
    /// No lease without end is sent again.
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

/// One piece of unfinished work; dropped when it is finished.
pub(super) struct Unfinishing(Arc<Unfinished>);

impl Mailbox {
    /// Counts one piece of work as unfinished until the result is dropped.
    pub(super) fn unfinished(&self) -> Unfinishing {
        *self.unfinished.count() += 1;
        Unfinishing(Arc::clone(&self.unfinished))
    }

    pub(super) fn push_request(&self, request: BoxFuture<'static, ()>, now: Duration) {
        let mut letters = self.letters();
        letters.requests.push(request);
        letters.requested_at.get_or_insert(now);
    }

    /// Adds a lease to be sent at `at`, or when the shared timer fires if it failed before.
    pub(super) fn push(&self, cleanup: Cleanup, at: Duration, now: Duration) {
        let unfinished = self.unfinished();
        let mut letters = self.letters();
        if letters.closed && cleanup.is_endless() {
            return;
        }
        let at = if cleanup.has_failed() { letters.retry_at(&self.failures, now) } else { at };
        letters.cleanups.push(Due { at, cleanup, unfinished });
    }

    /// The store has answered: the next failure starts with the shortest pause.
    pub(super) fn is_answered(&self) {
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// From now on, no lease without end is sent again.
    pub(super) fn close(&self) {
        let mut letters = self.letters();
        letters.closed = true;
        letters.cleanups.retain(|due| !due.cleanup.is_endless());
    }

    pub(super) fn take_requests(&self) -> Vec<BoxFuture<'static, ()>> {
        let mut letters = self.letters();
        letters.requested_at = None;
        std::mem::take(&mut letters.requests)
    }

    /// The leases that are due. A failed one is dropped once its term is over.
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

    /// When the next work is due.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let letters = self.letters();
        letters.cleanups.iter().map(|due| due.at).chain(letters.requested_at).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        let letters = self.letters();
        letters.requests.is_empty() && letters.cleanups.is_empty()
    }

    /// Ends when no work is left, neither queued nor in progress.
    pub(super) async fn drained(&self) {
        loop {
            // From here on every end is reported to it.
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
    /// When the shared timer fires; sets it if it is not set.
    fn retry_at(&mut self, failures: &AtomicU32, now: Duration) -> Duration {
        if let Some(at) = self.retry_at.filter(|at| *at > now) {
            return at;
        }
        let failed = failures.load(Ordering::Relaxed);
        failures.store(failed.saturating_add(1), Ordering::Relaxed);
        let pause = PAUSE.0.saturating_mul(1 << failed.min(16)).min(PAUSE.1);
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
