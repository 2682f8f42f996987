//! Keys whose code panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use leasehold_core::{BoxFuture, Clock, ManualClock};
use leasehold_driver::SystemClock;
use leasehold_local::locks::{LocalLocks, LockKey, LocksConfig, Options, OwnerHandle};

use crate::common::*;

/// A key of one test, of which one copy cannot be made.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Fragile<const TEST: usize>(u32);

/// How many copies can be made until then.
static COPIES: [AtomicI64; 3] = [const { AtomicI64::new(0) }; 3];

impl<const TEST: usize> Clone for Fragile<TEST> {
    fn clone(&self) -> Self {
        assert!(COPIES[TEST].fetch_sub(1, Ordering::Relaxed) != 1, "on purpose");
        Self(self.0)
    }
}

/// A request that waits.
fn waits_for<const TEST: usize>(
    locks: &LocalLocks<Fragile<TEST>>,
    key: u32,
) -> Task<Option<Fragile<TEST>>> {
    let locks = locks.clone();
    Task::pending(async move {
        let guard = locks.acquire(Fragile(key), &patient()).await.expect("it waits");
        drop(guard);
        None
    })
}

#[test]
fn the_whole_table_is_granted_after_a_panic_that_met_who_moved_its_first_waiter_on() {
    let locks = LocalLocks::<Fragile<0>>::new();
    let all = locks.try_acquire_all(&patient()).unwrap();
    let keys: Vec<_> = (0..3_000).map(|key| waits_for(&locks, key)).collect();
    let inner = locks.clone();
    let next = Task::pending(async move { inner.acquire_all(&patient()).await });
    // The first waiter copies about 1,024 keys, and is put off. Then all waiters are looked at.
    COPIES[0].store(1_500, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| all.release())).is_err());
    drop(keys);
    drop(next.done().unwrap());
    assert!(locks.is_empty());
}

/// A table that is swept every minute by a clock that the test moves.
fn swept_table<K: LockKey>() -> (LocalLocks<K>, ManualClock) {
    let clock = ManualClock::new();
    let config = LocksConfig::new().clock(Arc::new(clock.clone())).sweep_every(60 * SECOND);
    (LocalLocks::with_config(config).unwrap(), clock)
}

/// Waits for the first sweep, for which the clock moves.
fn await_sweep<K: LockKey>(locks: &LocalLocks<K>, clock: &ManualClock) {
    let until = SystemClock::new().now() + 30 * SECOND;
    while locks.swept().sweeps == 0 {
        assert!(SystemClock::new().now() < until, "nobody sweeps");
        if let Some(at) = clock.next_wake() {
            clock.advance(at.saturating_sub(clock.now()));
        }
        std::thread::yield_now();
    }
}

#[test]
fn sweeps_go_on_after_one_that_panics() {
    let (locks, clock) = swept_table::<Fragile<1>>();
    let short = Options::new().lock_timeout(SECOND);
    locks.try_acquire(Fragile(1), &short).unwrap().keep();
    let _waits = waits_for(&locks, 1);
    COPIES[1].store(1, Ordering::Relaxed);
    await_sweep(&locks, &clock);
    assert!(COPIES[1].load(Ordering::Relaxed) < 1, "a sweep panicked");
}

/// A clock that panics when the thread that sweeps asks it how long to park.
#[derive(Debug, Default)]
struct Failing {
    clock: ManualClock,
    asked: AtomicBool,
}

impl Clock for Failing {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn wall_micros(&self) -> u64 {
        self.clock.wall_micros()
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep_until(at)
    }

    fn park_limit(&self, _: Duration) -> Option<Duration> {
        self.asked.store(true, Ordering::Relaxed);
        panic!("on purpose");
    }
}

#[test]
fn a_clock_that_panics_keeps_no_other_table_from_its_sweeps() {
    let failing = Arc::new(Failing::default());
    let config = LocksConfig::new().clock(failing.clone());
    let broken: Locks = LocalLocks::with_config(config).unwrap();
    broken.try_acquire("a", &Options::new()).unwrap().keep();
    while !failing.asked.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
    let (locks, clock) = swept_table::<u64>();
    locks.try_acquire(1, &Options::new().lock_timeout(SECOND)).unwrap().keep();
    await_sweep(&locks, &clock);
}

#[test]
fn the_death_of_an_owner_is_told_to_each_table_although_one_panics() {
    let [fragile, other] = [(); 2].map(|()| LocalLocks::<Fragile<2>>::new());
    let owner = OwnerHandle::new();
    let waiters = [&fragile, &other].map(|locks| {
        locks.try_acquire(Fragile(1), &patient().owner(&owner)).unwrap().keep();
        waits_for(locks, 1)
    });
    COPIES[2].store(1, Ordering::Relaxed);
    drop(owner);
    let [_, other] = waiters;
    other.done();
}
