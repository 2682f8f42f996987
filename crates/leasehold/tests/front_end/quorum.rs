//! A quorum behind a `Locker`: what the front end adds to it, and what it refuses before it asks a node.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Fault, Faulty, Flaky, Sent, ms, secs, spawn};
use leasehold::inspect::NodeOutcome;
use leasehold::store::TokioClock;
use leasehold::{
    Effect, ErrorKind, Locker, LostReason, QuorumConfig, QuorumStore, ReleaseOutcome, Ttl, Wait,
    WaitCause,
};

struct Three {
    nodes: [Flaky; 3],
    clock: Arc<TokioClock>,
}

impl Three {
    fn new() -> Self {
        Self { nodes: [(); 3].map(|()| Flaky::new()), clock: Arc::new(TokioClock::new()) }
    }

    fn store(&self, change: impl FnOnce(QuorumConfig) -> QuorumConfig) -> QuorumStore {
        let mut config = QuorumConfig::new().clock(Arc::clone(&self.clock) as _);
        for (at, node) in self.nodes.iter().enumerate() {
            config = config.node(format!("n{at}"), Faulty(node.clone()));
        }
        change(config).build().unwrap()
    }

    fn locks(&self) -> Locker {
        self.locks_of(self.store(|config| config))
    }

    fn locks_of(&self, store: QuorumStore) -> Locker {
        Locker::builder(store).clock(Arc::clone(&self.clock) as _).build()
    }

    fn now(&self) -> Duration {
        leasehold::store::Clock::now(&*self.clock)
    }

    async fn copies(&self, key: &str) -> usize {
        let mut copies = 0;
        for node in &self.nodes {
            copies += usize::from(!node.is_free(key).await);
        }
        copies
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_and_its_release_report_each_node() {
    let three = Three::new();
    let guard = three.locks().lock("k").await.unwrap();
    assert_eq!(guard.token(), None);
    let granted =
        |node: &&leasehold::inspect::NodeReport| matches!(node.leases[..], [NodeOutcome::Granted]);
    assert_eq!((guard.nodes().len(), guard.nodes().iter().filter(granted).count() >= 2), (3, true));
    let report = guard.release().await.unwrap();
    assert!(matches!(report.outcome, ReleaseOutcome::Released));
    assert!(
        report.has_majority() == Some(true)
            && report.nodes_released() >= 2
            && report.nodes_total() == 3
    );
}

#[tokio::test(start_paused = true)]
async fn a_quorum_refuses_what_it_cannot_do_before_it_sends_a_request() {
    let three = Three::new();
    let locks = three.locks();
    for (lock, fragment) in [
        (locks.lock("k").fenced(), "fenced"),
        (locks.lock("k").permits(2), "two of three nodes"),
        (locks.lock("k").ttl(secs(61)), "max_ttl"),
        (locks.lock("k").ttl(Ttl::NEVER), "without end"),
    ] {
        let error = lock.await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unsupported, Effect::NotApplied));
        assert!(error.to_string().contains(fragment), "{error}");
    }
    assert!(three.nodes.iter().all(|node| node.log().is_empty()));
    drop(locks.lock("k").shared().await.unwrap());
    let fenced = three.locks_of(three.store(|config| config.fenced(true)));
    assert!(fenced.lock("other").fenced().await.unwrap().token().is_some());
}

/// A lease cannot outlast the smallest limit of a node.
#[tokio::test(start_paused = true)]
async fn a_term_above_the_smallest_nodes_is_refused() {
    let mut three = Three::new();
    three.nodes[1] = Flaky::that_can(|can| can.max_term = secs(20));
    let error = three.locks().lock("k").ttl(secs(21)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(three.nodes.iter().all(|node| node.log().is_empty()));
    drop(three.locks().lock("k").ttl(secs(20)).await.unwrap());
}

/// The redlock defect that cost a holder its lock: a failed try under the holding id deleted it.
#[tokio::test(start_paused = true)]
async fn redlock_01_a_failed_try_under_the_callers_own_id_keeps_what_is_held() {
    let three = Three::new();
    let mine = three.locks();
    let guard = mine.lock("k").lease_id("mine").await.unwrap();
    three.store(|config| config).settled().await;
    for fault in [Fault::Unreachable, Fault::LostRequest] {
        three.nodes[1].on_acquire([fault]);
        three.nodes[2].on_acquire([fault]);
        let same = three.locks();
        let error = same.lock("k").lease_id("mine").wait(Wait::No).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        same.close(secs(5)).await.unwrap();
        tokio::time::sleep(secs(6)).await;
        assert_eq!(three.copies("k").await, 3, "{fault:?}");
    }
    assert!(guard.is_held() && guard.verify().await.is_ok());
}

/// A process that ends right after a failed try leaves no node locked that answers in time.
#[tokio::test(start_paused = true)]
async fn close_waits_for_late_nodes_and_not_for_hung_ones() {
    let three = Three::new();
    let locks = three.locks();
    three.nodes[0].others().lock("k").await.unwrap().detach();
    three.nodes[1].others().lock("k").await.unwrap().detach();
    three.nodes[2].on_release([Fault::SlowRequest(ms(200))]);
    let error = locks.lock("k").wait(Wait::No).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Held);
    let refused =
        |node: &&leasehold::inspect::NodeReport| matches!(node.leases[..], [NodeOutcome::Refused]);
    assert_eq!(error.nodes().iter().filter(refused).count(), 2, "{:?}", error.nodes());
    assert!(!three.nodes[2].is_free("k").await, "it is taken back in the background");
    locks.close(secs(10)).await.unwrap();
    assert!(three.nodes[2].is_free("k").await);

    let locks = three.locks();
    three.nodes[2].on_acquire([Fault::SlowRequest(secs(3_000))]);
    drop(locks.lock("other").await.unwrap());
    let since = three.now();
    locks.close(secs(10)).await.unwrap();
    assert!(three.now() - since <= secs(1), "{:?}", three.now() - since);
}

/// F4: a grant that took as long as it may be trusted is not a grant.
#[tokio::test(start_paused = true)]
async fn a_grant_whose_deadline_has_passed_is_released_everywhere() {
    let three = Three::new();
    for node in &three.nodes {
        node.on_acquire([Fault::SlowReply(ms(90))]);
    }
    let locks = three.locks_of(three.store(|config| config.node_timeout(ms(95))));
    let error = locks.lock("k").ttl(ms(90)).wait(Wait::Attempts(1)).await.unwrap_err();
    assert!(matches!(error.wait_report().unwrap().cause, WaitCause::GrantedTooLate), "{error}");
    locks.close(secs(5)).await.unwrap();
    assert_eq!(three.copies("k").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_holder_without_a_majority_loses_its_lease_before_it_ends_on_any_node() {
    let three = Three::new();
    let guard = three.locks().lock("k").ttl(secs(3)).await.unwrap();
    three.store(|config| config).settled().await;
    three.nodes[0].down(Fault::Hung);
    three.nodes[1].down(Fault::LostRequest);
    assert_eq!(guard.lost().await, LostReason::StoreUnreachable);
    assert_eq!(three.nodes[0].records("k").await.len(), 1, "it still lives there");
}

/// A waiter is not woken by the node where it rolls its own part back, but is when the holder releases.
#[tokio::test(start_paused = true)]
async fn hints_of_a_majority_wake_a_waiter_and_one_nodes_hint_does_not() {
    let three = Three::new();
    // It never received the holder's lease.
    three.nodes[0].on_acquire([Fault::Unreachable]);
    let guard = three.locks().lock("k").ttl(secs(60)).await.unwrap();
    three.store(|config| config).settled().await;
    let waiter = three.locks().lock("k").wait(Wait::Forever).into_future();
    let waiter = crate::support::spawn(waiter);
    three.nodes[1].until_acquires(3).await;
    let tries = || three.nodes[1].acquires().len();
    // A waiter that keeps waking itself would let no time pass.
    for _ in 0..1_000 {
        assert_eq!(tries(), 3, "the holder's, and two of the waiter's");
        tokio::task::yield_now().await;
    }
    // Shorter than the poll.
    tokio::time::sleep(secs(5)).await;
    assert_eq!(tries(), 3);
    let released = three.now();
    guard.release().await.unwrap();
    drop(waiter.await.unwrap().unwrap());
    assert!(three.now() - released < ms(1), "not after a pause");
}

#[tokio::test(start_paused = true)]
async fn each_operation_is_one_exchange_with_each_node() {
    let three = Three::new();
    let locks = three.locks();
    locks.check().await.unwrap();
    let before = three.nodes.each_ref().map(|node| node.log().len());
    let guard = locks.lock("k").await.unwrap();
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    locks.close(secs(5)).await.unwrap();
    for (node, before) in three.nodes.iter().zip(before) {
        let sent = &node.log()[before..];
        let kinds =
            sent.iter().filter(|sent| !matches!(sent, Sent::Check)).map(|sent| match sent {
                Sent::Acquire(_) => "acquire",
                Sent::Renew(_) => "renew",
                Sent::Release(_) => "release",
                _ => "other",
            });
        assert_eq!(kinds.collect::<Vec<_>>(), ["acquire", "renew", "release"]);
    }
}

#[tokio::test]
async fn the_holder_subtracts_the_drift_of_the_url() {
    let believed = async |options: &str| {
        let locks = Locker::connect(&format!("quorum:?node=local:{options}")).await.unwrap();
        let guard = locks.lock(format!("drift{options}")).ttl(secs(50)).await.unwrap();
        let left = guard.remaining().duration().unwrap();
        guard.release().await.unwrap();
        left
    };
    assert!(believed("").await > secs(30));
    assert!(believed("&drift=0.5").await <= secs(25));
    assert!(believed("&drift_margin=30s").await <= secs(20));
}

/// How 60 waiters took their turns.
#[derive(Debug, Default)]
struct Turns {
    /// Tries per grant and node.
    tries: usize,
    time: Duration,
}

/// 60 processes wait for one key on five nodes, `down` of which are down; each holds it for 50 ms. Three times.
async fn turns_of_sixty(down: usize, notifications: bool) -> Turns {
    const WAITERS: usize = 60;
    const TIMES: usize = 3;
    let mut turns = Turns::default();
    for _ in 0..TIMES {
        let nodes = [(); 5].map(|()| Flaky::with_push(notifications));
        let (silent, up) = nodes.split_at(down);
        silent.iter().for_each(|node| node.down(Fault::Unreachable));
        up.iter().for_each(|node| node.down(Fault::Jitter(ms(2))));
        let clock = Arc::new(TokioClock::new());
        let locks = || {
            let mut config = QuorumConfig::new().clock(Arc::clone(&clock) as _);
            for (at, node) in nodes.iter().enumerate() {
                config = config.node(format!("n{at}"), Faulty(node.clone()));
            }
            Locker::builder(config.build().unwrap()).clock(Arc::clone(&clock) as _).build()
        };
        let first = locks();
        let held = first.lock("k").await.unwrap();
        let waiters = [(); WAITERS].map(|()| {
            let locks = locks();
            spawn(async move {
                let guard = locks.lock("k").wait(Wait::Forever).await.unwrap();
                tokio::time::sleep(ms(50)).await;
                guard.release().await.unwrap();
            })
        });
        tokio::time::sleep(secs(5)).await;
        let tries = || up.iter().map(|node| node.acquires().len()).sum::<usize>();
        let (tries_before, since) = (tries(), leasehold::store::Clock::now(&*clock));
        held.release().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap();
        }
        turns.tries += (tries() - tries_before) / (up.len() * WAITERS * TIMES);
        turns.time += leasehold::store::Clock::now(&*clock) - since;
    }
    turns
}

/// Contenders who split the nodes all release their parts: a wake-up for each of these made all of them try again.
#[tokio::test(start_paused = true)]
async fn waiters_that_are_woken_start_no_storm_and_wait_no_longer_than_by_polling() {
    for down in [0, 2] {
        let polling = turns_of_sixty(down, false).await;
        let woken = turns_of_sixty(down, true).await;
        assert!(woken.tries <= 50, "{down} down: {woken:?}");
        assert!(woken.time <= polling.time.mul_f64(1.2), "{down} down: {woken:?}, {polling:?}");
    }
}
