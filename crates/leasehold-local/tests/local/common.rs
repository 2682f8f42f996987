use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use leasehold_core::{Clock, ManualClock};
use leasehold_local::locks::{
    Entry, Guard, Keys, LocalLocks, LockError, LockKey, LocksConfig, Options,
};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// The key of most tests.
pub(crate) type Name = &'static str;
pub(crate) type Locks = LocalLocks<Name>;
pub(crate) type Got = Result<Guard<Name>, LockError>;

/// A table on a clock that the test moves.
pub(crate) fn manual() -> (Locks, ManualClock) {
    let clock = ManualClock::new();
    let config = LocksConfig::new().clock(Arc::new(clock.clone())).sweep_never();
    (LocalLocks::with_config(config).expect("it is in range"), clock)
}

/// Waits until the lock is free, and never goes stale.
pub(crate) fn patient() -> Options {
    Options::new().retry_forever().never_stale()
}

/// One attempt.
pub(crate) fn once() -> Options {
    Options::new().retries(0)
}

/// A request of a task, which the test polls.
pub(crate) struct Task<T>(Pin<Box<dyn Future<Output = T> + Send>>, Arc<Wakes>);

#[derive(Default)]
struct Wakes(AtomicU32);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl<T> Task<T> {
    /// A task that has been polled once and waits.
    pub(crate) fn pending(future: impl Future<Output = T> + Send + 'static) -> Self {
        let mut task = Self(Box::pin(future), Arc::default());
        assert!(task.poll().is_pending());
        task
    }

    pub(crate) fn poll(&mut self) -> Poll<T> {
        self.0.as_mut().poll(&mut Context::from_waker(&Waker::from(self.1.clone())))
    }

    pub(crate) fn wakes(&self) -> u32 {
        self.1.0.load(Ordering::Relaxed)
    }

    /// The result of a task that was woken.
    pub(crate) fn done(mut self) -> T {
        assert!(self.wakes() > 0, "nobody woke it");
        match self.poll() {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("it still waits"),
        }
    }
}

/// A request that waits.
pub(crate) fn waits(locks: &Locks, keys: impl Into<Keys<Name>>, options: Options) -> Task<Got> {
    let (locks, keys) = (locks.clone(), keys.into());
    Task::pending(async move { locks.acquire(keys, &options).await })
}

/// A request for the whole table that waits.
pub(crate) fn waits_for_all(locks: &Locks, options: Options) -> Task<Got> {
    let locks = locks.clone();
    Task::pending(async move { locks.acquire_all(&options).await })
}

/// The locked keys, each once for each holder.
pub(crate) fn held<K: LockKey>(locks: &LocalLocks<K>) -> Vec<Option<K>> {
    locks.entries().into_iter().map(|entry| entry.key).collect()
}

pub(crate) fn entry(locks: &Locks, key: Name) -> Entry<Name> {
    locks.entries().into_iter().find(|entry| entry.key == Some(key)).expect("it is held")
}

/// Waits on the calling thread until that many requests wait for a key.
pub(crate) fn await_waiters(locks: &Locks, key: Name, waiters: usize) {
    while locks.entries().iter().all(|one| one.key != Some(key) || one.waiters != waiters) {
        std::thread::yield_now();
    }
}

/// Moves the clock to the next instant that somebody waits for, once somebody does.
pub(crate) fn advance_to_next(clock: &ManualClock) {
    let next = loop {
        match clock.next_wake() {
            Some(at) => break at,
            None => std::thread::yield_now(),
        }
    };
    clock.advance(next.saturating_sub(clock.now()));
}
