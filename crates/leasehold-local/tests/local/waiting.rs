//! Waiting: order, wake-ups, cancellation, attempts, time-outs.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};

use std::time::Duration;

use leasehold_core::{Clock, ManualClock, Mode};
use leasehold_local::locks::{Keys, LocalLocks, LockError, LocksConfig, Options, ReleaseOutcome};

use crate::common::*;

#[test]
fn waiters_are_granted_a_key_in_their_order_and_woken_once() {
    let (locks, _clock) = manual();
    let guard = locks.try_acquire("a", &once()).unwrap();
    let [first, mut second] = [(); 2].map(|()| waits(&locks, "a", patient()));
    assert!(locks.try_acquire("a", &once()).is_err());
    drop(guard);
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    assert!(locks.try_acquire("a", &once()).is_err(), "the key was handed over");
    assert!(second.poll().is_pending());
    drop(first.done().unwrap());
    drop(second.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn a_thread_and_a_task_wait_in_one_queue() {
    let (locks, _clock) = manual();
    let guard = locks.try_acquire("a", &once()).unwrap();
    let (order, threads) = (Arc::new(AtomicU32::new(0)), locks.clone());
    let seen = order.clone();
    let thread = std::thread::spawn(move || {
        let guard = threads.acquire_blocking("a", &patient()).unwrap();
        seen.store(1, Ordering::SeqCst);
        guard
    });
    await_waiters(&locks, "a", 1);
    let task = waits(&locks, "a", patient());
    drop(guard);
    assert_eq!(task.wakes(), 0);
    drop(thread.join().unwrap());
    assert_eq!(order.load(Ordering::SeqCst), 1);
    drop(task.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn a_waiting_writer_is_not_starved_by_readers() {
    let (locks, _clock) = manual();
    let reader = locks.try_acquire(Keys::shared("a"), &once()).unwrap();
    let writer = waits(&locks, "a", patient());
    assert!(locks.try_acquire(Keys::shared("a"), &once()).is_err());
    assert!(locks.try_acquire(Keys::all_shared(["a", "b"]), &once()).is_err());
    let readers = [(); 2].map(|()| waits(&locks, Keys::shared("a"), patient()));
    drop(reader);
    let written = writer.done().unwrap();
    assert_eq!(readers.each_ref().map(Task::wakes), [0, 0]);
    drop(written);
    let both = readers.map(|reader| reader.done().unwrap());
    assert_eq!(held(&locks).len(), 2);
    drop(both);
    assert!(locks.is_empty());
}

#[test]
fn readers_behind_a_writer_go_on_when_it_gives_up() {
    let (locks, _clock) = manual();
    let reader = locks.try_acquire(Keys::shared("a"), &once()).unwrap();
    let writer = waits(&locks, "a", patient());
    let second = waits(&locks, Keys::shared("a"), patient());
    drop(writer);
    drop(second.done().unwrap());
    drop(reader);
    assert!(locks.is_empty());
}

#[test]
fn a_cancelled_waiter_leaves_no_trace_and_the_next_gets_its_turn() {
    let (locks, _clock) = manual();
    let guard = locks.try_acquire("a", &once()).unwrap();
    let [first, second, third] = [(); 3].map(|()| waits(&locks, "a", patient()));
    drop(second);
    assert_eq!(entry(&locks, "a").waiters, 2);
    drop(guard);
    assert_eq!((first.wakes(), third.wakes()), (1, 0));
    // It had been granted the key, and passes it on.
    drop(first);
    drop(third.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn a_lock_that_ended_before_its_waiter_learned_of_it_is_asked_for_anew() {
    let (locks, _clock) = manual();
    let guard = locks.try_acquire("a", &once()).unwrap();
    let mut waiter = waits(&locks, "a", patient());
    drop(guard);
    assert_eq!(locks.force_release("a").unwrap(), 1);
    let other = locks.try_acquire("a", &once()).unwrap();
    assert!(waiter.poll().is_pending());
    assert_eq!(entry(&locks, "a").waiters, 1);
    drop(other);
    assert_eq!(waiter.done().unwrap().release(), ReleaseOutcome::Released);
    assert!(locks.is_empty());
}

#[test]
fn a_waiter_that_moved_to_another_task_is_woken_there() {
    struct Counts(AtomicU32);
    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (locks, _clock) = manual();
    let guard = locks.try_acquire("a", &once()).unwrap();
    let options = patient();
    let mut waiter = Box::pin(locks.acquire("a", &options));
    let [before, now] = [(); 2].map(|()| Arc::new(Counts(AtomicU32::new(0))));
    for task in [&before, &now] {
        let waker = Waker::from(task.clone());
        assert!(waiter.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(guard);
    assert_eq!([before, now].map(|task| task.0.load(Ordering::SeqCst)), [0, 1]);
    drop(waiter);
    assert!(locks.is_empty());
}

#[test]
fn a_waker_whose_end_calls_the_table_is_not_dropped_under_a_mutex() {
    struct Calls(LocalLocks<&'static str>);
    impl Wake for Calls {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Calls {
        fn drop(&mut self) {
            assert!(self.0.try_acquire("a", &once()).is_err());
        }
    }
    let (locks, _clock) = manual();
    // Nobody looks at a clock, which would keep wakers, too.
    let guard = locks.try_acquire("a", &once().never_stale()).unwrap();
    let options = Options::new().never_stale().retry_forever();
    let mut first = Box::pin(locks.acquire("a", &options));
    let mut poll = || {
        let waker = Waker::from(Arc::new(Calls(locks.clone())));
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    };
    poll();
    // Replaces the first waker, then takes the second out of the queue.
    poll();
    drop(first);
    drop(guard);
    assert!(locks.is_empty());
}

#[test]
fn a_waiter_for_several_keys_that_is_cancelled_gives_back_all_of_them() {
    let (locks, _clock) = manual();
    let b = locks.try_acquire("b", &once()).unwrap();
    let both = waits(&locks, ["a", "b", "c"], patient());
    let [a, c] = ["a", "c"].map(|key| locks.try_acquire(key, &once()));
    assert!(a.is_err(), "it keeps the key below the one it waits for");
    drop(c.unwrap());
    let a = waits(&locks, "a", patient());
    drop(both);
    drop(a.done().unwrap());
    drop(b);
    assert!(locks.is_empty());
}

#[test]
fn a_waiter_for_several_keys_gets_them_all_at_once() {
    let (locks, _clock) = manual();
    let guards = ["a", "b", "c"].map(|key| locks.try_acquire(key, &once()).unwrap());
    let all = waits(&locks, ["a", "b", "c"], patient());
    for guard in guards {
        assert_eq!(all.wakes(), 0);
        drop(guard);
    }
    assert_eq!(held(&locks).len(), 3);
    drop(all.done().unwrap());
    assert!(locks.is_empty());
}

#[tokio::test]
async fn retries_make_exactly_one_attempt_more() {
    for (retries, exact) in [(0, false), (1, false), (3, false), (0, true), (1, true), (3, true)] {
        let (locks, _clock) = manual();
        let guard = locks.try_acquire("a", &once()).unwrap();
        let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = asked.clone();
        let options = Options::new().retries(retries).interval_by(move |attempt| {
            seen.lock().unwrap().push(attempt);
            Duration::ZERO
        });
        let options = if exact { options.exact_attempts() } else { options };
        let expected = LockError::TimedOut { attempts: retries + 1, waited: Duration::ZERO };
        assert_eq!(locks.acquire("a", &options).await.unwrap_err(), expected);
        assert_eq!(locks.acquire_blocking("a", &options).unwrap_err(), expected);
        let once: Vec<_> = (0..retries).collect();
        assert_eq!(*asked.lock().unwrap(), [once.clone(), once].concat());
        drop(guard);
        assert!(locks.is_empty());
        drop(locks.acquire("a", &options).await.unwrap());
    }
}

#[test]
fn the_default_wait_is_three_intervals_of_ten_to_twenty_milliseconds() {
    let (locks, clock) = manual();
    let guard = locks.try_acquire("a", &patient()).unwrap();
    let mut task = waits(&locks, "a", Options::new());
    let begun = clock.now();
    let error = loop {
        advance_to_next(&clock);
        if let std::task::Poll::Ready(answer) = task.poll() {
            break answer.unwrap_err();
        }
    };
    let waited = clock.now() - begun;
    assert!(waited > 30 * MS && waited <= 60 * MS, "{waited:?}");
    assert_eq!(error, LockError::TimedOut { attempts: 4, waited });
    drop(guard);
    assert!(locks.is_empty());
}

#[test]
fn a_wait_is_woken_before_its_interval_unless_attempts_are_exact() {
    let (locks, clock) = manual();
    let hourly = Options::new().retries(1).interval_by(|_| 3_600 * SECOND).never_stale();
    let guard = locks.try_acquire("a", &patient()).unwrap();
    let woken = waits(&locks, "a", hourly.clone());
    drop(guard);
    let guard = woken.done().unwrap();
    let mut exact = waits(&locks, "a", hourly.exact_attempts());
    assert_eq!(entry(&locks, "a").waiters, 0);
    drop(guard);
    assert_eq!(exact.wakes(), 0);
    assert!(exact.poll().is_pending());
    clock.advance(3_600 * SECOND);
    drop(exact.done().unwrap());
}

#[test]
fn the_deadline_ends_a_wait_whatever_attempts_are_left() {
    let (locks, clock) = manual();
    let guard = locks.try_acquire("a", &patient()).unwrap();
    let [mut forever, mut few] =
        [patient().deadline(5 * SECOND), Options::new().interval(4 * SECOND).deadline(5 * SECOND)]
            .map(|options| waits(&locks, "a", options));
    clock.advance(5 * SECOND - MS);
    assert!(forever.poll().is_pending() && few.poll().is_pending());
    clock.advance(MS);
    for task in [forever, few] {
        let error = task.done().unwrap_err();
        assert!(matches!(error, LockError::TimedOut { waited, .. } if waited == 5 * SECOND));
    }
    drop(guard);
    assert!(locks.is_empty());
}

#[test]
fn a_blocking_wait_ends_by_a_clock_that_the_test_moves() {
    let (locks, clock) = manual();
    let guard = locks.try_acquire("a", &patient()).unwrap();
    let blocked = locks.clone();
    let thread = std::thread::spawn(move || {
        blocked.acquire_blocking("a", &patient().deadline(SECOND)).map(drop)
    });
    await_waiters(&locks, "a", 1);
    advance_to_next(&clock);
    let error = thread.join().unwrap().unwrap_err();
    assert_eq!(error, LockError::TimedOut { attempts: 1, waited: SECOND });
    drop(guard);
    assert!(locks.is_empty());
}

#[test]
fn a_blocking_wait_ends_by_the_machines_clock() {
    let locks = Locks::new();
    let guard = locks.try_acquire("a", &patient()).unwrap();
    let error = locks.acquire_blocking("a", &patient().deadline(20 * MS)).unwrap_err();
    assert!(matches!(error, LockError::TimedOut { waited, .. } if waited >= 20 * MS));
    drop(guard);
}

#[test]
fn a_waiter_for_a_limited_share_waits_for_its_turn() {
    let (locks, _clock) = manual();
    let two = || Keys::one("a", Mode::Shared { max: std::num::NonZeroU32::new(2) });
    let [first, second] = [(); 2].map(|()| locks.try_acquire(two(), &once()).unwrap());
    let third = waits(&locks, two(), patient());
    let fourth = waits(&locks, Keys::shared("a"), patient());
    drop(first);
    let third = third.done().unwrap();
    drop(fourth.done().unwrap());
    drop((second, third));
    assert!(locks.is_empty());
}

fn barging() -> Locks {
    let config = LocksConfig::new().barging(true).sweep_never();
    let config = config.clock(Arc::new(ManualClock::new()));
    LocalLocks::with_config(config).expect("it is in range")
}

#[test]
fn newcomers_overtake_waiters_only_where_barging_is_on() {
    let locks = barging();
    let guard = locks.try_acquire("a", &once()).unwrap();
    let [mut first, mut second] = [(); 2].map(|()| waits(&locks, "a", patient()));
    drop(guard);
    assert_eq!((first.wakes(), second.wakes()), (1, 0));
    let newcomer = locks.try_acquire("a", &once()).unwrap();
    assert!(first.poll().is_pending() && second.poll().is_pending());
    drop(newcomer);
    assert_eq!((first.wakes(), second.wakes()), (2, 0));
    drop(first.done().unwrap());
    drop(second.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn where_barging_is_on_a_waiter_for_one_key_is_overtaken_16_times() {
    let locks = barging();
    let mut held = locks.try_acquire("a", &once()).ok();
    let mut first = waits(&locks, "a", patient());
    let mut overtaken = 0;
    while held.is_some() {
        drop(held.take());
        held = locks.try_acquire("a", &once()).ok();
        if held.is_some() {
            overtaken += 1;
            assert!(overtaken <= 16 && first.poll().is_pending());
        }
    }
    assert_eq!(overtaken, 16);
    drop(first.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn where_barging_is_on_a_waiter_that_cannot_go_on_lets_the_next_try() {
    let locks = barging();
    let [a, b] = ["a", "b"].map(|key| locks.try_acquire(key, &once()).unwrap());
    let mut both = waits(&locks, ["a", "b"], patient());
    let [second, third] = [(); 2].map(|()| waits(&locks, "a", patient()));
    drop(a);
    assert_eq!((both.wakes(), second.wakes()), (1, 0));
    assert!(both.poll().is_pending());
    assert_eq!((second.wakes(), third.wakes()), (1, 0));
    // It was to try, and lets the first do so again, which lets the next.
    drop(second);
    assert_eq!((both.wakes(), third.wakes()), (2, 0));
    assert!(both.poll().is_pending());
    drop(third.done().unwrap());
    drop(b);
    drop(both.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn where_barging_is_on_who_waited_before_the_whole_table_goes_first() {
    let locks = barging();
    let [a, b] = ["a", "b"].map(|key| locks.try_acquire(key, &once()).unwrap());
    let mut before = waits(&locks, ["a", "b"], patient());
    let all = waits_for_all(&locks, patient());
    drop(a);
    assert!(before.poll().is_pending());
    drop(b);
    drop(before.done().unwrap());
    drop(all.done().unwrap());
    assert!(locks.is_empty());
}

#[test]
fn the_whole_table_excludes_keys_where_barging_is_on() {
    let locks = barging();
    let guard = locks.try_acquire("b", &once()).unwrap();
    let all = waits_for_all(&locks, patient());
    assert!(locks.try_acquire("a", &once()).is_err());
    drop(guard);
    let all = all.done().unwrap();
    let both = waits(&locks, ["a", "b"], patient());
    drop(all);
    drop(both.done().unwrap());
    assert!(locks.is_empty());
}
