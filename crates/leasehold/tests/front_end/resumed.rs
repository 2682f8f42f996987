//! F4: an adopted or continued lease counts from before its request, and an answer after its deadline does not
//! count.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Fault, Faulty, Flaky, Sent, ms, secs, taken};
use leasehold::inspect::Reason;
use leasehold::store::{Drift, TokioClock};
use leasehold::{Lease, Locker, LostReason, Remaining, Wait};

/// A `Locker` that trusts half of each term, so that the store counts a lease for longer than its holder.
fn careful(store: &Flaky) -> Locker {
    let clock = Arc::new(TokioClock::new());
    Locker::builder(Faulty(store.clone())).clock(clock).drift(Drift::new(500, ms(0))).build()
}

/// A lease of `k` for 10 s that nobody holds any more.
async fn handed_over(locks: &Locker) -> Lease {
    locks.lock("k").ttl(secs(10)).await.unwrap().detach()
}

async fn until_released(store: &Flaky, lease: &Lease) {
    store.until(|log| log.contains(&Sent::Release(vec![lease.id.clone()]))).await;
}

#[tokio::test(start_paused = true)]
async fn an_adoption_answered_after_its_deadline_is_a_loss_and_is_released() {
    let store = Flaky::new();
    let locks = careful(&store);
    let lease = handed_over(&locks).await;
    let since = store.now();
    store.on_renew([Fault::SlowReply(secs(6))]);
    let error = locks.adopt(lease.clone()).await.unwrap_err();
    assert_eq!(error.lost_reason(), Some(&LostReason::Expired));
    until_released(&store, &lease).await;
    assert!(store.is_free("k").await && store.now() - since < secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_resumed_lease_answered_after_its_deadline_is_acquired_again() {
    let store = Flaky::new();
    let locks = careful(&store);
    let lease = handed_over(&locks).await;
    let since = store.now();
    store.on_renew([Fault::SlowReply(secs(6))]);
    let guard = locks.acquire_or_renew(lease.clone()).await.unwrap();
    assert!(guard.is_fresh() && guard.is_held() && guard.lease().id != lease.id);
    assert!(store.now() - since < secs(7), "4 s before the old lease would have ended");
    assert_eq!(store.released(&lease.id), 1);
}

#[tokio::test(start_paused = true)]
async fn a_resumed_lease_answered_too_late_keeps_its_lock_delay() {
    let store = Flaky::new();
    let locks = careful(&store);
    let lease = handed_over(&locks).await;
    let since = store.now();
    store.on_renew([Fault::SlowReply(secs(6))]);
    let again = locks.acquire_or_renew(lease).lock_delay(secs(60)).wait(Wait::Forever);
    assert!(again.await.unwrap().is_fresh());
    // Trusted for half of what remains beside the lock delay: for 5 s.
    let waited = store.now() - since;
    assert!(waited >= secs(65) && waited < secs(66), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_resumed_lease_counts_from_before_its_request() {
    let store = Flaky::new();
    let locks = store.locks();
    let slow = secs(4);
    let at_most = |left: Remaining, most: Duration| {
        assert!(matches!(left, Remaining::For(left) if left <= most), "{left:?}");
    };
    let lease = handed_over(&locks).await;
    store.on_renew([Fault::SlowReply(slow)]);
    let guard = locks.adopt(lease).await.unwrap();
    at_most(guard.remaining(), secs(6));
    let lease = guard.detach();
    store.on_renew([Fault::SlowReply(slow)]);
    let asked = store.now();
    let guard = locks.acquire_or_renew(lease).max_hold(secs(20)).await.unwrap();
    assert!(!guard.is_fresh());
    at_most(guard.remaining(), secs(6));
    assert_eq!(guard.lost().await, LostReason::MaxHold);
    assert_eq!(store.now() - asked, secs(20));
}

#[tokio::test(start_paused = true)]
async fn an_ended_lease_is_requested_once_in_a_wait() {
    let store = Flaky::with_push(false);
    let locks = store.locks();
    let lease = handed_over(&locks).await;
    tokio::time::sleep(secs(11)).await;
    let _other = taken(&store, "k", secs(60)).await;
    let guard = locks.acquire_or_renew(lease).wait(Wait::Forever).await.unwrap();
    assert!(guard.is_fresh() && store.acquires().len() > 3);
    assert_eq!(store.renews().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_adoption_reports_why() {
    let store = Flaky::new();
    let locks = store.locks();
    let lease = handed_over(&locks).await;
    store.evict("k", "deploying").await;
    let error = locks.adopt(lease).await.unwrap_err();
    let why = LostReason::Evicted(Some(Reason::new("deploying").unwrap()));
    assert_eq!(error.lost_reason(), Some(&why));
}
