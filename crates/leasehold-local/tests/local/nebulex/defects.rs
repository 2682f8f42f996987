//! The 12 defects of the original: none of them here.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};

use leasehold_core::{Clock, ManualClock};
use leasehold_local::locks::{Keys, LocalLocks, LockError, LocksConfig, Options, ReleaseOutcome};

use crate::common::*;

/// The original looked a stale record up and then deleted by key, and so deleted the winner's record.
#[test]
fn defect_01_a_stale_lock_has_one_winner() {
    let (locks, clock) = manual();
    let rounds = 10_000;
    let (start, end, winners) = (Barrier::new(3), Barrier::new(3), AtomicU32::new(0));
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                for _ in 0..rounds {
                    start.wait();
                    let won = locks.try_acquire("key", &patient());
                    winners.fetch_add(u32::from(won.is_ok()), Ordering::Relaxed);
                    end.wait();
                }
            });
        }
        for round in 1..=rounds {
            locks.try_acquire("key", &Options::new().lock_timeout(MS)).unwrap().keep();
            clock.advance(MS);
            start.wait();
            end.wait();
            assert_eq!(winners.load(Ordering::Relaxed), round);
            // The winner's guard ends after the barrier.
            while !locks.is_empty() {
                std::thread::yield_now();
            }
        }
    });
}

/// The original's sweep deleted by key what had been taken anew since it looked.
#[test]
fn defect_02_a_sweep_never_removes_a_fresh_lock() {
    let (locks, clock) = manual();
    let stop = AtomicU32::new(0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while stop.load(Ordering::Relaxed) == 0 {
                locks.sweep();
            }
        });
        for _ in 0..5_000 {
            let stale = locks.acquire_blocking("key", &Options::new().lock_timeout(MS)).unwrap();
            clock.advance(MS);
            let fresh = locks.acquire_blocking("key", &patient()).unwrap();
            assert_eq!(stale.release(), ReleaseOutcome::Expired);
            assert_eq!(fresh.release(), ReleaseOutcome::Released);
        }
        stop.store(1, Ordering::Relaxed);
    });
    assert!(locks.is_empty());
}

/// The original's release deleted by key, whoever held it.
#[test]
fn defect_03_a_late_release_does_not_end_the_successors_lock() {
    let (locks, clock) = manual();
    let overran = locks.acquire_blocking("key", &Options::new().lock_timeout(MS)).unwrap();
    let kept = locks.acquire_blocking("kept", &Options::new().lock_timeout(MS)).unwrap().keep();
    clock.advance(MS);
    let successors = ["key", "kept"].map(|key| locks.acquire_blocking(key, &patient()).unwrap());
    assert_eq!(overran.release(), ReleaseOutcome::Expired);
    assert_eq!(locks.release(kept), ReleaseOutcome::NotHeld);
    assert!(locks.try_acquire("key", &once()).is_err());
    assert!(locks.try_acquire("kept", &once()).is_err());
    assert_eq!(successors.map(|guard| guard.release()), [ReleaseOutcome::Released; 2]);
}

#[tokio::test]
async fn defect_04_no_retries_are_one_attempt() {
    let locks = Locks::new();
    let none = Options::new().retries(0);
    drop(locks.acquire_blocking("key", &none).unwrap());
    drop(locks.acquire("key", &none).await.unwrap());
    drop(locks.acquire_blocking(["a", "b"], &none).unwrap());
    drop(locks.acquire_all_blocking(&none).unwrap());
}

#[test]
fn defect_05_a_table_that_is_never_swept_works() {
    let clock = ManualClock::new();
    let config = LocksConfig::new().clock(Arc::new(clock.clone())).sweep_never();
    let locks: Locks = LocalLocks::with_config(config).unwrap();
    locks.acquire_blocking("key", &Options::new().lock_timeout(MS)).unwrap().keep();
    clock.advance(SECOND);
    assert_eq!((clock.next_wake(), locks.swept().sweeps), (None, 0));
    drop(locks.acquire_blocking("key", &once()).unwrap());
    assert!(locks.is_empty());
}

/// The original waited for itself, and then stole from itself.
#[test]
fn defect_06_who_asks_for_its_own_key_is_told_at_once() {
    let (locks, clock) = manual();
    let forever = Options::new().retry_forever();
    let begun = clock.now();
    let done = locks.with_locks_blocking("key", &forever, |scope| {
        let error = locks.acquire_blocking("key", &forever).unwrap_err();
        assert_eq!(
            (error, scope.lock_blocking("key", &forever)),
            (LockError::HeldByThisScope, Ok(()))
        );
    });
    assert!(!done.unwrap().was_stale);
    assert_eq!(clock.now(), begun);
}

#[test]
fn defect_07_the_global_lock_and_keys_exclude_each_other() {
    let (locks, _clock) = manual();
    let key = locks.try_acquire("key", &patient()).unwrap();
    let all = waits_for_all(&locks, patient());
    drop(key);
    let all = all.done().unwrap();
    let key = waits(&locks, Keys::shared("key"), patient());
    drop(all);
    drop(key.done().unwrap());
}

#[test]
fn defect_08_a_nested_transaction_locks_its_keys() {
    let locks = Locks::new();
    locks
        .with_locks_blocking("a", &once(), |scope| {
            scope.lock_blocking("b", &once()).unwrap();
            let elsewhere = || locks.try_acquire("b", &once()).map(drop);
            let refused = std::thread::scope(|threads| threads.spawn(elsewhere).join().unwrap());
            assert_eq!(refused, Err(LockError::Held));
        })
        .unwrap();
}

/// The original's table died with the process that owned it.
#[test]
fn defect_09_no_panic_ends_the_table() {
    let locks = Locks::new();
    let guard = locks.acquire_blocking("a", &patient()).unwrap();
    let panics = locks.clone();
    let panicked = std::thread::spawn(move || {
        let _guard = panics.acquire_blocking("b", &patient()).unwrap();
        panics.with_locks_blocking("c", &patient(), |_| panic!("on purpose")).map(drop)
    });
    assert!(panicked.join().is_err());
    assert_eq!(held(&locks), [Some("a")]);
    assert_eq!(guard.release(), ReleaseOutcome::Released);
    assert!(locks.try_acquire(["a", "b", "c"], &once()).is_ok());
}

#[test]
fn defect_10_a_step_of_the_wall_clock_changes_no_term() {
    let (locks, clock) = manual();
    let guard = locks.acquire_blocking("key", &Options::new()).unwrap();
    let wall = clock.wall_micros();
    clock.set_wall_micros(wall + 3_600_000_000);
    assert!(!guard.is_stale() && locks.try_acquire("key", &once()).is_err());
    clock.set_wall_micros(wall - 3_600_000_000);
    clock.advance(30 * SECOND);
    assert!(guard.is_stale() && locks.try_acquire("key", &once()).is_ok());
}

#[test]
fn defect_11_waiters_take_turns_have_a_deadline_and_overrun_holders_are_told() {
    let (locks, clock) = manual();
    let overran = locks.acquire_blocking("key", &Options::new()).unwrap();
    let [first, mut second] = [(); 2].map(|()| waits(&locks, "key", patient()));
    let late = waits(&locks, "key", patient().deadline(SECOND));
    clock.advance(SECOND);
    assert!(matches!(late.done(), Err(LockError::TimedOut { .. })));
    clock.advance(29 * SECOND);
    let first = first.done().unwrap();
    assert!(second.poll().is_pending());
    drop(first);
    drop(second.done().unwrap());
    assert_eq!(overran.release(), ReleaseOutcome::Expired);
}

#[test]
fn defect_12_a_key_that_is_named_twice_counts_once() {
    let locks = Locks::new();
    let guard = locks.acquire_blocking(["a", "b", "a"], &once()).unwrap();
    assert_eq!(guard.keys().count(), 2);
    let shared = Keys::shared("c").and("c", leasehold_core::Mode::SHARED);
    assert_eq!(locks.acquire_blocking(shared, &once()).unwrap().keys().count(), 1);
}
