//! Stale locks: terms and sweeps.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use leasehold_core::{BoxFuture, Clock, ManualClock};
use leasehold_local::locks::{Keys, LocalLocks, LocksConfig, Options, ReleaseOutcome};

use crate::common::*;

fn short() -> Options {
    Options::new().lock_timeout(SECOND)
}

#[test]
fn c6_at_exactly_its_term_a_lock_is_stale_and_whoever_asks_gets_it() {
    let (locks, clock) = manual();
    let overran = locks.try_acquire(["a", "b"], &short()).unwrap();
    clock.advance(SECOND - Duration::from_nanos(1));
    assert!(!overran.is_stale() && locks.try_acquire("a", &once()).is_err());
    clock.advance(Duration::from_nanos(1));
    assert!(overran.is_stale());
    let successor = locks.try_acquire("a", &patient()).unwrap();
    assert_eq!(overran.release(), ReleaseOutcome::Expired);
    assert_eq!(held(&locks), [Some("a")]);
    assert_eq!(successor.release(), ReleaseOutcome::Released);
    assert!(locks.is_empty());
}

#[test]
fn who_overran_hands_a_key_that_another_has_by_now_to_nobody() {
    let (locks, clock) = manual();
    let overran = locks.try_acquire("a", &short()).unwrap();
    clock.advance(SECOND);
    let successor = locks.try_acquire("a", &Options::new().never_stale()).unwrap();
    let mut next = waits(&locks, "a", patient());
    drop(overran);
    assert!(next.poll().is_pending() && next.wakes() == 0);
    assert_eq!(successor.release(), ReleaseOutcome::Released);
    drop(next.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn an_overrun_that_nobody_noticed_is_told_too() {
    let (locks, clock) = manual();
    let guard = locks.try_acquire("a", &short()).unwrap();
    let all = locks.try_acquire("b", &short()).unwrap().keep();
    clock.advance(2 * SECOND);
    assert_eq!(guard.release(), ReleaseOutcome::Expired);
    assert_eq!(locks.release(all), ReleaseOutcome::Expired);
    let all = locks.try_acquire_all(&short()).unwrap();
    clock.advance(2 * SECOND);
    assert_eq!(all.release(), ReleaseOutcome::Expired);
    assert!(locks.is_empty());
}

#[test]
fn the_end_of_a_term_wakes_waiters() {
    let (locks, clock) = manual();
    let guard = locks.try_acquire("a", &short()).unwrap();
    let task = waits(&locks, "a", patient());
    let both = waits(&locks, ["a", "b"], patient());
    let all = waits_for_all(&locks, patient());
    assert_eq!(clock.next_wake(), Some(clock.now() + SECOND));
    clock.advance(SECOND);
    drop(task.done().unwrap());
    drop(both.done().unwrap());
    drop(all.done().unwrap());
    assert_eq!(guard.release(), ReleaseOutcome::Expired);
    assert!(locks.is_empty());
}

#[test]
fn a_waiter_learns_of_a_later_holder_whose_term_is_shorter() {
    let (locks, clock) = manual();
    let long = locks.try_acquire("a", &short().lock_timeout(10 * SECOND)).unwrap();
    let second = waits(&locks, "a", short().retry_forever());
    let mut third = waits(&locks, "a", patient());
    drop(long);
    let second = second.done().unwrap();
    assert!(third.poll().is_pending());
    assert_eq!(clock.next_wake(), Some(clock.now() + SECOND));
    clock.advance(SECOND);
    drop(third.done().unwrap());
    assert_eq!(second.release(), ReleaseOutcome::Expired);
}

#[test]
fn waiters_look_at_the_end_of_a_lock_of_several_keys_and_of_the_whole_table() {
    let (locks, clock) = manual();
    let b = locks.try_acquire("b", &patient()).unwrap();
    let both = waits(&locks, ["a", "b"], short().retry_forever());
    let mut a = waits(&locks, "a", patient());
    drop(b);
    let both = both.done().unwrap();
    assert!(a.poll().is_pending());
    clock.advance(SECOND);
    drop(a.done().unwrap());
    drop(both);
    let b = locks.try_acquire("b", &patient()).unwrap();
    let all = waits_for_all(&locks, short().retry_forever());
    let mut other = waits_for_all(&locks, patient());
    let mut a = waits(&locks, "a", patient());
    drop(b);
    let all = all.done().unwrap();
    assert!(a.poll().is_pending() && other.poll().is_pending());
    clock.advance(SECOND);
    assert!(a.poll().is_pending(), "the other came first");
    drop(other.done().unwrap());
    drop(a.done().unwrap());
    assert_eq!(all.release(), ReleaseOutcome::Expired);
    assert!(locks.is_empty());
}

#[test]
fn a_waiter_learns_of_the_term_of_a_lock_of_the_whole_table_that_came_before() {
    let (locks, clock) = manual();
    let b = locks.try_acquire("b", &patient()).unwrap();
    let all = waits_for_all(&locks, short().retry_forever());
    let mut a = waits(&locks, "a", patient());
    drop(b);
    let all = all.done().unwrap();
    assert!(a.poll().is_pending());
    clock.advance(SECOND);
    drop(a.done().unwrap());
    assert_eq!(all.release(), ReleaseOutcome::Expired);
    assert!(locks.is_empty());
}

#[test]
fn a_blocking_waiter_goes_on_at_the_end_of_a_term() {
    let (locks, clock) = manual();
    let _guard = locks.try_acquire("a", &short()).unwrap();
    let blocked = locks.clone();
    let thread = std::thread::spawn(move || drop(blocked.acquire_blocking("a", &patient())));
    await_waiters(&locks, "a", 1);
    advance_to_next(&clock);
    thread.join().unwrap();
    assert!(locks.is_empty());
}

#[test]
fn a_sweep_removes_stale_locks_in_batches_and_counts_them() {
    let clock = ManualClock::new();
    let config = LocksConfig::new().clock(Arc::new(clock.clone())).sweep_batch(5).sweep_never();
    let locks: LocalLocks<u32> = LocalLocks::with_config(config.shards(2)).unwrap();
    assert_eq!(locks.sweep().removed, 0);
    for key in 0..100 {
        locks.try_acquire(key, &short()).unwrap().keep();
    }
    let live = locks.try_acquire(Keys::shared(200), &patient()).unwrap();
    let _stale = locks.try_acquire(Keys::shared(200), &short()).unwrap();
    assert_eq!(locks.sweep().removed, 0);
    clock.advance(SECOND);
    let swept = locks.sweep();
    assert_eq!((swept.sweeps, swept.removed), (1, 101));
    assert!((20..=24).contains(&swept.batches), "{swept:?}");
    assert_eq!((locks.swept().sweeps, locks.swept().removed), (3, 101));
    assert_eq!(held(&locks), [Some(200)]);
    assert_eq!(live.release(), ReleaseOutcome::Released);
    assert!(locks.is_empty());
}

#[test]
fn stale_keys_keep_nobody_from_the_whole_table() {
    let clock = ManualClock::new();
    let config = LocksConfig::new().clock(Arc::new(clock.clone())).shards(1);
    let locks: LocalLocks<u32> = LocalLocks::with_config(config).unwrap();
    let _overran = [0, 1].map(|key| locks.try_acquire(key, &short()).unwrap());
    assert!(locks.try_acquire_all(&once()).is_err());
    clock.advance(SECOND);
    assert_eq!(locks.try_acquire_all(&once()).unwrap().release(), ReleaseOutcome::Released);
    assert!(locks.is_empty());
}

#[test]
fn two_keys_fill_a_batch_of_two() {
    let clock = ManualClock::new();
    let config = LocksConfig::new().clock(Arc::new(clock.clone())).sweep_batch(2).sweep_never();
    let mut batches = 0;
    for _ in 0..30 {
        let locks: LocalLocks<u32> = LocalLocks::with_config(config.clone().shards(1)).unwrap();
        for key in 0..2 {
            locks.try_acquire(key, &short()).unwrap().keep();
        }
        clock.advance(SECOND);
        let swept = locks.sweep();
        assert_eq!(swept.removed, 2);
        batches += swept.batches;
        assert!(locks.is_empty());
    }
    assert!(
        batches > 30,
        "there is an empty batch behind a full one, unless its last key is in the last place of the map"
    );
}

#[test]
fn a_sweep_misses_no_lock_while_others_make_the_table_smaller() {
    let clock = ManualClock::new();
    let config = LocksConfig::new().clock(Arc::new(clock.clone())).sweep_batch(1).sweep_never();
    let locks: LocalLocks<u64> = LocalLocks::with_config(config.shards(1)).unwrap();
    for key in 0..20_000 {
        locks.try_acquire(key, &short()).unwrap().keep();
    }
    /// Locks another key and unlocks it, between two batches.
    struct Other(LocalLocks<u64>);
    impl Wake for Other {
        fn wake(self: Arc<Self>) {
            drop(self.0.try_acquire(20_000, &patient()).unwrap());
        }
    }
    let waker = Waker::from(Arc::new(Other(locks.clone())));
    let options = patient();
    let mut waiters: Vec<_> =
        (0..200).map(|key| Box::pin(locks.acquire(100 * key, &options))).collect();
    for waiter in &mut waiters {
        assert!(waiter.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    clock.advance(SECOND);
    assert_eq!(locks.sweep().removed, 20_000);
}

#[test]
fn a_sweep_lets_waiters_go_on() {
    let (locks, clock) = manual();
    let _a = locks.try_acquire("a", &short()).unwrap();
    let task = waits(&locks, "a", patient());
    clock.advance(SECOND);
    assert_eq!(locks.sweep().removed, 1);
    assert_eq!(entry(&locks, "a").waiters, 0, "the waiter has it before it looks itself");
    drop(task.done().unwrap());
    let _all = locks.try_acquire_all(&short()).unwrap();
    let task = waits(&locks, "a", patient());
    clock.advance(SECOND);
    locks.sweep();
    drop(task.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn the_first_lock_that_can_go_stale_starts_periodic_sweeps() {
    let clock = ManualClock::new();
    let config = LocksConfig::new().clock(Arc::new(clock.clone())).sweep_every(60 * SECOND);
    let locks: Locks = LocalLocks::with_config(config).unwrap();
    let _never = locks.try_acquire("n", &patient()).unwrap();
    assert_eq!(clock.next_wake(), None);
    for round in 1..=3 {
        locks.try_acquire("a", &short()).unwrap().keep();
        advance_to_next(&clock);
        while locks.swept().sweeps < round {
            std::thread::yield_now();
        }
        assert_eq!(locks.swept().removed, round);
    }
    drop(locks);
}

#[test]
fn a_lock_that_is_taken_anew_is_never_swept() {
    let locks: LocalLocks<u32> = LocalLocks::new();
    let stop = AtomicU32::new(0);
    let brief = Options::new().lock_timeout(MS / 1_000);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while stop.load(Ordering::Relaxed) == 0 {
                locks.sweep();
            }
        });
        for round in 0..2_000 {
            let _stale = locks.acquire_blocking(round % 3, &brief).unwrap().keep();
            let fresh = locks.acquire_blocking(round % 3, &patient()).unwrap();
            assert_eq!(fresh.release(), ReleaseOutcome::Released);
        }
        stop.store(1, Ordering::Relaxed);
    });
    assert!(locks.is_empty());
}

/// A clock that goes on by a millisecond whenever it is read.
#[derive(Debug)]
struct Ticking(ManualClock);

impl Clock for Ticking {
    fn now(&self) -> Duration {
        self.0.advance(MS);
        self.0.now()
    }

    fn wall_micros(&self) -> u64 {
        self.0.wall_micros()
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep_until(at)
    }

    fn park_limit(&self, _at: Duration) -> Option<Duration> {
        Some(MS)
    }
}

#[test]
fn a_lock_may_go_stale_at_any_point_of_a_request() {
    for barging in [false, true] {
        let config = LocksConfig::new().clock(Arc::new(Ticking(ManualClock::new())));
        let config = config.sweep_never().barging(barging);
        let locks: Locks = LocalLocks::with_config(config).unwrap();
        for timeout in 1..30 {
            let brief = Options::new().lock_timeout(timeout * MS);
            for keys in [vec!["a"], vec!["a", "b"]] {
                let _overran = locks.try_acquire(keys.clone(), &brief).unwrap();
                drop(locks.acquire_blocking(keys, &patient()).unwrap());
                let _overran = locks.try_acquire("b", &brief).unwrap();
                drop(locks.acquire_all_blocking(&patient()).unwrap());
                let _overran = locks.try_acquire_all(&brief).unwrap();
                drop(locks.acquire_blocking("b", &patient()).unwrap());
            }
        }
        assert!(locks.is_empty());
    }
}

#[test]
fn where_barging_is_on_a_waiter_learns_when_the_lock_of_who_tried_before_goes_stale() {
    let clock = ManualClock::new();
    let config = LocksConfig::new().clock(Arc::new(clock.clone())).barging(true).sweep_never();
    let locks: Locks = LocalLocks::with_config(config).unwrap();
    let never = locks.try_acquire("a", &patient()).unwrap();
    let second = waits(&locks, "a", short().retry_forever());
    let mut third = waits(&locks, "a", patient());
    drop(never);
    let second = second.done().unwrap();
    assert!(third.poll().is_pending());
    assert_eq!(clock.next_wake(), Some(clock.now() + SECOND));
    clock.advance(SECOND);
    drop(third.done().unwrap());
    assert_eq!(second.release(), ReleaseOutcome::Expired);
}
