//! F1 and F2: how a caller waits, and what it is told after waiting in vain.

use std::time::Duration;

use crate::support::{Fault, Flaky, Sent, ms, secs, taken};
use leasehold::backoff::Fixed;
use leasehold::{Error, ErrorKind, LostReason, Wait, WaitCause, WaitReport};

#[tokio::test(start_paused = true)]
async fn a_free_key_is_taken_by_the_first_try_without_subscribing() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").await.unwrap();
    assert!(guard.is_held() && guard.is_fresh());
    assert_eq!(store.log(), [Sent::Check, Sent::Acquire(guard.lease().id.clone())]);
}

#[tokio::test(start_paused = true)]
async fn no_wait_is_one_try_and_reports_who_holds() {
    let store = Flaky::new();
    let other = store.others().lock("k").comment("nightly").await.unwrap();
    let error = store.locks().lock("k").wait(Wait::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Held);
    let report = error.wait_report().unwrap();
    assert_eq!((report.tries, report.key.as_str()), (1, "k"));
    assert_eq!(report.holder.as_ref().unwrap().id.as_ref(), Some(&other.lease().id));
    assert!(error.to_string().contains("(nightly)"), "{error}");
    assert_eq!(error.retry_after(), Some(secs(30)), "the holder's term");
    assert_eq!(store.acquires().len(), 1);
    assert!(store.locks().try_lock("k").await.unwrap().is_none());
    other.release().await.unwrap();
    assert!(store.locks().try_lock("k").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn after_a_refusal_it_subscribes_then_tries_then_waits() {
    let store = Flaky::new();
    let other = taken(&store, "k", secs(30)).await;
    let waiter = crate::support::spawn(store.locks().lock("k").wait(Wait::Forever).into_future());
    store.until(|log| log.len() == 4).await;
    let log = store.log();
    assert!(
        matches!(&log[..], [Sent::Check, Sent::Acquire(a), Sent::Subscribe, Sent::Acquire(b)] if a != b),
        "{log:?}"
    );
    let before = store.now();
    other.release().await.unwrap();
    drop(waiter.await.unwrap().unwrap());
    assert_eq!(store.now(), before, "woken by the store, not by a timer");
}

#[tokio::test(start_paused = true)]
async fn each_try_has_an_id_of_its_own() {
    let store = Flaky::with_push(false);
    let _other = taken(&store, "k", secs(30)).await;
    store.locks().lock("k").wait(Wait::Attempts(20)).await.unwrap_err();
    let mut ids = store.acquires();
    assert_eq!(ids.len(), 20);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn attempts_are_exact_and_at_least_one_without_subscribing() {
    for (asked, made) in [(0, 1), (1, 1), (5, 5)] {
        let store = Flaky::new();
        let _other = taken(&store, "k", secs(300)).await;
        let pauses = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = pauses.clone();
        let backoff = move |retry: u32| {
            seen.lock().unwrap().push(retry);
            Some(ms(10))
        };
        let error =
            store.locks().lock("k").wait(Wait::Attempts(asked)).backoff(backoff).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(error.wait_report().unwrap().tries, made);
        assert_eq!(store.acquires().len(), made as usize);
        assert!(!store.log().contains(&Sent::Subscribe));
        let retries: Vec<u32> = (0..made - 1).collect();
        assert_eq!(*pauses.lock().unwrap(), retries, "n tries, n - 1 pauses");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_retry_after_without_any_wake_up() {
    let store = Flaky::new();
    let other = taken(&store, "k", secs(5)).await;
    let end = store.now() + secs(5);
    other.detach();
    drop(store.locks().lock("k").wait(Wait::Forever).await.unwrap());
    assert_eq!(store.now(), end, "at the holder's term, to the millisecond");
}

#[tokio::test(start_paused = true)]
async fn lost_wake_ups_are_backed_by_a_poll_of_ten_seconds() {
    let store = Flaky::new();
    let _other = taken(&store, "k", secs(3_600)).await;
    let before = store.now();
    let error = store.locks().lock("k").wait(Wait::UpTo(secs(100))).await.unwrap_err();
    let waited = store.now() - before;
    assert!(waited >= secs(100) && waited < secs(101), "{waited:?}");
    let tries = error.wait_report().unwrap().tries;
    assert!((11..=14).contains(&tries), "two at once, one every 9 to 11 s, a last one: {tries}");
}

#[tokio::test(start_paused = true)]
async fn waiters_that_are_not_woken_ask_often_for_ten_seconds_and_then_every_two() {
    for (wait, expected) in [(10, 25..=80), (100, 65..=130)] {
        let store = Flaky::with_push(false);
        let _other = taken(&store, "k", secs(3_600)).await;
        let error = store.locks().lock("k").wait(Wait::UpTo(secs(wait))).await.unwrap_err();
        let tries = error.wait_report().unwrap().tries;
        assert!(expected.contains(&tries), "{tries} in {wait} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_in_a_pause_makes_one_last_try() {
    let store = Flaky::with_push(false);
    let other = taken(&store, "k", secs(3_600)).await;
    let long = |_: u32| Some(secs(1_000));
    let waiting = store.locks().lock("k").wait(secs(10)).backoff(long).into_future();
    let waiter = crate::support::spawn(waiting);
    store.until(|log| log.len() == 2).await;
    other.release().await.unwrap();
    let before = store.now();
    drop(waiter.await.unwrap().unwrap());
    assert_eq!(store.now() - before, secs(10));
    assert_eq!(store.acquires().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_time_out_in_flight_returns_at_once_and_leaves_nothing() {
    let store = Flaky::new();
    store.on_acquire([Fault::SlowReply(secs(5))]);
    let before = store.now();
    let error = store.locks().lock("k").wait(secs(2)).await.unwrap_err();
    assert_eq!(store.now() - before, secs(2));
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let cause = &error.wait_report().unwrap().cause;
    assert!(matches!(cause, WaitCause::Store(e) if e.effect() == leasehold::Effect::Unknown));
    assert!(!store.is_free("k").await, "it was granted");
    store.until_free("k").await;
    let after = store.now() - before;
    assert!(after < secs(5) + ms(2), "released as soon as the reply was learnt: {after:?}");
}

#[tokio::test(start_paused = true)]
async fn the_report_has_key_time_tries_and_cause() {
    let store = Flaky::new();
    let _other = taken(&store, "b", secs(60)).await;
    let error = store.locks().lock_all(["a", "b"]).wait(secs(3)).await.unwrap_err();
    let report = error.wait_report().unwrap();
    assert_eq!(report.key.as_str(), "b", "the key that refused");
    assert_eq!(report.waited, secs(3));
    assert_eq!(report.tries, 3, "at once, after subscribing, at the end");
    assert!(matches!(report.cause, WaitCause::Held));
    assert!(error.to_string().contains("3 tries in 3.000 s"), "{error}");
    assert_eq!(error.retry_after(), Some(secs(57)), "the rest of the holder's term");
}

#[tokio::test(start_paused = true)]
async fn a_back_off_that_stops_ends_the_wait() {
    let store = Flaky::with_push(false);
    let _other = taken(&store, "k", secs(60)).await;
    let twice = |retry: u32| (retry < 2).then_some(ms(5));
    let error = store.locks().lock("k").wait(Wait::Forever).backoff(twice).await.unwrap_err();
    let report = error.wait_report().unwrap();
    assert_eq!(report.tries, 3);
    assert!(matches!(report.cause, WaitCause::Exhausted));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_with_its_own_back_off_holds_up_no_queue() {
    let store = Flaky::with_push(false);
    let other = taken(&store, "k", secs(3_000)).await;
    let locks = store.locks();
    let slow = locks.lock("k").wait(Wait::Forever).backoff(Fixed::new(secs(300)));
    let slow = crate::support::spawn(slow.into_future());
    store.until(|log| !log.is_empty()).await;
    let usual = crate::support::spawn(locks.lock("k").wait(Wait::Forever).into_future());
    store.until_acquires(2).await;
    other.release().await.unwrap();
    let before = store.now();
    drop(usual.await.unwrap().unwrap());
    assert!(store.now() - before <= secs(1), "after {:?}", store.now() - before);
    drop(slow.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn each_try_after_which_a_wait_continues_is_reported_with_its_cause() {
    let store = Flaky::with_push(false);
    let _other = taken(&store, "k", secs(300)).await;
    store.on_acquire([Fault::None, Fault::Unreachable]);
    let (tell, told) = std::sync::mpsc::channel();
    let request = store.locks().lock("k").on_blocked(move |report: &WaitReport| {
        tell.send(report.clone()).unwrap();
    });
    request.clone().wait(Wait::Attempts(4)).await.unwrap_err();
    let reports: Vec<_> = told.try_iter().collect();
    assert_eq!(reports.iter().map(|report| report.tries).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(matches!(reports[0].cause, WaitCause::Held), "{reports:?}");
    assert!(matches!(reports[1].cause, WaitCause::Store(_)), "{reports:?}");
    assert!(matches!(reports[2].cause, WaitCause::Held), "{reports:?}");
    assert!(reports.iter().all(|report| report.holder.is_some()), "{reports:?}");
    request.wait(Wait::No).await.unwrap_err();
    assert_eq!(told.try_iter().count(), 0, "the wait does not continue");
}

#[tokio::test(start_paused = true)]
async fn a_wait_survives_a_passing_store_failure_and_ends_at_a_lasting_one() {
    let store = Flaky::new();
    store.on_acquire([Fault::Unreachable, Fault::Unreachable]);
    drop(store.locks().lock("k").await.unwrap());
    assert_eq!(store.acquires().len(), 3);

    let store = Flaky::new();
    store.on_acquire([Fault::Unreachable, Fault::Denied]);
    let error = store.locks().lock("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert_eq!(store.acquires().len(), 2);

    let store = Flaky::new();
    let locks = store.locks();
    locks.check().await.unwrap();
    store.down(Fault::Unreachable);
    let error = locks.lock("k").wait(secs(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "never reported as held");
    assert!(matches!(error.wait_report().unwrap().cause, WaitCause::Store(_)));
    let error = locks.lock("k").wait(Wait::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = locks.try_lock("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "a failure is no `None`");
}

/// A release wakes it, and no other release would.
#[tokio::test(start_paused = true)]
async fn after_a_store_failure_the_pause_is_shorter_than_the_slow_poll() {
    let store = Flaky::new();
    let other = taken(&store, "k", secs(600)).await;
    let waiter = crate::support::spawn(store.locks().lock("k").wait(Wait::Forever).into_future());
    store.until_acquires(2).await;
    store.on_acquire([Fault::Unreachable; 3]);
    let before = store.now();
    other.release().await.unwrap();
    drop(waiter.await.unwrap().unwrap());
    assert!(store.now() - before < ms(100), "three pauses from 10 ms on");
}

#[tokio::test(start_paused = true)]
async fn callers_with_equal_claims_queue_and_only_the_first_requests_the_lock() {
    let store = Flaky::new();
    let other = taken(&store, "k", secs(3_600)).await;
    let locks = store.locks();
    let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
    for caller in 0..100 {
        let (locks, sender) = (locks.clone(), sender.clone());
        crate::support::spawn(async move {
            let guard = locks.lock("k").wait(Wait::Forever).await.unwrap();
            sender.send(caller).unwrap();
            guard.release().await.unwrap();
        });
        tokio::task::yield_now().await;
    }
    store.until(|log| log.contains(&Sent::Subscribe)).await;
    tokio::time::sleep(secs(60)).await;
    let tries = store.acquires().len();
    assert!(tries <= 10, "one caller polls every 10 s, not a hundred: {tries}");
    let before = store.now();
    other.release().await.unwrap();
    for expected in 0..100 {
        assert_eq!(order.recv().await, Some(expected), "in the order of arrival");
    }
    assert!(store.now() - before < ms(1), "each release wakes the next directly");
}

#[tokio::test(start_paused = true)]
async fn a_shared_grant_passes_the_turn_on_at_once() {
    let store = Flaky::new();
    let locks = store.locks();
    let one = locks.lock("k").shared().await.unwrap();
    let two = locks.lock("k").shared().await.unwrap();
    let three = locks.lock("k").permits(3).await.unwrap();
    assert!(one.is_held() && two.is_held() && three.is_held());
    let fourth = locks.lock("k").permits(3).wait(Wait::No).await.unwrap_err();
    assert_eq!(fourth.kind(), ErrorKind::Held);
}

#[tokio::test(start_paused = true)]
async fn no_and_attempts_never_queue() {
    let store = Flaky::new();
    let locks = store.locks();
    let _other = taken(&store, "k", secs(60)).await;
    let first = crate::support::spawn(locks.lock("k").wait(Wait::Forever).into_future());
    store.until(|log| log.contains(&Sent::Subscribe)).await;
    let before = store.now();
    assert!(locks.lock("k").wait(Wait::No).await.is_err());
    assert!(locks.lock("k").wait(Wait::Attempts(1)).await.is_err());
    assert_eq!(store.now(), before, "they did not wait for the first");
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn a_queued_caller_whose_time_is_over_makes_one_last_try() {
    let store = Flaky::new();
    let locks = store.locks();
    let _other = taken(&store, "k", secs(600)).await;
    let first = crate::support::spawn(locks.lock("k").wait(Wait::Forever).into_future());
    store.until(|log| log.contains(&Sent::Subscribe)).await;
    let error = locks.lock("k").wait(secs(3)).await.unwrap_err();
    let report = error.wait_report().unwrap();
    assert_eq!((report.tries, report.waited), (1, secs(3)));
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_came_too_late_is_released_and_requested_again() {
    let store = Flaky::new();
    store.on_acquire([Fault::SlowReply(secs(2))]);
    let guard = store.locks().lock("k").ttl(secs(1)).await.unwrap();
    let ids = store.acquires();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
    assert_eq!(guard.lease().id, ids[1]);
    assert!(guard.is_held());

    store.on_acquire([Fault::SlowReply(secs(2))]);
    let error = store.locks().lock("j").ttl(secs(1)).wait(Wait::No).await.unwrap_err();
    assert!(matches!(error.wait_report().unwrap().cause, WaitCause::GrantedTooLate));
}

#[tokio::test(start_paused = true)]
async fn the_first_wrong_argument_is_the_error_and_nothing_is_sent() {
    let store = Flaky::new();
    let locks = store.locks();
    let wrong = |error: Error, fragment: &str| {
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(fragment), "{error}");
    };
    wrong(locks.lock("").await.unwrap_err(), "key is empty");
    wrong(locks.lock("k").ttl(Duration::ZERO).shared().permits(0).await.unwrap_err(), "TTL is 0ns");
    wrong(locks.lock("k").permits(0).await.unwrap_err(), "permits is 0");
    wrong(locks.lock("k").group("").await.unwrap_err(), "group name is empty");
    wrong(locks.lock("k").comment(&"c".repeat(513)).await.unwrap_err(), "513 bytes");
    wrong(locks.lock("k").min_hold(secs(2)).max_hold(secs(1)).await.unwrap_err(), "max_hold");
    wrong(locks.lock_all::<&str>([]).await.unwrap_err(), "at least one key");
    let every = leasehold::Keepalive::Every(secs(30));
    wrong(locks.lock("k").keepalive(every).await.unwrap_err(), "renew more often");
    assert_eq!(store.log(), []);
    assert_eq!(LostReason::Gone.to_string(), "the store no longer has it");
}

#[tokio::test(start_paused = true)]
async fn a_holder_whose_release_wakes_nobody_is_polled() {
    let store = Flaky::new();
    store.on_acquire([Fault::Foreign(ms(200)); 60]);
    drop(store.locks().lock("k").wait(Wait::Forever).await.unwrap());
    assert!(!store.log().contains(&Sent::Subscribe), "{:?}", store.log());
    let asked = store.asked_at();
    assert_eq!(asked.len(), 61);
    let pauses: Vec<_> = asked.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.iter().all(|pause| *pause <= ms(201)), "{pauses:?}");
    assert!(pauses.iter().any(|pause| *pause > ms(100)), "{pauses:?}");
}
