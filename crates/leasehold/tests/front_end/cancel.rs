//! F6 and C3: what a caller that goes away leaves, and what is sent again.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use crate::support::{Fault, Flaky, Sent, ms, secs, taken};
use leasehold::{Effect, ErrorKind, LeaseId, ReleaseOutcome, Remaining, Ttl, Wait};

/// Polls an acquire `polls` times, then drops it. True if it was ready before.
pub(crate) fn poll_then_drop(acquire: impl Future, polls: usize) -> bool {
    let mut acquire = pin!(acquire);
    let mut context = Context::from_waker(Waker::noop());
    (0..polls).any(|_| acquire.as_mut().poll(&mut context).is_ready())
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_was_never_polled_sends_nothing() {
    let store = Flaky::new();
    drop(store.locks().lock("k").into_future());
    drop(store.locks().lock("k"));
    assert_eq!(store.log(), []);
}

#[tokio::test(start_paused = true)]
async fn an_acquire_dropped_in_flight_is_released_when_its_reply_arrives() {
    for fault in [Fault::SlowRequest(secs(3)), Fault::SlowReply(secs(3))] {
        let store = Flaky::new();
        let locks = store.locks();
        locks.lock("warm").await.unwrap().release().await.unwrap();
        store.on_acquire([fault]);
        let acquire = locks.lock("k").into_future();
        tokio::time::timeout(secs(1), acquire).await.unwrap_err();
        let id = store.acquires().last().unwrap().clone();
        assert_eq!(store.released(&id), 0, "a release must not overtake its acquire");
        store.until(|log| log.iter().any(|s| *s == Sent::Release(vec![id.clone()]))).await;
        store.until_free("k").await;
        assert_eq!(store.acquires().len(), 2, "nothing is acquired for a caller who is gone");
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_at_every_await_point_it_leaves_nothing_beyond_one_term() {
    let faults = [
        vec![],
        vec![Fault::LostReply],
        vec![Fault::LostRequest, Fault::LostReply],
        vec![Fault::SlowReply(ms(700))],
        vec![Fault::LostReply, Fault::SlowRequest(ms(700))],
        vec![Fault::Unreachable, Fault::SlowReply(ms(300))],
        vec![Fault::SlowReply(secs(4))],
    ];
    let mut dropped = 0;
    for faults in &faults {
        for ttl in [Ttl::new(secs(2)).unwrap(), Ttl::NEVER] {
            // Time moves the acquire from one await point to the next.
            for after in (0..1_200).step_by(40).map(ms) {
                let store = Flaky::new();
                let locks = store.locks();
                store.on_acquire(faults.clone());
                store.on_renew([Fault::LostReply, Fault::SlowReply(ms(200))]);
                let acquire = locks.lock("k").ttl(ttl).wait(secs(3)).into_future();
                if let Ok(outcome) = tokio::time::timeout(after, acquire).await {
                    drop(outcome);
                } else {
                    dropped += 1;
                }
                let left = locks.close(secs(60)).await;
                left.unwrap_or_else(|e| panic!("{faults:?} {ttl} after {after:?}: {e}"));
                assert!(store.is_free("k").await, "{faults:?} {ttl} after {after:?}");
            }
        }
    }
    assert!(dropped > 100, "the drops must meet acquires in progress: {dropped}");
}

#[tokio::test(start_paused = true)]
async fn dropped_after_every_number_of_polls_it_leaves_nothing() {
    let store = Flaky::new();
    let locks = store.locks();
    let other = taken(&store, "k", secs(60)).await;
    for polls in 0..12 {
        assert!(!poll_then_drop(locks.lock("k").into_future(), polls));
    }
    other.release().await.unwrap();
    for polls in 0..12 {
        poll_then_drop(locks.lock("k").into_future(), polls);
        locks.try_lock("other").await.unwrap();
        store.until_free("k").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_recovered_by_sending_the_same_request_again() {
    let store = Flaky::new();
    store.on_acquire([Fault::LostReply]);
    let guard = store.locks().lock("k").await.unwrap();
    let ids = store.acquires();
    assert_eq!(ids, [guard.lease().id.clone(), guard.lease().id.clone()]);
    assert_eq!(store.records("k").await.len(), 1);
    assert!(guard.is_fresh(), "a new lease, whatever became of the first reply");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_did_not_act_is_never_sent_again_under_its_id() {
    let store = Flaky::new();
    store.on_acquire([Fault::Unreachable]);
    drop(store.locks().lock("k").await.unwrap());
    let ids = store.acquires();
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test(start_paused = true)]
async fn an_id_abandoned_after_an_unknown_effect_is_released_and_not_reused() {
    let store = Flaky::new();
    let locks = store.locks();
    locks.check().await.unwrap();
    store.down(Fault::LostReply);
    let error = locks.lock("k").wait(ms(100)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let first = store.acquires()[0].clone();
    assert!(!store.is_free("k").await);
    let sent = store.acquires().len();
    tokio::time::sleep(secs(5)).await;
    assert_eq!(store.acquires().len(), sent, "nothing is sent again for a caller who is gone");
    store.up();
    store.until_free("k").await;
    assert!(store.released(&first) >= 1);
    let guard = locks.lock("k").await.unwrap();
    assert_ne!(guard.lease().id, first);
    assert_eq!(store.acquires().len(), sent + 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_release_continues_in_the_background() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").await.unwrap();
    let id = guard.lease().id.clone();
    store.on_release([Fault::LostRequest, Fault::Unreachable, Fault::LostRequest]);
    let error = guard.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    store.until_free("k").await;
    assert_eq!(store.released(&id), 4);
}

#[tokio::test(start_paused = true)]
async fn a_release_is_completed_when_its_caller_goes_away() {
    let store = Flaky::new();
    let locks = store.locks();
    let slow = secs(2);
    for fault in [
        Fault::SlowRequest(slow),
        Fault::LostRequest,
        Fault::SlowReply(slow),
        Fault::LostLate(slow),
        Fault::Hung,
    ] {
        // Its term does not end before the test does.
        let guard = locks.lock("k").ttl(secs(24 * 3_600)).await.unwrap();
        store.on_release([fault]);
        poll_then_drop(guard.release(), 1);
        store.until_free("k").await;
    }
    let guard = locks.lock("k").await.unwrap();
    drop(guard.release());
    store.until_free("k").await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_without_end_is_acquired_with_a_term_and_then_extended() {
    let store = Flaky::new();
    store.on_renew([Fault::Unreachable, Fault::LostReply]);
    let guard = store.locks().lock("k").ttl(Ttl::NEVER).await.unwrap();
    assert_eq!(guard.remaining(), Remaining::Never);
    assert_eq!(store.records("k").await[0].remaining(), Remaining::Never);
    assert!(matches!(guard.release().await.unwrap().outcome, ReleaseOutcome::Released));
    assert!(store.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn an_unconfirmed_lease_without_end_is_released_and_not_handed_out() {
    let store = Flaky::new();
    let locks = store.locks();
    store.on_renew(std::iter::repeat_n(Fault::LostRequest, 10_000));
    let error = locks.lock("k").ttl(Ttl::NEVER).wait(Wait::No).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut), "{error}");
    store.until_free("k").await;
}

#[tokio::test(start_paused = true)]
async fn an_own_id_serves_every_try_one_at_a_time() {
    let store = Flaky::with_push(false);
    let locks = store.locks();
    let other = taken(&store, "k", secs(2)).await;
    other.detach();
    let mine = LeaseId::foreign(b"worker-7").unwrap();
    let guard = locks.lock("k").lease_id("worker-7").await.unwrap();
    assert!(store.acquires().len() > 1);
    assert!(store.acquires().iter().all(|id| *id == mine));
    let keys = ["j", "k"];
    let error = locks.lock_all(keys).lease_id("worker-7").wait(Wait::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("same lease id"), "{error}");
    drop(guard);
    drop(locks.lock_all(keys).lease_id("worker-7").await.unwrap());
}

/// As clients of mongo-lock do, whose lock id names everything that a process holds.
#[tokio::test(start_paused = true)]
async fn an_own_id_names_leases_of_different_keys() {
    let store = Flaky::new();
    let locks = store.locks();
    let (one, other) = (locks.lock("a").lease_id("w"), locks.lock("b").lease_id("w"));
    let (one, other) = (one.wait(Wait::No).await.unwrap(), other.wait(Wait::No).await.unwrap());
    one.release().await.unwrap();
    assert!(store.is_free("a").await && other.verify().await.unwrap());
    tokio::time::sleep(secs(100)).await;
    assert!(other.is_held(), "it is renewed by itself");
}

/// A late release would end the next lease of the id, on a store that cannot tell the two apart.
#[tokio::test(start_paused = true)]
async fn an_own_id_waits_for_the_term_of_an_unanswered_release() {
    for (compares_tokens, waits) in [(true, secs(0)), (false, secs(20))] {
        let store = Flaky::that_can(|can| can.compares_tokens = compares_tokens);
        let locks = store.locks();
        let ttl = secs(20);
        let guard = locks.lock("k").lease_id("w").ttl(ttl).await.unwrap();
        store.on_release([Fault::LostRequest]);
        let error = guard.release().await.unwrap_err();
        assert_eq!(error.effect(), Effect::Unknown);
        store.until_free("k").await;
        drop(locks.lock("other").lease_id("w").wait(Wait::No).await.unwrap());
        let since = store.now();
        let next = locks.lock("k").lease_id("w").ttl(ttl).wait(Wait::Forever).await.unwrap();
        let waited = store.now() - since;
        assert!(waited <= waits && waited + secs(1) >= waits, "{compares_tokens}: {waited:?}");
        assert!(next.verify().await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn an_own_id_waits_for_every_earlier_request_that_names_it() {
    let store = Flaky::new();
    let locks = store.locks();
    store.on_acquire([Fault::SlowReply(secs(5))]);
    locks.lock("k").lease_id("w").wait(secs(1)).await.unwrap_err();
    store.on_release([Fault::SlowRequest(secs(3))]);
    let started = store.now();
    let guard = locks.lock("k").lease_id("w").wait(Wait::Forever).await.unwrap();
    assert_eq!(store.now() - started, secs(7), "4 s for the acquire, 3 s for its release");
    tokio::time::sleep(secs(5)).await;
    assert!(guard.verify().await.unwrap(), "no late release of an earlier try may end it");
}

#[tokio::test(start_paused = true)]
async fn an_own_id_waits_for_the_release_of_a_dropped_guard() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").lease_id("w").await.unwrap();
    store.on_release([Fault::SlowRequest(secs(3))]);
    drop(guard);
    let started = store.now();
    let guard = locks.lock("k").lease_id("w").wait(Wait::Forever).await.unwrap();
    assert_eq!(store.now() - started, secs(3));
    assert!(guard.is_fresh() && guard.verify().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_again_for_a_caller_who_is_gone() {
    let store = Flaky::new();
    let locks = store.locks();
    locks.check().await.unwrap();
    store.down(Fault::LostRequest);
    tokio::time::timeout(ms(100), locks.lock("k").into_future()).await.unwrap_err();
    let sent = store.acquires().len();
    assert!(sent > 1, "it was being sent again");
    tokio::time::sleep(secs(30)).await;
    assert_eq!(store.acquires().len(), sent);
}
