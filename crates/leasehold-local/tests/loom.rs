//! Models of the table: every order in which its threads can run is tried, up to a number of forced switches.
//!
//! ```sh
//! cargo xtask loom
//! ```
#![cfg(leasehold_loom)]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold_core::ManualClock;
use leasehold_local::locks::{
    Guard, Keys, LocalLocks, LockError, LocksConfig, Options, OwnerHandle, ReleaseOutcome, Scope,
};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

type Locks = LocalLocks<u8>;

fn table() -> (Locks, ManualClock) {
    table_with(LocksConfig::new())
}

fn table_with(config: LocksConfig) -> (Locks, ManualClock) {
    let clock = ManualClock::new();
    let config = config.shards(2).sweep_never().clock(Arc::new(clock.clone()));
    (LocalLocks::with_config(config).expect("it is in range"), clock)
}

fn patient() -> Options {
    Options::new().retry_forever().never_stale()
}

/// Three forced switches find nearly every fault, and keep a model short; `LOOM_MAX_PREEMPTIONS` sets another number.
fn model(check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(check);
}

/// How many threads are where one alone may be.
#[derive(Default)]
struct Inside(AtomicU32);

impl Inside {
    fn visit(&self) {
        assert_eq!(self.0.fetch_add(1, Ordering::Relaxed), 0, "two threads are inside");
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits for a lock, and visits under it.
    fn visit_under(&self, locks: &Locks, keys: impl Into<Keys<u8>>) {
        let guard = locks.acquire_blocking(keys, &patient()).expect("it waits");
        self.visit();
        assert_eq!(guard.release(), ReleaseOutcome::Released);
    }
}

/// Runs `check` in a thread of its own, on the same table.
fn spawn<T: 'static>(
    shared: &Arc<(Locks, T)>,
    check: impl FnOnce(&Locks, &T) + 'static,
) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || check(&shared.0, &shared.1))
}

fn join(
    shared: &Arc<(Locks, impl Sized)>,
    threads: impl IntoIterator<Item = thread::JoinHandle<()>>,
) {
    for thread in threads {
        thread.join().expect("it does not panic");
    }
    assert!(shared.0.is_empty());
}

#[test]
fn two_owners_of_two_keys() {
    model(|| {
        let shared = Arc::new((table().0, [Inside::default(), Inside::default()]));
        let both = |locks: &Locks, inside: &[Inside; 2]| {
            let guard = locks.acquire_blocking([1, 2], &patient()).expect("it waits");
            inside.iter().for_each(Inside::visit);
            drop(guard);
        };
        let one_by_one = |locks: &Locks, inside: &[Inside; 2]| {
            let first = locks.acquire_blocking(1, &patient()).expect("it waits");
            let second = locks.acquire_blocking(2, &patient()).expect("it waits");
            inside.iter().for_each(Inside::visit);
            drop((first, second));
        };
        let threads = [spawn(&shared, both), spawn(&shared, one_by_one)];
        join(&shared, threads);
    });
}

#[test]
fn a_stale_lock_has_one_successor_at_a_time() {
    model(|| {
        let (locks, clock) = table();
        let brief = Options::new().lock_timeout(Duration::from_millis(1));
        let overran = locks.try_acquire(1, &brief).expect("it is free");
        clock.advance(Duration::from_millis(1));
        let shared = Arc::new((locks, Inside::default()));
        let visit = |locks: &Locks, inside: &Inside| inside.visit_under(locks, 1);
        let threads = [spawn(&shared, visit), spawn(&shared, visit)];
        assert_eq!(overran.release(), ReleaseOutcome::Expired);
        join(&shared, threads);
    });
}

#[test]
fn a_wake_up_that_meets_a_cancelled_wait_is_passed_on() {
    model(|| {
        let (locks, _) = table();
        let held = locks.try_acquire(1, &patient()).expect("it is free");
        let shared = Arc::new((locks, Inside::default()));
        let cancels = spawn(&shared, |locks, _| {
            let options = patient();
            let mut request = pin!(locks.acquire(1, &options));
            drop(request.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        });
        let waits = spawn(&shared, |locks, inside| inside.visit_under(locks, 1));
        drop(held);
        join(&shared, [cancels, waits]);
    });
}

#[test]
fn a_waiter_for_two_keys_against_two_for_one() {
    model(|| {
        let (locks, _) = table();
        let held: Guard<u8> = locks.try_acquire([1, 2], &patient()).expect("they are free");
        let shared = Arc::new((locks, [Inside::default(), Inside::default()]));
        let threads = [
            spawn(&shared, |locks, inside| {
                let guard = locks.acquire_blocking([1, 2], &patient()).expect("it waits");
                inside.iter().for_each(Inside::visit);
                drop(guard);
            }),
            spawn(&shared, |locks, inside| inside[0].visit_under(locks, 1)),
            spawn(&shared, |locks, inside| inside[1].visit_under(locks, 2)),
        ];
        drop(held);
        join(&shared, threads);
    });
}

#[test]
fn a_nested_request_of_a_scope_against_a_waiter_for_both_keys() {
    model(|| {
        let shared = Arc::new((table().0, Inside::default()));
        let threads = [
            spawn(&shared, |locks, inside| {
                let nested = locks.with_locks_blocking(1, &patient(), |scope| {
                    scope.lock_blocking(2, &patient()).expect("it is in order");
                    inside.visit();
                });
                assert!(!nested.expect("it waits").was_stale);
            }),
            spawn(&shared, |locks, inside| inside.visit_under(locks, [1, 2])),
        ];
        join(&shared, threads);
    });
}

#[test]
fn two_threads_with_scopes_inside_one_scope() {
    model(|| {
        let (locks, _) = table();
        let run = |outer: &Scope<u8>| {
            let threads = [1, 2].map(|key| {
                let (locks, outer) = (locks.clone(), outer.clone());
                thread::spawn(move || {
                    // Only one request of a scope waits at a time, and in key order.
                    let inner = outer.with_locks_blocking(key, &patient(), |_| {
                        assert!(locks.try_acquire(key, &patient()).is_err(), "it was released");
                    });
                    assert!(inner.map_or_else(|error| error == LockError::OutOfOrder, |_| true));
                })
            });
            for thread in threads {
                thread.join().expect("it does not panic");
            }
        };
        assert!(!locks.with_locks_blocking(0, &patient(), run).expect("it is free").was_stale);
        assert!(locks.is_empty());
    });
}

#[test]
fn the_whole_table_against_a_key() {
    model(|| {
        let shared = Arc::new((table().0, Inside::default()));
        let threads = [
            spawn(&shared, |locks, inside| {
                let guard = locks.acquire_all_blocking(&patient()).expect("it waits");
                inside.visit();
                drop(guard);
            }),
            spawn(&shared, |locks, inside| inside.visit_under(locks, 1)),
        ];
        join(&shared, threads);
    });
}

#[test]
fn the_whole_table_against_keys_that_are_taken_in_order() {
    model(|| {
        let shared = Arc::new((table().0, Inside::default()));
        let threads = [
            spawn(&shared, |locks, inside| {
                let guard = locks.acquire_all_blocking(&patient()).expect("it waits");
                inside.visit();
                drop(guard);
            }),
            spawn(&shared, |locks, inside| {
                let first = locks.acquire_blocking(1, &patient()).expect("it waits");
                let second = locks.acquire_blocking(2, &patient()).expect("it waits");
                inside.visit();
                drop((first, second));
            }),
        ];
        join(&shared, threads);
    });
}

#[test]
fn waiters_and_newcomers_that_overtake_them() {
    model(|| {
        let (locks, _) = table_with(LocksConfig::new().barging(true));
        let held = locks.try_acquire(1, &patient()).expect("it is free");
        let shared = Arc::new((locks, Inside::default()));
        let threads = [
            spawn(&shared, |locks, inside| inside.visit_under(locks, [1, 2])),
            spawn(&shared, |locks, inside| inside.visit_under(locks, 1)),
        ];
        drop(held);
        join(&shared, threads);
    });
}

#[test]
fn the_death_of_an_owner_against_a_waiter() {
    model(|| {
        let (locks, _) = table();
        let owner = OwnerHandle::new();
        let kept =
            locks.try_acquire([1, 2], &patient().owner(&owner)).expect("they are free").keep();
        let shared = Arc::new((locks, Inside::default()));
        let threads = [
            spawn(&shared, |locks, inside| inside.visit_under(locks, 1)),
            spawn(&shared, |locks, inside| inside.visit_under(locks, [1, 2])),
        ];
        drop(owner);
        assert_ne!(shared.0.release(kept), ReleaseOutcome::Released);
        join(&shared, threads);
    });
}
