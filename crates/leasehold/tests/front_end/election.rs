//! A candidate that campaigns once: elected, cancelled, deposed, resigned.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Fault, Flaky, Sent, drift, ms, secs, spawn, taken};
use leasehold::store::Clock;
use leasehold::{
    Effect, ErrorKind, GroupName, LocalStore, Locker, LostReason, ManualClock, ReleaseOutcome, Ttl,
    Wait,
};
use tokio::time::timeout;

#[tokio::test(start_paused = true)]
async fn one_of_two_candidates_leads_and_its_resignation_elects_the_other_at_once() {
    let store = Flaky::new();
    let (one, other) = (store.locks().election("n"), store.others().election("n"));
    let first = one.campaign().await.unwrap();
    let campaign = spawn(async move { other.campaign().await.unwrap() });
    tokio::time::sleep(secs(3_600)).await;
    assert!(first.is_leader() && !campaign.is_finished());
    let resigned = store.now();
    assert!(matches!(first.resign().await.unwrap().outcome, ReleaseOutcome::Released));
    assert!(!first.is_leader());
    let second = campaign.await.unwrap();
    assert_eq!(store.now(), resigned, "the store can wake");
    assert!(second.is_leader());
    assert!(second.token() > first.token());
}

#[tokio::test(start_paused = true)]
async fn the_leader_holds_the_key_of_that_name_under_the_candidates_id() {
    let store = Flaky::new();
    let locks = store.locks();
    let election = locks.election("n").candidate_name("node-3").ttl(secs(7)).comment("why");
    let leadership = election.campaign().await.unwrap();
    let [record] = &store.records("n").await[..] else { panic!("one record") };
    assert_eq!(record.group, Some(GroupName::new("node-3").unwrap()));
    assert_eq!(record.token, leadership.token());
    assert_eq!(record.note.pid(), Some(std::process::id()));
    assert_eq!(record.note.comment(), Some("why"));
    assert_eq!(leadership.guard().lease().ttl.duration(), Some(secs(7)));
    // By default the id is random.
    let other = locks.election("m").campaign().await.unwrap();
    let third = locks.election("o").campaign().await.unwrap();
    assert_ne!(other.guard().lease().group, third.guard().lease().group);
    assert!(other.guard().lease().group.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_leader_is_renewed_and_its_work_continues() {
    let store = Flaky::new();
    let leadership = store.locks().election("n").ttl(secs(9)).campaign().await.unwrap();
    let worked = leadership.run(tokio::time::sleep(secs(3_600))).await;
    worked.unwrap();
    assert!(leadership.is_leader());
    assert!(store.renews().len() > 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_steps_down_at_its_own_deadline() {
    for fault in [Fault::Hung, Fault::LostRequest, Fault::Unreachable] {
        let store = Flaky::new();
        let leadership = store.locks().election("n").ttl(secs(30)).campaign().await.unwrap();
        let elected = store.now();
        store.down(fault);
        let (lost, run) =
            tokio::join!(leadership.lost(), leadership.run(std::future::pending::<()>()));
        assert_eq!(lost, LostReason::StoreUnreachable, "{fault:?}");
        assert_eq!(run.unwrap_err().kind(), ErrorKind::Lost);
        assert_eq!(store.now() - elected, secs(30) - drift(secs(30)), "{fault:?}");
        store.up();
        assert!(!leadership.is_leader(), "for ever");
    }
}

#[tokio::test]
async fn a_leader_that_was_paused_past_its_term_knows_it_before_anything_else() {
    let clock = Arc::new(ManualClock::new());
    let store = LocalStore::with_clock(clock.clone());
    let locks = || Locker::builder(store.clone()).clock(clock.clone()).build();
    let old = locks().election("n").ttl(secs(10)).campaign().await.unwrap();
    // Nothing has run in between, no timer and no renewal.
    clock.advance(secs(10));
    assert!(!old.is_leader());
    let new = locks().election("n").campaign().await.unwrap();
    assert!(new.token() > old.token());
    assert!(new.is_leader() && !old.is_leader());
    assert!(matches!(old.resign().await.unwrap().outcome, ReleaseOutcome::Expired));
    assert!(new.is_leader());
    assert!(new.guard().verify().await.unwrap(), "the old one's resignation ended nothing");
}

#[tokio::test(start_paused = true)]
async fn a_resignation_ends_with_the_answer_and_continues_if_nobody_waits() {
    let store = Flaky::new();
    let election = store.locks().election("n");
    let leadership = election.campaign().await.unwrap();
    store.on_release([Fault::SlowRequest(secs(3)), Fault::SlowRequest(secs(3))]);
    let began = store.now();
    assert!(matches!(leadership.resign().await.unwrap().outcome, ReleaseOutcome::Released));
    assert_eq!(store.now() - began, secs(3));
    assert!(store.is_free("n").await);
    assert!(matches!(leadership.resign().await.unwrap().outcome, ReleaseOutcome::NotHeld), "once");

    let leadership = election.campaign().await.unwrap();
    timeout(secs(1), leadership.resign()).await.unwrap_err();
    assert!(!leadership.is_leader());
    store.until_free("n").await;
}

#[tokio::test(start_paused = true)]
async fn dropping_a_leadership_releases_it_in_the_background() {
    let store = Flaky::new();
    let locks = store.locks();
    drop(locks.election("n").campaign().await.unwrap());
    store.until_free("n").await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_campaign_leaves_nothing_and_renews_nothing() {
    // In its pause, with its request in flight, and with its grant in flight.
    for fault in [Fault::None, Fault::SlowRequest(secs(8)), Fault::SlowReply(secs(8))] {
        let store = Flaky::new();
        let leader = (fault == Fault::None).then_some(taken(&store, "n", secs(3_600)));
        let leader = match leader {
            Some(taken) => Some(taken.await),
            None => None,
        };
        let locks = store.locks();
        store.on_acquire([fault]);
        let election = locks.election("n").ttl(secs(30));
        timeout(secs(5), election.campaign()).await.unwrap_err();
        drop(leader);
        store.until_free("n").await;
        let asked = store.acquires().len();
        tokio::time::sleep(secs(300)).await;
        assert!(store.is_free("n").await, "{fault:?}");
        assert_eq!(store.acquires().len(), asked, "it asks no more: {fault:?}");
        assert_eq!(store.renews().len(), 0, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_campaign_with_a_deadline_of_its_own_reports_who_led() {
    let store = Flaky::new();
    let _leader = store.others().election("n").candidate_name("them").campaign().await.unwrap();
    let election = store.locks().election("n").wait(Wait::UpTo(secs(5)));
    let error = election.campaign().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let report = error.wait_report().unwrap();
    assert_eq!(report.waited, secs(5));
    assert_eq!(report.holder.as_ref().unwrap().group, Some(GroupName::new("them").unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_second_candidate_of_one_name_is_refused_before_any_request() {
    let store = Flaky::new();
    let locks = store.locks();
    let shutdown = std::future::pending::<()>;
    let refused = |error: leasehold::Error| {
        assert_eq!((error.kind(), error.effect()), (ErrorKind::InvalidInput, Effect::NotApplied));
        assert!(error.to_string().contains("already has a candidate for \"n\""), "{error}");
    };

    // While one leads.
    let leadership = locks.election("n").campaign().await.unwrap();
    let sent = store.log().len();
    let second = timeout(secs(60), locks.clone().election("n").campaign()).await;
    refused(second.expect("refused, and not waiting").unwrap_err());
    refused(locks.election("n").spawn(shutdown()).unwrap_err());
    tokio::time::sleep(ms(1)).await;
    assert_eq!(store.log().len(), sent);
    // Another name, and another Locker, which counts as another process.
    drop(locks.election("m").spawn(shutdown()).unwrap());
    let rival = store.others().election("n").spawn(shutdown()).unwrap();

    // Once it has resigned the name is free, although its leadership is still in scope.
    leadership.resign().await.unwrap();
    rival.elected().await.unwrap();
    let campaign = locks.election("n").campaign();
    tokio::pin!(campaign);
    assert!(timeout(secs(1), campaign.as_mut()).await.is_err(), "the rival leads");
    // While one campaigns, which a campaign that was never polled does not.
    let _unpolled = locks.election("p").campaign();
    refused(locks.election("n").spawn(shutdown()).unwrap_err());
    locks.election("p").campaign().await.unwrap().resign().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_a_loss_the_same_election_campaigns_again() {
    let store = Flaky::new();
    let election = store.locks().election("n");
    let old = election.campaign().await.unwrap();
    store.evict("n", "maintenance").await;
    assert!(matches!(old.lost().await, LostReason::Evicted(Some(_))));
    let new = election.campaign().await.unwrap();
    assert!(new.is_leader());
    drop(old);
    // The old registration was not the new one's.
    assert_eq!(election.campaign().await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_argument_is_the_error_of_the_first_call_that_needs_it() {
    let store = Flaky::that_can(|can| can.tokens = false);
    let locks = store.locks();
    let long = "x".repeat(256);
    let shutdown = std::future::pending::<()>;
    let wrong = [
        locks.election(""),
        locks.election("n").candidate_name(""),
        locks.election("n").candidate_name(long.as_str()),
        locks.election("n").ttl(Duration::from_millis(1)),
        locks.election("n").ttl(Ttl::NEVER),
        locks.election("n").max_hold(Duration::ZERO),
    ];
    for election in wrong {
        assert_eq!(election.campaign().await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(election.spawn(shutdown()).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(locks.election("").observe().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(locks.election("").leader().await.unwrap_err().kind(), ErrorKind::InvalidInput);
    let fenced = locks.election("n").fenced();
    assert_eq!(fenced.campaign().await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(fenced.spawn(shutdown()).unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(store.log(), Vec::<Sent>::new());
}

#[tokio::test(start_paused = true)]
async fn max_hold_ends_a_leadership_and_a_lock_delay_keeps_the_name_taken() {
    let store = Flaky::new();
    let election = store.locks().election("n").ttl(secs(6)).max_hold(secs(60)).lock_delay(secs(9));
    let leadership = election.campaign().await.unwrap();
    let elected = store.now();
    assert_eq!(leadership.lost().await, LostReason::MaxHold);
    assert_eq!(store.now() - elected, secs(60));
    let next = store.others().election("n").campaign().await.unwrap();
    assert!(store.now() - elected >= secs(69), "{:?}", store.now() - elected);
    assert!(next.is_leader());
}

#[test]
fn without_a_runtime_nothing_is_spawned() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    let locks = Locker::builder(LocalStore::with_clock(clock.clone())).clock(clock).build();
    let error = locks.election("n").spawn(std::future::pending()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected);
    assert!(error.to_string().contains("tokio runtime"), "{error}");
}

#[test]
fn on_a_runtime_without_timers_nothing_is_spawned() {
    let store = Flaky::in_real_time();
    let locks = store.locks();
    // A runtime with timers, on which the leases of this Locker are renewed.
    let other = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let _guard = other.block_on(async { locks.lock("k").await.unwrap() });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let error = runtime.block_on(async { locks.election("n").spawn(std::future::pending()) });
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unexpected);
    assert!(error.to_string().contains("enable_time"), "{error}");
    assert_eq!(store.acquires().len(), 1);
}
