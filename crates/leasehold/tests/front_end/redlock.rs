//! The cases of redlock's own suite for a lock on one Redis server and for its ways to wait, by name. Those of
//! several servers are in `redlock_quorum.rs`, those of its watch in `redlock_watch.rs`.

use std::time::Duration;

use crate::fleet::{Fleet, behind_a_proxy, foreign, lease, ms, recorded, secs};
use futures_util::future::join_all;
use leasehold::backoff::{Backoff, Exponential, Jitter, Uniform};
use leasehold::{
    Error, ErrorKind, Locker, LostReason, ReleaseOutcome, Ttl, Wait, WaitCause, WaitReport,
};

/// `TestLock_Acquire/Success`.
#[tokio::test]
async fn redlock_lock_acquire_success() {
    let fleet = Fleet::one().await;
    let guard = fleet.locks().await.lock("k").await.unwrap();
    assert!(guard.is_held() && guard.token().is_some());
    assert_eq!(fleet.values("k").await, [Some(guard.lease().id.to_string())]);
}

/// `TestLock_Acquire/FailWhenAlreadyHeld`: a wait ends with its time-out, and a dropped one at once.
#[tokio::test]
async fn redlock_lock_acquire_fail_when_already_held() {
    let fleet = Fleet::one().await;
    let guard = fleet.locks().await.lock("k").await.unwrap();
    let others = fleet.locks().await;
    let report = timed_out(others.lock("k").wait(ms(200)).await);
    assert!(matches!(report.cause, WaitCause::Held) && report.waited >= ms(200), "{report}");
    assert_eq!(report.holder.unwrap().id.as_ref(), Some(&guard.lease().id));
    let waiting = others.lock("k").wait(Wait::Forever);
    tokio::time::timeout(ms(200), waiting).await.unwrap_err();
    guard.release().await.unwrap();
    others.close(secs(60)).await.unwrap();
    assert_eq!(fleet.values("k").await, [None], "the one that was dropped took nothing");
}

/// `TestLock_TryAcquire/Success`.
#[tokio::test]
async fn redlock_lock_try_acquire_success() {
    let fleet = Fleet::one().await;
    let guard = fleet.locks().await.try_lock("k").await.unwrap().unwrap();
    assert_eq!(fleet.copies("k", &guard).await, 1);
}

/// `TestLock_TryAcquire/FailsImmediatelyWhenHeld`: one exchange, and no second one.
#[tokio::test]
async fn redlock_lock_try_acquire_fails_immediately_when_held() {
    let (_server, proxy, locks) = behind_a_proxy().await;
    let _guard = locks.lock("k").await.unwrap();
    for _ in 0..3 {
        let before = proxy.exchanges();
        assert!(locks.try_lock("k").await.unwrap().is_none());
        assert_eq!(proxy.exchanges() - before, 1);
    }
    let error = locks.lock("k").wait(Wait::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Held);
}

/// `TestLock_AcquireOrExtend/AcquireFirst` and `/ExtendSuccessfully`, both ways to write it.
#[tokio::test]
async fn redlock_lock_acquire_or_extend_acquire_first_and_extend_successfully() {
    let fleet = Fleet::one().await;
    let locks = fleet.locks().await;
    let first = locks.lock("k").ttl(secs(30)).await.unwrap().detach();
    let guard = locks.acquire_or_renew(first.clone()).ttl(secs(120)).await.unwrap();
    assert!(!guard.is_fresh());
    assert_eq!((&guard.lease().id, guard.token()), (&first.id, first.token));
    assert!(fleet.rests("k").await[0] > 60_000);

    let acquire_or_extend = |ttl| locks.lock("own").lease_id("mine").ttl(ttl);
    let first = acquire_or_extend(secs(30)).await.unwrap();
    assert!(first.is_fresh());
    let (token, _) = (first.token(), first.detach());
    let guard = acquire_or_extend(secs(120)).await.unwrap();
    assert!(!guard.is_fresh() && guard.token() == token);
    assert_eq!(fleet.values("own").await, [Some("mine".to_owned())]);
    assert!(fleet.rests("own").await[0] > 60_000);
}

/// `TestLock_AcquireOrExtend/ReAcquireAfterDeletion`: an id names one attempt (C3), so the new lock has a new one,
/// unless the caller chose it.
#[tokio::test]
async fn redlock_lock_acquire_or_extend_re_acquire_after_deletion() {
    let fleet = Fleet::one().await;
    let locks = fleet.locks().await;
    let first = locks.lock("k").await.unwrap().detach();
    fleet.servers[0].ask(&["DEL", "k"]).await.unwrap();
    let guard = locks.acquire_or_renew(first.clone()).await.unwrap();
    assert!(guard.is_fresh() && guard.lease().id != first.id && guard.token() > first.token);
    assert_eq!(fleet.copies("k", &guard).await, 1);

    let first = locks.lock("own").lease_id("mine").await.unwrap().detach();
    fleet.servers[0].ask(&["DEL", "own"]).await.unwrap();
    let guard = locks.lock("own").lease_id("mine").await.unwrap();
    assert!(guard.is_fresh() && guard.token() > first.token);
    assert_eq!(fleet.values("own").await, [Some("mine".to_owned())]);
}

/// `TestLock_AcquireOrExtend/FailWithWrongFencing`.
#[tokio::test]
async fn redlock_lock_acquire_or_extend_fail_with_wrong_fencing() {
    let fleet = Fleet::one().await;
    let guard = fleet.locks().await.lock("k").await.unwrap();
    let others = fleet.locks().await;
    for asked in
        [others.lock("k").lease_id("wrong"), others.acquire_or_renew(lease("k", "wrong", secs(30)))]
    {
        let report = timed_out(asked.wait(secs(1)).await);
        assert!(matches!(report.cause, WaitCause::Held), "{report}");
    }
    assert_eq!(fleet.copies("k", &guard).await, 1);
}

/// `TestLock_Extend/ExtendExistingLock`; a shorter term than what is left changes nothing (C6).
#[tokio::test]
async fn redlock_lock_extend_extend_existing_lock() {
    let fleet = Fleet::one().await;
    let locks = fleet.locks().await;
    let mut held = locks.lock("k").ttl(secs(30)).await.unwrap().detach();
    for (ttl, least) in [(secs(120), 90_000), (secs(10), 60_000)] {
        held.ttl = Ttl::new(ttl).unwrap();
        let guard = locks.adopt(held).await.unwrap();
        guard.renew().await.unwrap();
        assert!(fleet.rests("k").await[0] > least, "{ttl:?}");
        held = guard.detach();
    }
}

/// `TestLock_TryExtend/FailsWhenLockNotExists`.
#[tokio::test]
async fn redlock_lock_try_extend_fails_when_lock_not_exists() {
    let fleet = Fleet::one().await;
    let locks = fleet.locks().await;
    let error = locks.adopt(lease("k", "any", secs(30))).await.unwrap_err();
    assert_eq!((error.kind(), error.lost_reason()), (ErrorKind::Lost, Some(&LostReason::Gone)));
    let guard = locks.lock("k").await.unwrap();
    fleet.servers[0].ask(&["DEL", "k"]).await.unwrap();
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(!guard.is_held());
    assert_eq!(fleet.values("k").await, [None]);
}

/// `TestLock_TryExtend/FailsWithWrongFencing`.
#[tokio::test]
async fn redlock_lock_try_extend_fails_with_wrong_fencing() {
    let fleet = Fleet::one().await;
    let locks = fleet.locks().await;
    let guard = locks.lock("k").await.unwrap();
    let error = locks.adopt(lease("k", "wrong", secs(120))).await.unwrap_err();
    assert_eq!((error.kind(), error.lost_reason()), (ErrorKind::Lost, Some(&LostReason::Gone)));
    assert_eq!(fleet.copies("k", &guard).await, 1);
    assert!(fleet.rests("k").await[0] <= 30_001 && guard.verify().await.unwrap());
}

/// `TestLock_TryExtend/SucceedsWithCorrectFencing`: also with only the value that another client wrote.
#[tokio::test]
async fn redlock_lock_try_extend_succeeds_with_correct_fencing() {
    let fleet = Fleet::one().await;
    let locks = fleet.locks().await;
    let guard = locks.lock("k").await.unwrap();
    guard.renew().await.unwrap();
    foreign(&fleet.servers[0], "theirs", "token").await;
    let guard = locks.adopt(lease("theirs", "token", secs(3_600))).await.unwrap();
    assert!(!guard.is_fresh() && fleet.rests("theirs").await[0] > 1_800_000);
}

/// `TestLock_Release/Success`.
#[tokio::test]
async fn redlock_lock_release_success() {
    let fleet = Fleet::one().await;
    let guard = fleet.locks().await.lock("k").await.unwrap();
    assert_eq!(fleet.copies("k", &guard).await, 1);
    let report = guard.release().await.unwrap();
    assert!(matches!(report.outcome, ReleaseOutcome::Released));
    assert_eq!(fleet.values("k").await, [None]);
}

/// `TestLock_Release/WrongFencingDoesNotDelete`: here it is not silent either.
#[tokio::test]
async fn redlock_lock_release_wrong_fencing_does_not_delete() {
    let fleet = Fleet::one().await;
    let locks = fleet.locks().await;
    let guard = locks.lock("k").await.unwrap();
    fleet.servers[0].ask(&["SET", "k", "theirs", "PX", "300000"]).await.unwrap();
    let report = guard.release().await.unwrap();
    assert!(matches!(report.outcome, ReleaseOutcome::NotHeld), "{report:?}");
    assert_eq!(fleet.values("k").await, [Some("theirs".to_owned())]);
    let right = locks.adopt(lease("k", "theirs", secs(30))).await.unwrap();
    assert!(matches!(right.release().await.unwrap().outcome, ReleaseOutcome::Released));
    assert_eq!(fleet.values("k").await, [None]);
}

/// `TestLock_MaxRetryExceeded`: two retries are three tries; a back-off may end the wait as well.
#[tokio::test]
async fn redlock_lock_max_retry_exceeded() {
    let (_fleet, others) = held_by_another().await;
    let pause = Uniform::new(ms(50), ms(300));
    let report = timed_out(others.lock("k").wait(Wait::Attempts(3)).backoff(pause).await);
    assert!(report.tries == 3 && matches!(report.cause, WaitCause::Held), "{report}");
    let twice = |retry| (retry < 2).then_some(ms(50));
    let (pauses, twice) = recorded(twice);
    let report = timed_out(others.lock("k").wait(Wait::Forever).backoff(twice).await);
    assert!(matches!(report.cause, WaitCause::Exhausted), "{report}");
    assert_eq!(*pauses.lock().unwrap(), [ms(50); 2]);
}

/// `TestLock_MinRetryDelay`.
#[tokio::test]
async fn redlock_lock_min_retry_delay() {
    let (_fleet, others) = held_by_another().await;
    let pause = Uniform::new(ms(200), ms(300));
    let report = timed_out(others.lock("k").wait(Wait::Attempts(2)).backoff(pause).await);
    assert!(report.tries == 2 && report.waited >= ms(200), "{report}");
}

/// `TestWithJitterDuration`.
#[tokio::test]
async fn redlock_with_jitter_duration() {
    let (_fleet, others) = held_by_another().await;
    let (pauses, jitter) = recorded(Uniform::new(Duration::ZERO, ms(10)));
    let report = timed_out(others.lock("k").wait(Wait::Attempts(6)).backoff(jitter).await);
    let pauses = pauses.lock().unwrap();
    assert_eq!((report.tries, pauses.len()), (6, 5));
    assert!(pauses.iter().all(|pause| *pause <= ms(10)), "{pauses:?}");
    assert!(report.waited >= pauses.iter().sum::<Duration>());
}

/// `TestWithMaxRetry`: no retry is one try; on a free key that is enough.
#[tokio::test]
async fn redlock_with_max_retry() {
    let (_fleet, others) = held_by_another().await;
    for none in [Wait::Attempts(1), Wait::Attempts(0)] {
        let (pauses, backoff) = recorded(Uniform::new(ms(1), ms(1)));
        let report = timed_out(others.lock("k").wait(none).backoff(backoff).await);
        assert_eq!((report.tries, pauses.lock().unwrap().len()), (1, 0));
        others.lock("free").wait(none).await.unwrap().release().await.unwrap();
    }
    let error = others.lock("k").wait(Wait::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Held);
}

/// `TestWithMinRetryDelay`: without jitter.
#[tokio::test]
async fn redlock_with_min_retry_delay() {
    let (_fleet, others) = held_by_another().await;
    let pause = Uniform::new(ms(200), Duration::ZERO);
    let report = timed_out(others.lock("k").wait(Wait::Attempts(3)).backoff(pause).await);
    assert!(report.tries == 3 && report.waited >= ms(400), "{report}");
}

/// `TestLock_ConcurrentAcquire`: of ten clients one wins, and the others wait in vain.
#[tokio::test]
async fn redlock_lock_concurrent_acquire() {
    let fleet = Fleet::one().await;
    let clients = join_all((0..10).map(|_| fleet.locks())).await;
    let outcomes = join_all(clients.iter().map(async |c| c.lock("k").wait(ms(500)).await)).await;
    let (won, lost): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    assert_eq!((won.len(), lost.len()), (1, 9));
    for outcome in lost {
        assert!(matches!(timed_out(outcome).cause, WaitCause::Held));
    }
    for guard in won {
        assert_eq!(fleet.copies("k", &guard.unwrap()).await, 1);
    }
}

/// `TestExponentialWait/Default`: without jitter, which redlock lacks (defect 8).
#[test]
fn redlock_exponential_wait_default() {
    let mut plain = Exponential::default().with_jitter(Jitter::None);
    let first: Vec<_> = (0..4).map(|retry| plain.next(retry).unwrap()).collect();
    assert_eq!(first, [ms(100), ms(200), ms(400), ms(800)]);
    assert_eq!(plain.next(20), Some(secs(60)));
    assert!((0..100).all(|_| Exponential::default().next(0).unwrap() <= ms(100)));
}

/// `TestExponentialWait/NextDelay`: their retry 1 is our 0.
#[test]
fn redlock_exponential_wait_next_delay() {
    let mut plain = Exponential::new(ms(10), ms(100)).unwrap().with_jitter(Jitter::None);
    for (retry, pause) in [(0, 10), (1, 20), (2, 40), (3, 80), (4, 100), (10, 100)] {
        assert_eq!(plain.next(retry), Some(ms(pause)), "{retry}");
    }
}

/// `TestExponentialWait/Wait` and `TestJitterWait/Wait`: the first try is made at once, the second after the pause.
#[tokio::test]
async fn redlock_exponential_wait_wait_and_jitter_wait_wait() {
    let (_fleet, others) = held_by_another().await;
    waits_once(&others, Exponential::new(ms(1), secs(60)).unwrap().with_jitter(Jitter::None)).await;
    waits_once(&others, Uniform::new(ms(1), ms(300))).await;
}

async fn waits_once(others: &Locker, backoff: impl Backoff + Clone) {
    let two = |key| others.lock(key).wait(Wait::Attempts(2));
    let (pauses, recording) = recorded(backoff.clone());
    two("free").backoff(recording).await.unwrap().release().await.unwrap();
    assert!(pauses.lock().unwrap().is_empty());
    let (pauses, recording) = recorded(backoff);
    let report = timed_out(two("k").backoff(recording).await);
    assert!(pauses.lock().unwrap().len() == 1 && report.waited >= ms(1), "{report}");
}

/// `TestExponentialWait/MaxRetry`: three retries are four tries; there is no fifth, also when counted in pauses. Behind
/// one of our own holders there is one try more, which follows the subscription to wake-ups (F1).
#[tokio::test]
async fn redlock_exponential_wait_max_retry() {
    let (_fleet, others) = held_by_another().await;
    let (pauses, plain) = recorded(Exponential::new(ms(1), secs(60)).unwrap());
    let report = timed_out(others.lock("k").wait(Wait::Attempts(4)).backoff(plain).await);
    assert!(report.tries == 4 && pauses.lock().unwrap().len() == 3, "{report}");
    let mut plain = Exponential::new(ms(1), secs(60)).unwrap();
    let three = move |retry| if retry < 3 { plain.next(retry) } else { None };
    let report = timed_out(others.lock("k").wait(Wait::Forever).backoff(three).await);
    assert!(report.tries == 4 && matches!(report.cause, WaitCause::Exhausted), "{report}");
}

/// `TestJitterWait/NextDelay`.
#[test]
fn redlock_jitter_wait_next_delay() {
    let mut jitter = Uniform::new(ms(10), ms(20));
    let pauses: Vec<_> = (0..100).map(|retry| jitter.next(retry).unwrap()).collect();
    assert!(pauses.iter().all(|pause| (ms(10)..=ms(30)).contains(pause)), "{pauses:?}");
    assert!(pauses.iter().any(|pause| *pause < ms(20)) && pauses.iter().any(|p| *p > ms(20)));
}

/// A server whose key `k` another client holds for longer than a test takes, and a process that wants it.
async fn held_by_another() -> (Fleet, Locker) {
    let fleet = Fleet::one().await;
    foreign(&fleet.servers[0], "k", "theirs").await;
    let others = fleet.locks().await;
    (fleet, others)
}

fn timed_out<T: std::fmt::Debug>(outcome: Result<T, Error>) -> WaitReport {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    error.wait_report().unwrap().clone()
}
