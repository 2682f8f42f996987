//! F1, F2, F10 and C12: whatever the store does, a wait ends in time with the right report.

use std::time::Duration;

use futures_util::FutureExt as _;

use crate::support::{Fault, Flaky, Sent, ms, secs, taken};
use leasehold::backoff::Fixed;
use leasehold::{Claims, Effect, ErrorKind, Keepalive, Key, Mode, Ttl, Wait, WaitCause};

#[tokio::test(start_paused = true)]
async fn the_first_check_is_part_of_the_wait() {
    let store = Flaky::new();
    store.on_check([Fault::Hung]);
    let before = store.now();
    let error = store.locks().lock("k").wait(secs(1)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::TimedOut, Effect::NotApplied));
    assert_eq!(store.now() - before, secs(1));
    store.on_check([Fault::Unreachable, Fault::Unreachable]);
    drop(store.locks().lock("k").wait(secs(30)).await.unwrap());
    store.on_check([Fault::Denied]);
    let error = store.locks().lock("k").wait(secs(30)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
}

#[tokio::test(start_paused = true)]
async fn a_resumed_lease_is_part_of_the_wait() {
    let store = Flaky::new();
    let locks = store.locks();
    let lease = locks.lock("k").ttl(secs(600)).await.unwrap().detach();
    store.on_renew([Fault::Hung]);
    let before = store.now();
    let error = locks.acquire_or_renew(lease.clone()).wait(secs(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(store.now() - before, secs(1));
    let renewed = store.renews().len();
    store.on_renew([Fault::Unreachable; 5]);
    let error = locks.acquire_or_renew(lease.clone()).wait(Wait::Attempts(3)).await.unwrap_err();
    assert_eq!(error.wait_report().unwrap().tries, 3);
    assert_eq!(store.renews().len() - renewed, 3);
    let guard = locks.acquire_or_renew(lease).wait(secs(60)).await.unwrap();
    assert!(!guard.is_fresh());
}

#[tokio::test(start_paused = true)]
async fn making_a_lease_endless_is_part_of_the_wait() {
    let store = Flaky::new();
    let locks = store.locks();
    store.on_renew([Fault::Hung]);
    let before = store.now();
    assert!(locks.lock("k").ttl(Ttl::NEVER).wait(secs(1)).await.is_err());
    assert_eq!(store.now() - before, secs(1));
    store.until_free("k").await;
    store.on_renew(std::iter::repeat_n(Fault::LostRequest, 60));
    let guard = locks.lock("k").ttl(Ttl::NEVER).wait(Wait::Forever).await.unwrap();
    assert!(guard.verify().await.unwrap(), "an outage ends no wait without end");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_hangs_or_fails_stops_nobody() {
    for fault in [Fault::Hung, Fault::Unreachable] {
        let store = Flaky::new();
        store.on_subscribe(std::iter::repeat_n(fault, 100));
        let other = taken(&store, "k", secs(60)).await;
        let waiter =
            crate::support::spawn(store.locks().lock("k").wait(Wait::Forever).into_future());
        store.until(|log| log.contains(&Sent::Subscribe)).await;
        other.release().await.unwrap();
        let before = store.now();
        drop(waiter.await.unwrap().unwrap());
        assert!(store.now() - before <= secs(1), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_hangs_hides_no_release_and_no_end_of_a_term() {
    let store = Flaky::new();
    store.on_subscribe(std::iter::repeat_n(Fault::Hung, 100));
    let locks = store.locks();
    let holder = locks.lock("k").ttl(secs(3_000)).await.unwrap();
    let waiter = crate::support::spawn(locks.lock("k").wait(Wait::Forever).into_future());
    store.until(|log| log.contains(&Sent::Subscribe)).await;
    let before = store.now();
    holder.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    assert_eq!(store.now(), before, "a release by the same Locker");
    guard.release().await.unwrap();

    let _dead = taken(&store, "k", ms(700)).await;
    let before = store.now();
    drop(locks.lock("k").wait(Wait::Forever).await.unwrap());
    assert!(store.now() - before < ms(750), "the end of a term: {:?}", store.now() - before);
}

#[test]
fn a_subscription_of_a_runtime_that_ended_is_not_inherited() {
    let store = Flaky::in_real_time();
    store.on_subscribe(std::iter::repeat_n(Fault::Hung, 100));
    let locks = store.locks();
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_time().build().unwrap()
    };
    let [holding, first, second] = [runtime(), runtime(), runtime()];
    let holder = holding.block_on(async { locks.lock("k").ttl(secs(3_000)).await.unwrap() });
    let wait = || locks.lock("k").wait(Wait::Forever).into_future();
    let gone = first.spawn(wait());
    second.block_on(store.until(|log| log.contains(&Sent::Subscribe)));
    // Polled once, it is next in the queue.
    let mut waiter = Box::pin(wait());
    assert!(second.block_on(async { (&mut waiter).now_or_never() }).is_none());
    drop((gone, first));
    // It is refused, and waits by itself.
    let refused = async { tokio::time::timeout(ms(200), &mut waiter).await };
    assert!(second.block_on(refused).is_err());
    holding.block_on(holder.release()).unwrap();
    let granted = async { tokio::time::timeout(secs(30), waiter).await };
    drop(second.block_on(granted).expect("in time").unwrap());
}

#[tokio::test]
async fn zero_pauses_let_other_tasks_run() {
    let store = Flaky::in_real_time();
    let locks = store.locks();
    let holder = locks.lock("k").await.unwrap();
    crate::support::spawn(async move {
        tokio::time::sleep(ms(50)).await;
        holder.release().await.unwrap();
    });
    let lock = locks.lock("k").wait(Wait::Forever).backoff(Fixed::new(Duration::ZERO));
    drop(lock.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn many_hints_are_one_try() {
    let store = Flaky::new();
    let other = taken(&store, "k", secs(600)).await;
    let waiter = crate::support::spawn(store.locks().lock("k").wait(Wait::Forever).into_future());
    store.until(|log| log.iter().filter(|s| matches!(s, Sent::Acquire(_))).count() == 2).await;
    for _ in 0..200 {
        // Releasing a free key is a hint too.
        let lease = leasehold_core::ReleaseEntry::new(
            leasehold::LeaseId::mint().unwrap(),
            [Key::new("k").unwrap()],
        );
        store.release_directly(lease).await;
    }
    tokio::time::sleep(ms(1)).await;
    assert!(store.acquires().len() <= 4, "{}", store.acquires().len());
    other.release().await.unwrap();
    drop(waiter.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_report_has_the_holder_and_an_error_its_effect() {
    let store = Flaky::with_push(false);
    let other = store.others().lock("k").comment("nightly").await.unwrap();
    let twice = |retry: u32| (retry < 2).then_some(ms(5));
    let error = store.locks().lock("k").wait(Wait::Forever).backoff(twice).await.unwrap_err();
    let report = error.wait_report().unwrap();
    assert!(matches!(report.cause, WaitCause::Exhausted));
    assert_eq!(report.holder.as_ref().unwrap().id.as_ref(), Some(&other.lease().id));
    let store = Flaky::new();
    store.on_acquire([Fault::SlowReply(secs(5))]);
    let error = store.locks().lock("k").wait(secs(1)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::TimedOut, Effect::Unknown));
    assert_eq!((error.store(), error.operation()), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_stores_retry_after_is_followed() {
    let store = Flaky::new();
    store.on_acquire([Fault::Quarantined(secs(7))]);
    let before = store.now();
    let long = |_: u32| Some(secs(60));
    drop(store.locks().lock("k").wait(Wait::Forever).backoff(long).await.unwrap());
    assert_eq!(store.now() - before, secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_busy_key_is_requested_again_in_the_same_try() {
    let store = Flaky::new();
    store.on_acquire([Fault::Busy, Fault::Busy]);
    let guard = store.locks().lock("k").wait(Wait::No).await.unwrap();
    let id = guard.lease().id.clone();
    assert_eq!(store.acquires(), [id.clone(), id.clone(), id]);
}

#[tokio::test(start_paused = true)]
async fn closing_ends_every_wait() {
    let store = Flaky::new();
    let locks = store.locks();
    let other = taken(&store, "k", secs(600)).await;
    let first = crate::support::spawn(locks.lock("k").wait(Wait::Forever).into_future());
    let in_line = crate::support::spawn(locks.lock("k").wait(Wait::Forever).into_future());
    store.until(|log| log.contains(&Sent::Subscribe)).await;
    let before = store.now();
    locks.close(secs(1)).await.unwrap();
    for waiter in [first, in_line] {
        let error = waiter.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("closed"), "{error}");
    }
    assert_eq!(store.now(), before, "at once");
    let lease = other.lease().clone();
    assert!(locks.adopt(lease).await.unwrap_err().to_string().contains("closed"));
    other.release().await.unwrap();
    tokio::time::sleep(secs(60)).await;
    assert!(store.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn contradictory_options_are_refused() {
    let store = Flaky::new();
    let locks = store.locks();
    let claims = || Claims::one(Key::new("k").unwrap(), Mode::Exclusive);
    let mut lease = locks.lock("k").await.unwrap().detach();
    lease.token = None;
    let sent = store.log().len();
    for (lock, fragment) in [
        (locks.lock_claims(claims()).permits(3), "its own mode"),
        (locks.lock_claims(claims()).shared(), "its own mode"),
        (locks.acquire_or_renew(lease.clone()).shared(), "its own mode"),
        (locks.acquire_or_renew(lease).fenced(), "has no token"),
        (locks.lock("k").keepalive(Keepalive::Every(ms(29_900))), "trusted for only 29.698s"),
    ] {
        let error = lock.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(fragment), "{error}");
    }
    assert_eq!(store.log().len(), sent);
}

#[tokio::test(start_paused = true)]
async fn the_longest_durations_overflow_nothing() {
    let store = Flaky::new();
    let locks = store.locks();
    let longest = Ttl::new(Ttl::MAX).unwrap();
    let guard = locks.lock("k").ttl(longest).wait(Duration::MAX).max_hold(Duration::MAX).await;
    let guard = guard.unwrap();
    assert!(guard.is_held());
    let other = store.others();
    let waiting = other.lock("k").wait(Duration::MAX).into_future();
    assert!(tokio::time::timeout(secs(100), waiting).await.is_err());
    guard.release().await.unwrap();
    locks.close(Duration::MAX).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_queued_waiter_is_woken_directly_by_its_own_locker() {
    let store = Flaky::with_push(false);
    let locks = store.locks();
    let slow = |_: u32| Some(secs(1_000));
    let wait = || {
        let lock = locks.lock("k").wait(Wait::Forever).backoff(slow);
        crate::support::spawn(lock.into_future())
    };
    // A release.
    let holder = locks.lock("k").ttl(secs(3_000)).await.unwrap();
    let (tries, waiter, before) = (store.acquires().len(), wait(), store.now());
    store.until_acquires(tries + 1).await;
    holder.release().await.unwrap();
    let holder = waiter.await.unwrap().unwrap();
    assert!(store.now() - before < secs(1));
    // An eviction through it.
    let (tries, waiter, before) = (store.acquires().len(), wait(), store.now());
    store.until_acquires(tries + 1).await;
    let targets =
        locks.status("k").await.unwrap().iter().map(leasehold::inspect::EvictTarget::of).collect();
    locks.evict(&leasehold::inspect::EvictRequest::exactly(targets, None)).await.unwrap();
    drop(waiter.await.unwrap().unwrap());
    assert!(store.now() - before < secs(1));
    drop(holder);
    // A lease that it finds to be gone.
    let holder = locks.lock("k").ttl(secs(3_000)).await.unwrap();
    let (tries, waiter, before) = (store.acquires().len(), wait(), store.now());
    store.until_acquires(tries + 1).await;
    store.evict("k", "x").await;
    assert!(!holder.verify().await.unwrap());
    drop(waiter.await.unwrap().unwrap());
    assert!(store.now() - before < secs(1));
}

#[tokio::test(start_paused = true)]
async fn different_modes_have_queues_of_their_own_and_own_ids_none() {
    let store = Flaky::new();
    let locks = store.locks();
    let reader = store.others().lock("k").shared().await.unwrap();
    let writer = crate::support::spawn(locks.lock("k").wait(Wait::Forever).into_future());
    store.until(|log| log.contains(&Sent::Subscribe)).await;
    let before = store.now();
    drop(locks.lock("k").shared().wait(Wait::Forever).await.unwrap());
    assert_eq!(store.now(), before, "a reader does not stand behind a writer");
    let named = locks.lock("k").lease_id("w").wait(secs(5));
    let tries = store.acquires().len();
    assert!(named.await.is_err());
    assert!(store.acquires().len() > tries + 1, "it made tries of its own");
    writer.abort();
    drop(reader);
}

#[tokio::test(start_paused = true)]
async fn every_operation_has_a_limit() {
    let store = Flaky::new();
    let locks = store.locks();
    let expired =
        || leasehold::inspect::EvictRequest::expired(leasehold::inspect::Filter::default());
    for operation in ["list", "evict", "check"] {
        store.on_look([Fault::Hung]);
        store.on_check([Fault::Hung]);
        let before = store.now();
        let error = match operation {
            "list" => locks.status("k").await.unwrap_err(),
            "evict" => locks.evict(&expired()).await.unwrap_err(),
            _ => locks.check().await.unwrap_err(),
        };
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Unavailable, Some(operation)));
        assert_eq!(store.now() - before, secs(10));
    }
}

#[tokio::test(start_paused = true)]
async fn the_slow_poll_is_spread_over_nine_to_eleven_seconds() {
    let store = Flaky::new();
    let _other = taken(&store, "k", secs(36_000)).await;
    assert!(store.locks().lock("k").wait(secs(600)).await.is_err());
    let asked = store.asked_at();
    let gaps: Vec<_> = asked[1..asked.len() - 1].windows(2).map(|two| two[1] - two[0]).collect();
    assert!(
        gaps.len() > 50 && gaps.iter().all(|gap| (secs(9)..=ms(11_002)).contains(gap)),
        "{gaps:?}"
    );
    let (least, most) = (gaps.iter().min().unwrap(), gaps.iter().max().unwrap());
    assert!(*most - *least > ms(500), "{gaps:?}");
}
