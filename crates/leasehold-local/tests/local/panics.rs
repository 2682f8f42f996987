//! Keys whose code panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use leasehold_core::{Clock, ManualClock};
use leasehold_driver::SystemClock;
use leasehold_local::locks::{LocalLocks, LocksConfig, Options, OwnerHandle};

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

#[test]
fn sweeps_go_on_after_one_that_panics() {
    let clock = ManualClock::new();
    let config = LocksConfig::new().clock(Arc::new(clock.clone())).sweep_every(60 * SECOND);
    let locks: LocalLocks<Fragile<1>> = LocalLocks::with_config(config).unwrap();
    let short = Options::new().lock_timeout(SECOND);
    locks.try_acquire(Fragile(1), &short).unwrap().keep();
    let _waits = waits_for(&locks, 1);
    COPIES[1].store(1, Ordering::Relaxed);
    let until = SystemClock::new().now() + 30 * SECOND;
    while locks.swept().sweeps == 0 {
        assert!(SystemClock::new().now() < until, "nobody sweeps");
        if let Some(at) = clock.next_wake() {
            clock.advance(at.saturating_sub(clock.now()));
        }
        std::thread::yield_now();
    }
    assert!(COPIES[1].load(Ordering::Relaxed) < 1, "a sweep panicked");
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
