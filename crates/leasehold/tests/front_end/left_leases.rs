//! A release by the lease alone: of one that a guard handed over, or whose holder is dead.

use crate::support::{Fault, Flaky, secs};
use leasehold::{Effect, ErrorKind, ReleaseOutcome, Remaining};

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_left_is_released_without_a_renewal() {
    let store = Flaky::new();
    let lease = store.locks().lock("k").ttl(secs(60)).await.unwrap().detach();
    let released = store.others().release(&lease, secs(0)).await.unwrap();
    assert!(matches!(released.outcome, ReleaseOutcome::Released), "{released:?}");
    assert!(store.is_free("k").await);
    assert_eq!(store.renewals(), []);
    let again = store.others().release(&lease, secs(0)).await.unwrap();
    assert!(matches!(again.outcome, ReleaseOutcome::NotHeld), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn its_keys_stay_taken_for_as_long_as_requested() {
    let store = Flaky::new();
    let lease = store.locks().lock("k").ttl(secs(60)).await.unwrap().detach();
    let released = store.others().release(&lease, secs(5)).await.unwrap();
    assert!(matches!(released.outcome, ReleaseOutcome::Kept(_)), "{released:?}");
    let record = store.records("k").await.remove(0);
    assert!(record.kept && record.remaining() <= Remaining::For(secs(5)), "{record:?}");

    let store = Flaky::that_can(|can| can.keep = false);
    let lease = store.locks().lock("k").ttl(secs(60)).await.unwrap().detach();
    let error = store.locks().release(&lease, secs(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(!store.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_a_guard_here_holds_is_not_released() {
    let store = Flaky::new();
    let locks = store.locks();
    let guard = locks.lock("k").ttl(secs(600)).await.unwrap();
    let error = locks.release(guard.lease(), secs(0)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_an_error_and_it_can_be_repeated() {
    let store = Flaky::new();
    let lease = store.locks().lock("k").ttl(secs(60)).await.unwrap().detach();
    let locks = store.locks();
    store.on_release([Fault::LostRequest]);
    locks.release(&lease, secs(0)).await.unwrap_err();
    assert!(!store.is_free("k").await);
    locks.release(&lease, secs(0)).await.unwrap();
    assert!(store.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_release_can_keep_the_keys_for_a_time_that_is_known_only_then() {
    let store = Flaky::new();
    let guard = store.locks().lock("k").ttl(secs(60)).await.unwrap();
    let released = guard.release_keeping(secs(600)).await.unwrap();
    assert!(matches!(released.outcome, ReleaseOutcome::Kept(_)), "{released:?}");
    assert!(store.records("k").await[0].remaining() > Remaining::For(secs(500)));

    // The longer of both.
    let guard = store.locks().lock("other").min_hold(secs(60)).await.unwrap();
    guard.release_keeping(secs(5)).await.unwrap();
    assert!(store.records("other").await[0].remaining() > Remaining::For(secs(50)));

    for (store, keep) in [
        (Flaky::that_can(|can| can.keep = false), secs(5)),
        (Flaky::that_can(|can| can.max_term = secs(60)), secs(61)),
    ] {
        let guard = store.locks().lock("k").ttl(secs(60)).await.unwrap();
        let error = guard.release_keeping(keep).await.unwrap_err();
        assert!(
            [ErrorKind::Unsupported, ErrorKind::InvalidInput].contains(&error.kind()),
            "{error}"
        );
        store.until_free("k").await;
    }
}
