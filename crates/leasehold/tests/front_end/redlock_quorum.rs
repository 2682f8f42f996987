//! The cases of redlock's own suite for a lock on several Redis servers, by name.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::fleet::{Fleet, foreign, lease, ms, recorded, secs};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use leasehold::backoff::Uniform;
use leasehold::inspect::NodeOutcome;
use leasehold::store::Drift;
use leasehold::{
    Effect, Error, ErrorKind, Locker, LostReason, QuorumConfig, ReleaseOutcome, Remaining, Ttl,
    Wait, WaitCause, WaitReport,
};
use leasehold_testkit::{in_time, until};

/// A term that does not end while a test waits for the lock to end otherwise.
const LONGER: Duration = Duration::from_secs(60);

/// `TestDistributedLock_Acquire/Success`, `/QuorumAchieved` and `/ReleaseSuccess`.
#[tokio::test]
async fn redlock_distributed_lock_acquire_success_quorum_achieved_release_success() {
    let fleet = Fleet::nodes(3).await;
    let guard = fleet.locks().await.lock("k").ttl(LONGER).await.unwrap();
    assert!(guard.is_held());
    let granted =
        |node: &&leasehold::inspect::NodeReport| matches!(node.leases[..], [NodeOutcome::Granted]);
    assert!(guard.nodes().iter().filter(granted).count() >= 2, "{:?}", guard.nodes());
    assert!(fleet.copies("k", &guard).await >= 2);
    let report = guard.release().await.unwrap();
    assert!(
        matches!(report.outcome, ReleaseOutcome::Released) && report.has_majority() == Some(true)
    );
    assert_eq!(report.nodes_total(), 3);
    fleet.until_nowhere("k").await;
}

/// `TestDistributedLock_TryAcquire/Success` and `/FailsWhenHeld`: on one node, and on three of which two are taken.
#[tokio::test]
async fn redlock_distributed_lock_try_acquire_success_and_fails_when_held() {
    let fleet = Fleet::nodes(1).await;
    let guard = fleet.locks().await.try_lock("k").await.unwrap().unwrap();
    assert_eq!(fleet.copies("k", &guard).await, 1);
    assert!(fleet.locks().await.try_lock("k").await.unwrap().is_none());

    let fleet = Fleet::nodes(3).await;
    let locks = fleet.locks().await;
    foreign(&fleet.servers[0], "k", "theirs").await;
    locks.try_lock("k").await.unwrap().unwrap().release().await.unwrap();
    foreign(&fleet.servers[1], "k", "theirs").await;
    assert!(locks.try_lock("k").ttl(LONGER).await.unwrap().is_none());
    until(async || fleet.values("k").await[2].is_none()).await;
}

/// `TestDistributedLock_Extend/Success`.
#[tokio::test]
async fn redlock_distributed_lock_extend_success() {
    let fleet = Fleet::nodes(3).await;
    let locks = fleet.locks().await;
    let guard = locks.lock("k").ttl(secs(20)).await.unwrap();
    fleet.until_everywhere("k", &guard).await;
    let mut lease = guard.detach();
    lease.ttl = Ttl::new(secs(60)).unwrap();
    let guard = locks.adopt(lease).await.unwrap();
    assert!(matches!(guard.renew().await.unwrap(), Remaining::For(rest) if rest > secs(30)));
    let extended = fleet.rests("k").await.into_iter().filter(|rest| *rest > 30_000).count();
    assert!(extended >= 2, "{extended}");
}

/// `TestDistributedLock_TryExtend/FailsWhenNotHeld`.
#[tokio::test]
async fn redlock_distributed_lock_try_extend_fails_when_not_held() {
    let fleet = Fleet::nodes(3).await;
    let locks = fleet.locks().await;
    let error = locks.adopt(lease("k", "any", secs(30))).await.unwrap_err();
    assert_eq!((error.kind(), error.lost_reason()), (ErrorKind::Lost, Some(&LostReason::Gone)));
    // Nor is it put back, now or later.
    locks.close(secs(60)).await.unwrap();
    assert_eq!(fleet.values("k").await, [None, None, None]);
}

/// `TestDistributedLock_TryExtend/FailsWithWrongFencing`, and extending with a wrong one for a limited number of
/// retries: it is lost, and no try follows (F5).
#[tokio::test]
async fn redlock_distributed_lock_try_extend_fails_with_wrong_fencing() {
    let fleet = Fleet::nodes(3).await;
    let locks = fleet.locks().await;
    let guard = locks.lock("k").await.unwrap();
    fleet.until_everywhere("k", &guard).await;
    for _ in 0..2 {
        let error = locks.adopt(lease("k", "wrong", secs(60))).await.unwrap_err();
        assert_eq!((error.kind(), error.lost_reason()), (ErrorKind::Lost, Some(&LostReason::Gone)));
    }
    assert_eq!(fleet.copies("k", &guard).await, 3);
    assert!(fleet.rests("k").await.iter().all(|rest| *rest <= 30_001));
}

/// `TestDistributedLock_TryExtend/SucceedsWithCorrectFencing`.
#[tokio::test]
async fn redlock_distributed_lock_try_extend_succeeds_with_correct_fencing() {
    let fleet = Fleet::nodes(3).await;
    let locks = fleet.locks().await;
    locks.lock("k").await.unwrap().renew().await.unwrap();
    for server in &fleet.servers {
        foreign(server, "theirs", "token").await;
    }
    let guard = locks.adopt(lease("theirs", "token", secs(60))).await.unwrap();
    assert!(!guard.is_fresh() && guard.is_held());
    guard.release().await.unwrap();
    fleet.until_nowhere("theirs").await;
}

/// `TestDistributedLock_AcquireOrExtend/FreshAcquisition` and `/ExtendWithSameFencing`.
#[tokio::test]
async fn redlock_distributed_lock_acquire_or_extend_fresh_acquisition_and_same_fencing() {
    let fleet = Fleet::nodes(3).await;
    let locks = fleet.locks().await;
    let acquire_or_extend = |ttl| locks.lock("k").lease_id("mine").ttl(ttl);
    let guard = acquire_or_extend(secs(20)).await.unwrap();
    assert!(guard.is_fresh());
    fleet.until_everywhere("k", &guard).await;
    let lease = guard.detach();
    let guard = acquire_or_extend(secs(40)).await.unwrap();
    assert!(!guard.is_fresh());
    assert!(fleet.rests("k").await.into_iter().filter(|rest| *rest > 20_000).count() >= 2);
    drop(guard.detach());
    let guard = locks.acquire_or_renew(lease).ttl(secs(60)).await.unwrap();
    assert!(!guard.is_fresh());
    assert!(fleet.rests("k").await.into_iter().filter(|rest| *rest > 40_000).count() >= 2);
    assert_eq!(fleet.copies("k", &guard).await, 3);
}

/// `TestDistributedLock_AcquireOrExtend/FailWithDifferentFencing`.
#[tokio::test]
async fn redlock_distributed_lock_acquire_or_extend_fail_with_different_fencing() {
    let fleet = Fleet::nodes(3).await;
    let guard = fleet.locks().await.lock("k").await.unwrap();
    fleet.until_everywhere("k", &guard).await;
    let others = fleet.locks().await;
    for asked in
        [others.lock("k").lease_id("wrong"), others.acquire_or_renew(lease("k", "wrong", secs(30)))]
    {
        let report = timed_out(asked.wait(ms(500)).await);
        assert!(matches!(report.cause, WaitCause::Held), "{report}");
    }
    assert_eq!(fleet.copies("k", &guard).await, 3);
}

/// `TestDistributedLock_MaxRetryExceeded`.
#[tokio::test]
async fn redlock_distributed_lock_max_retry_exceeded() {
    let (_fleet, others) = held_by_another(3).await;
    let pause = Uniform::new(ms(50), ms(300));
    let report = timed_out(others.lock("k").wait(Wait::Attempts(3)).backoff(pause).await);
    assert!(report.tries == 3 && matches!(report.cause, WaitCause::Held), "{report}");
}

/// `TestDistributedLock_Release/Success`, and `ReleaseWithCount`, which is not tested there.
#[tokio::test]
async fn redlock_distributed_lock_release_success() {
    let fleet = Fleet::nodes(3).await;
    let guard = fleet.locks().await.lock("k").ttl(LONGER).await.unwrap();
    fleet.until_everywhere("k", &guard).await;
    let report = guard.release().await.unwrap();
    let counts = (report.nodes_total(), report.nodes_released() >= 2, report.has_majority());
    assert_eq!(counts, (3, true, Some(true)), "{report:?}");
    fleet.until_nowhere("k").await;
}

/// `TestDistributedLock_Release/WrongFencingDoesNotRelease`.
#[tokio::test]
async fn redlock_distributed_lock_release_wrong_fencing_does_not_release() {
    let fleet = Fleet::nodes(3).await;
    let locks = fleet.locks().await;
    let guard = locks.lock("k").await.unwrap();
    for server in &fleet.servers {
        until(async || server.text(&["GET", "k"]).await.is_some()).await;
        server.ask(&["SET", "k", "theirs", "PX", "300000"]).await.unwrap();
    }
    let report = guard.release().await.unwrap();
    assert!(matches!(report.outcome, ReleaseOutcome::NotHeld), "{report:?}");
    assert!(report.has_majority() == Some(false) && report.nodes_released() == 0);
    assert_eq!(fleet.values("k").await, [(); 3].map(|()| Some("theirs".to_owned())));
    let right = locks.adopt(lease("k", "theirs", secs(60))).await.unwrap();
    assert_eq!(right.release().await.unwrap().has_majority(), Some(true));
    fleet.until_nowhere("k").await;
}

/// `TestWithClockDriftFactor`, with its buffer: the holder trusts its lease for that much less.
#[tokio::test]
async fn redlock_with_clock_drift_factor() {
    let fleet = Fleet::nodes(3).await;
    let by_url = Locker::connect(&fleet.url_with("node_timeout=5s&drift=0.05")).await.unwrap();
    let by_code = Locker::builder(store(&fleet, |config| config).await);
    let by_code = by_code.drift(Drift::new(50, secs(1))).build();
    for (locks, believed) in [(by_url, secs(57)), (by_code, secs(56))] {
        let guard = locks.lock("k").ttl(secs(60)).await.unwrap();
        let rest = guard.remaining().duration().unwrap();
        // Redis counts in whole milliseconds, rounded up: a lease may last that much longer than its term.
        assert!(rest > Duration::ZERO && rest <= believed + Duration::from_millis(1), "{rest:?}");
        assert_eq!(guard.release().await.unwrap().has_majority(), Some(true));
        fleet.until_nowhere("k").await;
    }
}

/// `TestWithReleaseTimeout`: how long a failed acquire is rolled back. A release is awaited up to the limit of one
/// operation, and the rest is finished in the background.
#[tokio::test]
async fn redlock_with_release_timeout() {
    let fleet = Fleet::nodes(3).await;
    let store = store(&fleet, |config| config.release_timeout(secs(1))).await;
    let locks = Locker::builder(store.clone()).build();
    let guard = locks.lock("k").ttl(LONGER).await.unwrap();
    fleet.until_everywhere("k", &guard).await;
    assert_eq!(guard.release().await.unwrap().has_majority(), Some(true));
    fleet.until_nowhere("k").await;

    let brief = Locker::builder(store).timeout(secs(1)).build();
    let guard = brief.lock("k").ttl(LONGER).await.unwrap();
    fleet.until_everywhere("k", &guard).await;
    fleet.servers[..2].iter().for_each(|server| server.pause());
    let error = in_time(guard.release()).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
    fleet.servers[..2].iter().for_each(|server| server.resume());
    fleet.until_nowhere("k").await;

    for server in &fleet.servers[..2] {
        foreign(server, "k", "theirs").await;
    }
    assert!(locks.try_lock("k").ttl(LONGER).await.unwrap().is_none());
    until(async || fleet.values("k").await[2].is_none()).await;
}

/// `TestWithDistMaxJitterDuration`.
#[tokio::test]
async fn redlock_with_dist_max_jitter_duration() {
    let (_fleet, others) = held_by_another(1).await;
    let (pauses, jitter) = recorded(Uniform::new(Duration::ZERO, ms(10)));
    let report = timed_out(others.lock("k").wait(Wait::Attempts(6)).backoff(jitter).await);
    let pauses = pauses.lock().unwrap();
    assert_eq!((report.tries, pauses.len()), (6, 5));
    assert!(pauses.iter().all(|pause| *pause <= ms(10)), "{pauses:?}");
    assert!(report.waited >= pauses.iter().sum::<Duration>());
}

/// `TestWithDistMinRetryDelay`.
#[tokio::test]
async fn redlock_with_dist_min_retry_delay() {
    let (_fleet, others) = held_by_another(1).await;
    let pause = Uniform::new(ms(200), Duration::ZERO);
    let report = timed_out(others.lock("k").wait(Wait::Attempts(3)).backoff(pause).await);
    assert!(report.tries == 3 && report.waited >= ms(400), "{report}");
}

/// `TestWithDistMaxRetry`.
#[tokio::test]
async fn redlock_with_dist_max_retry() {
    let (_fleet, others) = held_by_another(1).await;
    for none in [Wait::Attempts(1), Wait::Attempts(0)] {
        let report = timed_out(others.lock("k").wait(none).await);
        assert_eq!(report.tries, 1);
    }
    let error = others.lock("k").wait(Wait::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Held);
}

/// `TestDistributedLock_ConcurrentAcquire`: of five clients one wins. That takes as many rounds as they split the
/// nodes, so they wait without a limit, and the others are seen to try in vain.
#[tokio::test]
async fn redlock_distributed_lock_concurrent_acquire() {
    let fleet = Fleet::nodes(3).await;
    let clients = join_all((0..5).map(|_| fleet.locks())).await;
    let retries: Vec<_> = clients.iter().map(|_| Arc::new(AtomicU32::new(0))).collect();
    let mut waiting: FuturesUnordered<_> = clients
        .iter()
        .zip(&retries)
        .enumerate()
        .map(async |(at, (locks, retries))| {
            let (retries, mut pause) = (Arc::clone(retries), Uniform::new(ms(10), ms(100)));
            let counting = move |retry| {
                retries.fetch_add(1, Ordering::SeqCst);
                leasehold::backoff::Backoff::next(&mut pause, retry)
            };
            (at, locks.lock("k").wait(Wait::Forever).backoff(counting).await.unwrap())
        })
        .collect();
    let (winner, guard) = in_time(waiting.next()).await.unwrap();
    let then: Vec<_> = retries.iter().map(|count| count.load(Ordering::SeqCst)).collect();
    let losers_tried = until(async || {
        let tried = |at: usize| retries[at].load(Ordering::SeqCst) >= then[at] + 3;
        (0..5).all(|at| at == winner || tried(at))
    });
    tokio::select! {
        () = losers_tried => {}
        Some((at, _)) = waiting.next() => panic!("{at} won beside {winner}"),
    }
    assert!(guard.is_held() && fleet.copies("k", &guard).await >= 2);
}

/// Servers whose key `k` another client holds for longer than a test takes, and a process that wants it.
async fn held_by_another(count: usize) -> (Fleet, Locker) {
    let fleet = Fleet::nodes(count).await;
    for server in &fleet.servers {
        foreign(server, "k", "theirs").await;
    }
    let others = fleet.locks().await;
    (fleet, others)
}

async fn store(
    fleet: &Fleet,
    change: impl FnOnce(QuorumConfig) -> QuorumConfig,
) -> leasehold::QuorumStore {
    let mut config = QuorumConfig::new().node_timeout(secs(5));
    for server in &fleet.servers {
        config = config.node(server.url(), server.store().await);
    }
    change(config).build().unwrap()
}

fn timed_out<T: std::fmt::Debug>(outcome: Result<T, Error>) -> WaitReport {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    error.wait_report().unwrap().clone()
}
