//! A candidate in the background: its shutdown, its pauses, its end.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use crate::support::log::logged;
use crate::support::{Fault, Flaky, Sent, drift, ms, secs, spawn, taken};
use leasehold::{
    Candidate, Effect, Election, ErrorKind, LeadershipEvent, LeadershipEvents, Locker, LostReason,
    ReleaseOutcome, Wait,
};
use tokio::sync::oneshot;

/// Sends when it is dropped.
type Stop = oneshot::Sender<()>;

fn spawned(election: &Election) -> (Candidate, Stop) {
    let (stop, stopped) = oneshot::channel();
    (election.spawn(async { drop(stopped.await) }).unwrap(), stop)
}

async fn next(transitions: &mut LeadershipEvents) -> LeadershipEvent {
    within(transitions.next()).await.expect("more transitions")
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(secs(300), what).await.expect("it ends")
}

#[tokio::test(start_paused = true)]
async fn its_first_try_is_made_at_once() {
    let store = Flaky::new();
    let started = store.now();
    let (candidate, _stop) =
        spawned(&store.locks().election("n").candidate_name("a").ttl(secs(30)));
    let leadership = candidate.elected().await.unwrap();
    assert_eq!(store.now(), started);
    assert!(candidate.is_leader() && leadership.is_leader());
    assert_eq!(candidate.leadership().unwrap().token(), leadership.token());
    assert_eq!((candidate.name().as_str(), candidate.candidate_name().as_str()), ("n", "a"));
    assert_eq!(candidate.ttl().duration(), Some(secs(30)));
}

#[tokio::test(start_paused = true)]
async fn it_campaigns_again_after_each_loss() {
    let store = Flaky::new();
    let (candidate, _stop) = spawned(&store.locks().election("n").ttl(secs(9)));
    let mut token = None;
    for _ in 0..3 {
        let leadership = within(candidate.elected()).await.unwrap();
        assert!(leadership.token() > token);
        token = leadership.token();
        store.evict("n", "again").await;
        assert!(matches!(within(leadership.lost()).await, LostReason::Evicted(_)));
        store.down(Fault::LostRequest);
        tokio::time::sleep(secs(60)).await;
        assert!(!candidate.is_leader());
        store.up();
    }
    within(candidate.elected()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn it_steps_down_at_its_own_deadline_and_leads_again_when_the_store_is_back() {
    let store = Flaky::new();
    let (candidate, _stop) = spawned(&store.locks().election("n").ttl(secs(30)));
    let mut transitions = candidate.observe();
    assert!(matches!(next(&mut transitions).await, LeadershipEvent::Gained { .. }));
    let elected = store.now();
    store.down(Fault::Hung);
    let lost = next(&mut transitions).await;
    assert!(matches!(lost, LeadershipEvent::Lost(LostReason::StoreUnreachable)), "{lost:?}");
    assert_eq!(store.now() - elected, secs(30) - drift(secs(30)));
    assert!(!candidate.is_leader() && candidate.leadership().is_none());
    store.up();
    let gained = next(&mut transitions).await;
    assert!(matches!(gained, LeadershipEvent::Gained { .. }), "{gained:?}");
}

#[tokio::test(start_paused = true)]
async fn after_shutdown_it_ends_only_when_its_resignation_is_answered() {
    let store = Flaky::new();
    let locks = store.locks();
    let (candidate, stop) = spawned(&locks.election("n"));
    let leadership = candidate.elected().await.unwrap();
    store.on_release([Fault::SlowRequest(secs(3))]);
    let stopped = store.now();
    drop(stop);
    within(candidate.join()).await.unwrap();
    assert_eq!(store.now() - stopped, secs(3));
    assert!(store.is_free("n").await);
    assert!(!leadership.is_leader() && !candidate.is_leader());
    // The name is free then.
    drop(locks.election("n").campaign().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn after_shutdown_on_a_hung_store_it_ends_at_the_limit_of_one_operation() {
    let store = Flaky::new();
    let (candidate, stop) = spawned(&store.locks().election("n").ttl(secs(60)));
    candidate.elected().await.unwrap();
    store.down(Fault::Hung);
    let stopped = store.now();
    drop(stop);
    within(candidate.join()).await.unwrap();
    assert_eq!(store.now() - stopped, secs(10));
    store.up();
    // The resignation continues in the background.
    store.until_free("n").await;
    assert!(store.now() - stopped < secs(60));
}

#[tokio::test(start_paused = true)]
async fn after_shutdown_with_a_grant_in_flight_it_ends_when_that_is_released() {
    let store = Flaky::new();
    store.on_acquire([Fault::SlowReply(secs(4))]);
    let started = store.now();
    let (candidate, stop) = spawned(&store.locks().election("n"));
    store.until_acquires(1).await;
    assert!(!store.is_free("n").await);
    drop(stop);
    within(candidate.join()).await.unwrap();
    assert_eq!(store.now() - started, secs(4));
    assert!(store.is_free("n").await);
    assert!(!candidate.is_leader());
}

#[tokio::test(start_paused = true)]
async fn after_shutdown_or_pause_during_a_resignation_it_waits_for_the_answer() {
    for pauses in [true, false] {
        let store = Flaky::new();
        let (candidate, stop) = spawned(&store.locks().election("n").ttl(secs(60)));
        let leadership = candidate.elected().await.unwrap();
        store.on_release([Fault::SlowRequest(secs(5))]);
        let resigned = store.now();
        let resigning = spawn(async move { leadership.resign().await });
        store.until(|log| matches!(log.last(), Some(Sent::Release(_)))).await;
        if pauses {
            within(candidate.pause()).await.unwrap();
        } else {
            drop(stop);
            within(candidate.join()).await.unwrap();
        }
        assert_eq!(store.now() - resigned, secs(5));
        assert!(store.is_free("n").await);
        resigning.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn its_pause_and_its_end_do_not_wait_for_other_requests_of_its_locker() {
    let store = Flaky::new();
    let locks = store.locks();
    let (candidate, stop) = spawned(&locks.election("n"));
    let leadership = candidate.elected().await.unwrap();
    let other = locks.lock("other").ttl(secs(3_600)).await.unwrap();
    store.on_release([Fault::Hung]);
    let released = other.lease().id.clone();
    drop(other);
    store.until(|log| log.contains(&Sent::Release(vec![released.clone()]))).await;
    let begun = store.now();
    within(candidate.pause()).await.unwrap();
    candidate.resume().unwrap();
    within(candidate.elected()).await.unwrap();
    drop(stop);
    within(candidate.join()).await.unwrap();
    assert_eq!(store.now(), begun);
    assert!(!leadership.is_leader(), "held on to, it holds nothing up");
}

#[tokio::test(start_paused = true)]
async fn after_shutdown_before_its_first_poll_it_sends_nothing() {
    let store = Flaky::new();
    let candidate = store.locks().election("n").spawn(std::future::ready(())).unwrap();
    within(candidate.join()).await.unwrap();
    assert_eq!(store.log(), Vec::<Sent>::new());
}

#[tokio::test(start_paused = true)]
async fn without_a_handle_it_continues_until_it_is_shut_down() {
    let store = Flaky::new();
    let (candidate, stop) = spawned(&store.locks().election("n").ttl(secs(5)));
    candidate.elected().await.unwrap();
    drop(candidate);
    tokio::time::sleep(secs(600)).await;
    assert!(!store.is_free("n").await);
    drop(stop);
    store.until_free("n").await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_resigns_and_stops_campaigning_until_it_is_resumed() {
    let store = Flaky::new();
    let (candidate, _stop) = spawned(&store.locks().election("n").ttl(secs(5)));
    let leadership = candidate.elected().await.unwrap();
    store.on_release([Fault::SlowRequest(secs(2))]);
    let paused = store.now();
    within(candidate.pause()).await.unwrap();
    assert_eq!(store.now() - paused, secs(2), "the release was answered");
    assert!(!leadership.is_leader() && !candidate.is_leader());
    assert!(store.is_free("n").await);
    let sent = store.log().len();
    tokio::time::sleep(secs(3_600)).await;
    assert_eq!(store.log().len(), sent, "nothing is sent");
    let resumed = store.now();
    candidate.resume().unwrap();
    candidate.elected().await.unwrap();
    assert_eq!(store.now(), resumed, "at once");
}

#[tokio::test(start_paused = true)]
async fn a_pause_while_it_campaigns_stops_its_requests() {
    let store = Flaky::new();
    let leader = taken(&store, "n", secs(600)).await;
    // The wait limit of a campaign does not apply to a spawned candidate.
    let (candidate, _stop) = spawned(&store.locks().election("n").wait(Wait::No));
    tokio::time::sleep(secs(30)).await;
    assert!(candidate.status().leader.is_some());
    let paused = store.now();
    within(candidate.pause()).await.unwrap();
    within(candidate.pause()).await.unwrap();
    assert!(candidate.status().leader.is_none(), "it looks no more");
    assert_eq!(store.now(), paused, "at once");
    let sent = store.log().len();
    leader.release().await.unwrap();
    tokio::time::sleep(secs(600)).await;
    assert_eq!(store.log().len(), sent);
    candidate.resume().unwrap();
    within(candidate.elected()).await.unwrap();
}

/// Campaigns again the moment it is woken, before any other task runs.
struct StandsAgain {
    locks: Locker,
    stood: Mutex<Option<leasehold::Result<Candidate>>>,
}

impl Wake for StandsAgain {
    fn wake(self: Arc<Self>) {
        let again = self.locks.election("n").spawn(std::future::ready(()));
        *self.stood.lock().unwrap() = Some(again);
    }
}

#[tokio::test(start_paused = true)]
async fn after_its_end_is_reported_another_may_campaign_at_once() {
    let store = Flaky::new();
    let locks = store.locks();
    let _leader = taken(&store, "n", secs(600)).await;
    let (candidate, stop) = spawned(&locks.election("n"));
    store.until_acquires(2).await;
    let again = Arc::new(StandsAgain { locks, stood: Mutex::default() });
    let waker = Waker::from(Arc::clone(&again));
    let mut ended = pin!(candidate.join());
    assert!(ended.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(stop);
    within(candidate.join()).await.unwrap();
    again.stood.lock().unwrap().take().expect("it was woken").unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_shutdown_while_paused_it_ends() {
    let store = Flaky::new();
    let (candidate, stop) = spawned(&store.locks().election("n"));
    candidate.pause().await.unwrap();
    drop(stop);
    within(candidate.join()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_it_resigns_others_are_elected_even_if_the_store_wakes_nobody() {
    let store = Flaky::with_push(false);
    let (one, _stop) = spawned(&store.locks().election("n"));
    let first = one.elected().await.unwrap();
    let (other, _other_stop) = spawned(&store.others().election("n"));
    tokio::time::sleep(secs(60)).await;
    assert!(matches!(first.resign().await.unwrap().outcome, ReleaseOutcome::Released));
    let resigned = store.now();
    let second = within(other.elected()).await.unwrap();
    assert!(store.now() - resigned <= ms(2_500), "the longest pause of a candidate");
    assert!(!one.is_leader());
    // It campaigns again: there is no other candidate.
    drop(_other_stop);
    within(other.join()).await.unwrap();
    let third = within(one.elected()).await.unwrap();
    assert!(third.token() > second.token());
}

#[tokio::test(start_paused = true)]
async fn after_max_hold_another_is_elected_next() {
    for notifications in [true, false] {
        let store = Flaky::with_push(notifications);
        let election = |locks: Locker| locks.election("n").max_hold(secs(7));
        let (one, _one_stop) = spawned(&election(store.locks()));
        let mut transitions = one.observe();
        let first = one.elected().await.unwrap();
        let (other, _other_stop) = spawned(&election(store.others()));
        for _ in 0..5 {
            let second = within(other.elected()).await.unwrap();
            assert!(matches!(next(&mut transitions).await, LeadershipEvent::Gained { .. }));
            let lost = next(&mut transitions).await;
            assert!(matches!(lost, LeadershipEvent::Lost(LostReason::MaxHold)), "{lost:?}");
            assert!(matches!(next(&mut transitions).await, LeadershipEvent::Changed(Some(_))));
            assert!(second.token() > first.token());
            within(second.lost()).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn while_it_lets_others_try_it_obeys_its_shutdown() {
    let store = Flaky::new();
    let (candidate, stop) = spawned(&store.locks().election("n"));
    candidate.elected().await.unwrap().resign().await.unwrap();
    let resigned = store.now();
    tokio::time::sleep(ms(500)).await;
    drop(stop);
    within(candidate.join()).await.unwrap();
    assert_eq!(store.now() - resigned, ms(500));
    assert_eq!(store.acquires().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_is_not_running_reports_it() {
    let store = Flaky::new();
    let (candidate, stop) = spawned(&store.locks().election("n").candidate_name("a"));
    candidate.elected().await.unwrap();
    drop(stop);
    candidate.join().await.unwrap();
    let errors = [
        candidate.leader().await.unwrap_err(),
        candidate.elected().await.unwrap_err(),
        candidate.pause().await.unwrap_err(),
        candidate.resume().unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Closed, Effect::NotApplied));
        assert!(!error.is_retryable());
        assert!(error.to_string().contains("candidate a for \"n\" no longer runs"), "{error}");
    }
    let status = candidate.status();
    assert!(!status.leads && status.token.is_none() && status.leader.is_none());
    assert!(candidate.observe().next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_lasting_failure_ends_it_and_is_reported() {
    let store = Flaky::new();
    let locks = store.locks();
    store.on_acquire([Fault::Incompatible]);
    let (candidate, _stop) = spawned(&locks.election("n"));
    let mut transitions = candidate.observe();
    let failed = next(&mut transitions).await;
    assert!(
        matches!(&failed, LeadershipEvent::Failed(e) if e.kind() == ErrorKind::Incompatible),
        "{failed:?}"
    );
    assert!(transitions.next().await.is_none());
    assert_eq!(candidate.join().await.unwrap_err().kind(), ErrorKind::Incompatible);
    // The error states why it no longer runs.
    let error = candidate.elected().await.unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("no tables any more"));
    // The name is free.
    let (again, _stop) = spawned(&locks.election("n"));
    again.elected().await.unwrap();
    locks.close(secs(1)).await.unwrap();
    again.pause().await.unwrap();
    again.resume().unwrap();
    assert_eq!(within(again.join()).await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_store_and_a_refused_login_do_not_end_it() {
    for fault in [Fault::Panic, Fault::Denied] {
        let store = Flaky::new();
        store.on_acquire([fault; 6]);
        let (candidate, stop) = spawned(&store.locks().election("n"));
        let before = store.now();
        let leadership = within(candidate.elected()).await.unwrap();
        assert!(leadership.is_leader());
        assert_eq!(store.acquires().len(), 7, "{fault:?}");
        assert!(store.now() - before <= secs(1 + 2 + 4 + 8 + 16 + 30), "{fault:?}");
        drop(stop);
        within(candidate.join()).await.unwrap();

        store.on_acquire(vec![fault; 100]);
        let (candidate, stop) = spawned(&store.locks().election("n"));
        tokio::time::sleep(secs(100)).await;
        drop(stop);
        let before = store.now();
        within(candidate.join()).await.unwrap();
        assert_eq!(store.now(), before, "its pause does not delay its end");
    }
}

#[test]
fn when_its_runtime_is_gone_it_has_ended_and_the_lease_ends_with_its_term() {
    let store = Flaky::in_real_time();
    let locks = store.locks();
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_time().build().unwrap()
    };
    let (candidate, leadership) = {
        let its_own = runtime();
        let candidate = its_own.block_on(async {
            let candidate = locks.election("n").ttl(ms(300)).spawn(std::future::pending()).unwrap();
            (candidate.clone(), candidate.elected().await.unwrap())
        });
        its_own.shutdown_timeout(Duration::from_secs(60));
        candidate
    };
    runtime().block_on(async {
        // In real time.
        let ended = tokio::time::timeout(secs(20), candidate.join()).await;
        let error = ended.expect("it ends").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unexpected);
        assert!(error.to_string().contains("runtime"), "{error}");
        assert!(!candidate.is_leader());
        // Another is elected, and the old leadership no longer believes in itself then.
        let next = store.others().election("n").campaign().await.unwrap();
        assert!(!leadership.is_leader());
        assert!(next.token() > leadership.token());
        // The name is free.
        drop(next);
        drop(locks.election("n").campaign().await.unwrap());
    });
}

#[test]
fn when_its_runtime_ends_before_it_was_ever_polled_it_has_ended() {
    let store = Flaky::in_real_time();
    let locks = store.locks();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (its_own, other) = (runtime(), runtime());
    let candidate = {
        let _entered = its_own.enter();
        locks.election("n").spawn(std::future::pending()).unwrap()
    };
    drop(its_own);
    other.block_on(async {
        let ended = tokio::time::timeout(secs(20), candidate.join()).await;
        assert_eq!(ended.expect("it has ended").unwrap_err().kind(), ErrorKind::Unexpected);
        candidate.elected().await.unwrap_err();
        candidate.pause().await.unwrap_err();
        drop(locks.election("n").campaign().await.unwrap());
    });
}

#[tokio::test(start_paused = true)]
async fn each_change_of_its_leadership_is_an_event_of_tracing() {
    // No other election here has this name.
    let log = logged("election=logged candidate=a");
    let store = Flaky::new();
    let leader = store.others().election("logged").candidate_name("b").campaign().await.unwrap();
    let (candidate, stop) = spawned(&store.locks().election("logged").candidate_name("a"));
    let mut events = candidate.observe();
    next(&mut events).await;
    leader.resign().await.unwrap();
    within(candidate.elected()).await.unwrap();
    drop(stop);
    within(candidate.join()).await.unwrap();
    let lines = log();
    for what in ["changed", "gained", "resigned"] {
        let event = format!("leadership {what} ");
        assert!(lines.iter().any(|line| line.contains(&event)), "{lines:?}");
    }
}
