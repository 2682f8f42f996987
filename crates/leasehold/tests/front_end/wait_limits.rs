//! F1: `.wait(d)` ends after `d`, or `d` and a last try of at most 250 ms, in whatever phase the store hangs.

use std::time::Duration;

use crate::support::{Fault, Flaky, ms, secs, spawn, taken};
use leasehold::backoff::Fixed;
use leasehold::{Effect, Error, ErrorKind, LockRequest, Locker, Ttl, Wait, WaitCause};

/// Waits in vain and states for how long.
async fn waited(store: &Flaky, lock: LockRequest) -> (Duration, Error) {
    let before = store.now();
    let error = lock.await.unwrap_err();
    (store.now() - before, error)
}

/// A caller who waits for ever for `k`, which another process holds, and was refused.
async fn queued(store: &Flaky, locks: &Locker) -> tokio::task::JoinHandle<()> {
    let other = taken(store, "k", secs(3_000)).await;
    let waiting = locks.lock("k").wait(Wait::Forever).into_future();
    let first = spawn(async move { drop((waiting.await, other)) });
    store.until_acquires(1).await;
    tokio::time::sleep(ms(10)).await;
    first
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_before_the_time_is_over_ends_the_wait_on_time() {
    for wait in [ms(100), secs(1), secs(9)] {
        for phase in ["check", "acquire", "subscribe", "endless", "own id"] {
            let store = Flaky::new();
            let locks = store.locks();
            let mut lock = locks.lock("k").wait(wait);
            match phase {
                "check" => store.on_check([Fault::Hung]),
                "acquire" => store.on_acquire([Fault::Hung]),
                "endless" => {
                    store.on_renew([Fault::Hung]);
                    lock = lock.ttl(Ttl::NEVER);
                }
                "own id" => {
                    locks.lock("k").lease_id("mine").await.unwrap().detach();
                    store.down(Fault::Hung);
                    let held = spawn(locks.lock("k").lease_id("mine").into_future());
                    tokio::time::sleep(ms(1)).await;
                    assert!(!held.is_finished());
                    lock = lock.lease_id("mine");
                }
                _ => {
                    store.on_subscribe([Fault::Hung; 100]);
                    taken(&store, "k", secs(3_000)).await.detach();
                }
            }
            let (took, error) = waited(&store, lock).await;
            assert_eq!(took, wait, "{phase}: {error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_try_takes_at_most_a_quarter_of_a_second_and_at_most_the_wait_again() {
    for (wait, last) in [(ms(40), ms(40)), (secs(1), ms(250)), (secs(9), ms(250))] {
        // Behind a queued caller.
        let store = Flaky::new();
        let locks = store.locks();
        let first = queued(&store, &locks).await;
        store.on_acquire([Fault::Hung]);
        let (took, error) = waited(&store, locks.lock("k").wait(wait)).await;
        assert_eq!(took, wait + last, "{error}");
        assert_eq!((error.kind(), error.effect()), (ErrorKind::TimedOut, Effect::Unknown));
        // The same, with a check in the last try.
        store.on_check([Fault::Hung]);
        let level = locks.lock("k").wait(wait).require(leasehold::Level::Fenced);
        let (took, error) = waited(&store, level).await;
        assert!(took == wait || took == wait + last, "{took:?}: {error}");
        first.abort();

        // After a pause.
        let store = Flaky::with_push(false);
        taken(&store, "k", secs(3_000)).await.detach();
        store.on_acquire([Fault::None, Fault::Hung]);
        let long = store.locks().lock("k").wait(wait).backoff(Fixed::new(secs(100)));
        let (took, error) = waited(&store, long).await;
        assert_eq!(took, wait + last, "{error}");
        let report = error.wait_report().unwrap();
        assert!(matches!(&report.cause, WaitCause::Store(_)) && report.tries == 2, "{error}");
        assert!(report.holder.is_some(), "known from the first try: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_last_try_that_was_granted_too_late_for_its_caller_is_released() {
    let store = Flaky::new();
    let locks = store.locks();
    store.on_acquire([Fault::Hung, Fault::SlowReply(secs(3))]);
    let first = spawn(locks.lock("k").wait(Wait::Forever).into_future());
    store.until_acquires(1).await;
    let (took, _) = waited(&store, locks.lock("k").wait(secs(2))).await;
    assert_eq!(took, ms(2_250));
    assert!(!store.is_free("k").await, "it was granted");
    store.until_free("k").await;
    first.abort();
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_zero_is_one_try_with_the_limit_of_an_operation() {
    let store = Flaky::new();
    store.on_acquire([Fault::SlowReply(secs(3))]);
    let guard = store.locks().lock("k").wait(Duration::ZERO).await.unwrap();
    let (took, error) = waited(&store, store.locks().lock("k").wait(Duration::ZERO)).await;
    assert_eq!((took, error.kind()), (Duration::ZERO, ErrorKind::TimedOut));
    assert_eq!(error.wait_report().unwrap().tries, 1);
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn one_try_takes_no_longer_than_the_stores_own_limit() {
    for limit in [secs(1), secs(5)] {
        let store = Flaky::new();
        store.on_acquire([Fault::LostLate(limit); 9]);
        let (took, error) = waited(&store, store.locks().lock("k").wait(Wait::No)).await;
        assert_eq!((took, error.effect()), (limit, Effect::Unknown), "{error}");
        assert_eq!(store.acquires().len(), 1);
        let lock = store.locks().lock("k").wait(Wait::Attempts(3)).backoff(Fixed::new(ms(10)));
        let (took, _) = waited(&store, lock).await;
        assert!(took >= 3 * limit && took < 3 * limit + ms(100), "{took:?}");
    }
    // A reply that is lost at once is asked for again.
    let store = Flaky::new();
    store.on_acquire([Fault::LostReply; 3]);
    assert!(store.locks().try_lock("k").await.unwrap().is_some());
    // A store that neither answers nor keeps a limit.
    store.on_acquire([Fault::Hung]);
    let (took, _) = waited(&store, store.locks().lock("j").wait(Wait::No)).await;
    assert_eq!(took, secs(10));
}
