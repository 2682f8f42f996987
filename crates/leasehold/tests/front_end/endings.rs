//! C3, C3b, F5, F7: a lease ends as a whole, once, and without affecting another.

use std::sync::Arc;

use crate::support::{Fault, Flaky, Sent, ms, secs};
use leasehold::{ErrorKind, Keepalive, LostReason, ReleaseOutcome, Ttl, Wait};

#[tokio::test(start_paused = true)]
async fn nothing_runs_under_a_lease_that_its_group_released() {
    let store = Flaky::new();
    let locks = store.locks();
    let group = locks.group("o").unwrap();
    let guard = Arc::new(group.lock("k").await.unwrap());
    let started = store.now();
    let at_work = Arc::clone(&guard);
    let work =
        crate::support::spawn(async move { at_work.run(tokio::time::sleep(secs(60))).await });
    tokio::time::sleep(secs(1)).await;
    group.release().await;
    let worked = work.await.unwrap();
    assert_eq!(worked.unwrap_err().kind(), ErrorKind::Closed, "given back, and not lost");
    assert!(store.now() - started < secs(2), "at once");
    assert!(guard.run(async {}).await.is_err() && guard.ensure_held().is_err());
    let asked = store.renews().len();
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(store.renews().len(), asked, "nothing is asked for a lease given back");
}

#[tokio::test(start_paused = true)]
async fn a_late_release_of_an_adopted_lease_ends_no_later_one() {
    let store = Flaky::new();
    let locks = store.locks();
    let lease = locks.lock("k").lease_id("w").await.unwrap().detach();
    let guard = locks.adopt(lease).await.unwrap();
    store.on_release([Fault::Detached(secs(3))]);
    drop(guard);
    let guard = locks.lock("k").lease_id("w").await.unwrap();
    tokio::time::sleep(secs(10)).await;
    assert!(guard.verify().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_late_release_of_a_group_ends_no_later_lease() {
    let store = Flaky::new();
    let locks = store.locks();
    let group = locks.group("o").unwrap();
    let guard = group.lock("k").lease_id("w").await.unwrap();
    store.on_release([Fault::Detached(secs(3))]);
    tokio::time::timeout(secs(1), group.release()).await.unwrap_err();
    drop(guard);
    let guard = locks.lock("k").lease_id("w").await.unwrap();
    tokio::time::sleep(secs(10)).await;
    assert!(guard.verify().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn one_lease_has_one_guard() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").await.unwrap();
    let lease = guard.lease().clone();
    let error = locks.adopt(lease.clone()).await.unwrap_err();
    assert!(error.to_string().contains("is not finished"), "{error}");
    assert!(locks.acquire_or_renew(lease.clone()).wait(Wait::No).await.is_err());
    // While its release is in flight it can be neither adopted nor continued.
    store.on_release([Fault::SlowRequest(secs(3))]);
    drop(guard);
    assert!(locks.adopt(lease.clone()).await.is_err());
    let guard = locks.acquire_or_renew(lease.clone()).await.unwrap();
    assert!(guard.is_fresh() && guard.lease().id != lease.id);
}

#[tokio::test(start_paused = true)]
async fn an_adoption_waits_for_a_renewal_in_flight() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").ttl(secs(30)).await.unwrap();
    store.on_renew([Fault::SlowReply(secs(5))]);
    store.until(|log| log.iter().any(|sent| matches!(sent, Sent::Renew(_)))).await;
    let (lease, before) = (guard.detach(), store.now());
    let guard = locks.adopt(lease).await.unwrap();
    assert!(guard.is_held());
    assert_eq!(store.now() - before, secs(5));
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_broken_lease_is_released() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock_all(["a", "b"]).ttl(Ttl::NEVER).await.unwrap();
    store.evict("b", "x").await;
    assert!(!guard.verify().await.unwrap());
    drop(guard);
    store.until_free("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_release_continues_for_as_long_as_the_store_may_count() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").ttl(secs(30)).await.unwrap();
    // Renewals act, but their replies are lost.
    store.down(Fault::LostReply);
    guard.lost().await;
    store.down(Fault::LostRequest);
    tokio::time::sleep(secs(3)).await;
    store.up();
    tokio::time::sleep(secs(6)).await;
    assert!(store.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_shorter_term_of_a_resumed_lease_does_not_end_its_release_early() {
    let store = Flaky::new();
    let locks = store.locks();
    let lease = locks.lock("k").ttl(secs(3_600)).await.unwrap().detach();
    let guard = locks.acquire_or_renew(lease).ttl(secs(10)).await.unwrap();
    assert_eq!(guard.lease().ttl, Ttl::new(secs(10)).unwrap());
    store.down(Fault::LostRequest);
    drop(guard);
    tokio::time::sleep(secs(60)).await;
    store.up();
    tokio::time::sleep(secs(6)).await;
    assert!(store.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_hangs_is_sent_again() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").ttl(Ttl::NEVER).await.unwrap();
    let id = guard.lease().id.clone();
    store.on_release([Fault::Hung]);
    drop(guard);
    store.until_free("k").await;
    assert_eq!(store.released(&id), 2);
    locks.close(secs(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn requests_abandoned_on_a_hung_store_are_given_up() {
    let store = Flaky::new();
    let locks = store.locks();
    locks.check().await.unwrap();
    store.down(Fault::Hung);
    for _ in 0..100 {
        assert!(locks.lock("k").wait(ms(10)).await.is_err());
    }
    store.up();
    tokio::time::sleep(secs(600)).await;
    locks.close(secs(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn min_hold_is_not_prolonged_by_a_release_that_is_sent_late() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").ttl(secs(90)).min_hold(secs(60)).await.unwrap();
    let granted = store.now();
    store.on_release([Fault::Unreachable; 18]);
    drop(guard);
    store.until_free("k").await;
    let kept = store.now() - granted;
    assert!(kept < secs(91), "{kept:?}");
    let guard = locks.lock("k").ttl(secs(5)).min_hold(secs(60)).await.unwrap();
    let granted = store.now();
    store.on_release([Fault::Unreachable; 5]);
    drop(guard);
    store.until_free("k").await;
    let kept = store.now() - granted;
    assert!(kept >= secs(60) && kept < secs(61), "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn max_hold_and_an_unreachable_store_are_followed_by_a_release() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").ttl(secs(3_600)).max_hold(secs(10)).await.unwrap();
    assert_eq!(guard.lost().await, LostReason::MaxHold);
    locks.close(ms(100)).await.unwrap();
    assert!(store.is_free("k").await, "an hour before its term");
    assert!(matches!(guard.release().await.unwrap().outcome, ReleaseOutcome::Expired));
}

#[tokio::test(start_paused = true)]
async fn thousands_of_dropped_guards_are_released_in_few_requests() {
    let store = Flaky::new();
    let locks = store.locks();
    let mut guards = Vec::new();
    for n in 0..2_500 {
        let lock = locks.lock(format!("k{n}")).keepalive(Keepalive::Off);
        guards.push(lock.await.unwrap());
    }
    drop(guards);
    locks.close(secs(1)).await.unwrap();
    let releases = store.log().into_iter().filter_map(|sent| match sent {
        crate::support::Sent::Release(ids) => Some(ids.len()),
        _ => None,
    });
    let sizes: Vec<_> = releases.collect();
    assert!(sizes.len() <= 4 && sizes.iter().all(|n| *n <= 1_000), "{sizes:?}");
    assert_eq!(sizes.iter().sum::<usize>(), 2_500);
}
