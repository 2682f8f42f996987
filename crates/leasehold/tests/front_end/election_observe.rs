//! The leader: as a candidate knows it, as the store reports it, and as it changes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Fault, Flaky, drift, ms, secs, spawn, taken};
use futures_util::FutureExt;
use leasehold::backoff::Fixed;
use leasehold::{
    Candidate, Election, ErrorKind, GroupName, LeadershipEvent, LeadershipEvents, LocalStore,
    Locker, LostReason, ManualClock, Remaining,
};

fn forever(election: &Election) -> Candidate {
    election.spawn(std::future::pending()).unwrap()
}

async fn next(transitions: &mut LeadershipEvents) -> LeadershipEvent {
    let next = tokio::time::timeout(secs(3_600), transitions.next()).await;
    next.expect("a transition in time").expect("more transitions")
}

/// Fails if there is an event within `seconds` seconds.
async fn quiet_for(transitions: &mut LeadershipEvents, seconds: u64) {
    let told = tokio::time::timeout(secs(seconds), transitions.next()).await;
    assert!(told.is_err(), "{told:?}");
}

/// The leader since then, `None` for nobody.
fn changed(transition: LeadershipEvent) -> Option<String> {
    match transition {
        LeadershipEvent::Changed(leader) => {
            leader.map(|leader| leader.group.map(|group| group.to_string()).unwrap_or_default())
        }
        other => panic!("{other:?}"),
    }
}

/// As the store states.
async fn renewed_ago(candidate: &Candidate) -> Option<Duration> {
    candidate.leader().await.unwrap().unwrap().renewed.inspect(|ago| assert!(*ago <= secs(3)))
}

#[tokio::test(start_paused = true)]
async fn a_candidates_status_names_the_leader_without_a_request() {
    let store = Flaky::new();
    let candidate =
        forever(&store.locks().election("n").candidate_name("a").ttl(secs(9)).comment("why"));
    let before = candidate.status();
    assert!(!before.leads && before.token.is_none() && before.leader.is_none());
    let leadership = candidate.elected().await.unwrap();
    assert_eq!(candidate.status().leader.unwrap().renewed, None, "not yet");
    tokio::time::sleep(secs(100)).await;
    assert_eq!(candidate.status().leader.unwrap().renewed, renewed_ago(&candidate).await);
    // A store that no longer answers.
    store.on_look([Fault::Hung]);
    let status = candidate.status();
    assert!(status.leads);
    assert_eq!(status.token, leadership.token());
    let leader = status.leader.unwrap();
    assert_eq!(leader.group, Some(GroupName::new("a").unwrap()));
    assert_eq!(leader.id.as_ref(), Some(&leadership.guard().lease().id));
    assert_eq!((leader.token, leader.age), (leadership.token(), Some(secs(100))));
    assert_eq!(leader.note.comment(), Some("why"));
    assert_eq!(leader.remaining(), leadership.guard().remaining());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_candidate_knows_the_leader_until_the_leaders_term_ends() {
    let store = Flaky::new();
    let guard = taken(&store, "n", secs(30)).await;
    let candidate = forever(&store.locks().election("n"));
    store.until_acquires(2).await;
    tokio::time::sleep(secs(5)).await;
    let status = candidate.status();
    assert!(!status.leads && status.token.is_none());
    let leader = status.leader.unwrap();
    assert_eq!((leader.id.as_ref(), leader.token), (Some(&guard.lease().id), guard.token()));
    assert_eq!((leader.remaining(), leader.age), (Remaining::For(secs(25)), Some(secs(5))));
    // The leader is gone, and the store with it: the last sight does not count for ever.
    store.down(Fault::Hung);
    tokio::time::sleep(secs(26)).await;
    let status = candidate.status();
    assert!(!status.leads && status.leader.is_none(), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn leader_queries_the_store_and_ignores_an_expired_leader() {
    let store = Flaky::new();
    let locks = store.locks();
    let election = locks.election("n");
    assert!(election.leader().await.unwrap().is_none());
    let leadership =
        store.others().election("n").candidate_name("them").ttl(secs(9)).campaign().await.unwrap();
    tokio::time::sleep(secs(100)).await;
    let leader = election.leader().await.unwrap().unwrap();
    assert_eq!(leader.group, Some(GroupName::new("them").unwrap()));
    assert_eq!(leader.token, leadership.token());
    assert_eq!(leader.note.pid(), Some(std::process::id()));
    assert_eq!(leader.age, Some(secs(100)));
    assert!(leader.renewed.unwrap() <= secs(3), "renewed each third: {:?}", leader.renewed);
    assert!(matches!(leader.remaining(), Remaining::For(left) if left >= secs(6)));

    // It is gone without a message.
    let lease = leadership.guard().lease().clone();
    drop(leadership);
    store.until_free("n").await;
    let _dead = taken(&store, "n", secs(5)).await;
    assert!(election.leader().await.unwrap().is_some_and(|leader| leader.id != Some(lease.id)));
    tokio::time::sleep(secs(5)).await;
    assert!(election.leader().await.unwrap().is_none());

    // A shared holder does not lead, nor does a kept key.
    let shared = locks.lock("n").shared().await.unwrap();
    assert!(election.leader().await.unwrap().is_none());
    shared.release().await.unwrap();
    locks.lock("n").min_hold(secs(60)).await.unwrap().release().await.unwrap();
    assert!(locks.is_held("n").await.unwrap());
    assert!(election.leader().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn leader_ends_at_the_limit_of_one_operation() {
    let store = Flaky::new();
    store.on_look([Fault::Hung]);
    let asked = store.now();
    let error = store.locks().election("n").leader().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "not: nobody");
    assert_eq!(store.now() - asked, secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_candidate_reports_its_transitions_and_nothing_between() {
    let store = Flaky::new();
    let guard = taken(&store, "n", secs(600)).await;
    let candidate = forever(&store.locks().election("n").ttl(secs(9)));
    let mut transitions = candidate.observe();
    assert_eq!(changed(next(&mut transitions).await), Some(String::new()));
    // It tries about twenty times.
    quiet_for(&mut transitions, 200).await;
    guard.release().await.unwrap();
    let gained = next(&mut transitions).await;
    let token = candidate.leadership().unwrap().token();
    assert!(
        matches!(gained, LeadershipEvent::Gained { token: told } if told == token),
        "{gained:?}"
    );
    // It renews about a hundred times, once in vain.
    store.on_renew([Fault::LostRequest]);
    quiet_for(&mut transitions, 300).await;
    store.evict("n", "maintenance").await;
    let rival = store.others();
    let rival = rival.election("n").candidate_name("rival").campaign().await.unwrap();
    let lost = next(&mut transitions).await;
    assert!(matches!(&lost, LeadershipEvent::Lost(LostReason::Evicted(Some(_)))), "{lost:?}");
    assert_eq!(changed(next(&mut transitions).await).as_deref(), Some("rival"));
    // A new reader learns the present state.
    let mut late = candidate.observe();
    assert_eq!(changed(next(&mut late).await).as_deref(), Some("rival"));
    rival.resign().await.unwrap();
    for transitions in [&mut transitions, &mut late] {
        assert!(matches!(next(transitions).await, LeadershipEvent::Gained { .. }));
    }
    candidate.pause().await.unwrap();
    assert!(matches!(next(&mut transitions).await, LeadershipEvent::Resigned));
    quiet_for(&mut transitions, 300).await;
    let mut late = candidate.observe();
    quiet_for(&mut late, 10).await;
}

#[tokio::test(start_paused = true)]
async fn a_resigning_candidate_is_not_reported_as_the_leader() {
    let store = Flaky::new();
    let candidate = forever(&store.locks().election("n").ttl(secs(60)));
    candidate.elected().await.unwrap();
    store.on_release([Fault::SlowRequest(secs(5))]);
    let pausing = candidate.clone();
    let pausing = spawn(async move { pausing.pause().await });
    tokio::time::sleep(secs(1)).await;
    assert!(!candidate.is_leader() && !pausing.is_finished());
    assert!(tokio::time::timeout(secs(1), candidate.elected()).await.is_err());
    let mut observed = candidate.observe();
    assert!(matches!(next(&mut observed).await, LeadershipEvent::Resigned));
    pausing.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_late_reader_gets_the_leader_and_earlier_readers_do_not_get_it_again() {
    for pauses in [true, false] {
        let store = Flaky::new();
        let others = store.others();
        let leader =
            others.election("n").candidate_name("L").ttl(secs(10)).campaign().await.unwrap();
        let candidate = forever(&store.locks().election("n"));
        let mut early = candidate.observe();
        assert_eq!(changed(next(&mut early).await).as_deref(), Some("L"));
        if pauses {
            candidate.pause().await.unwrap();
        } else {
            store.down(Fault::Unreachable);
        }
        tokio::time::sleep(secs(60)).await;
        assert!(candidate.status().leader.is_none());
        let mut late = candidate.observe();
        quiet_for(&mut late, 1).await;
        if pauses {
            candidate.resume().unwrap();
        } else {
            store.up();
        }
        assert_eq!(changed(next(&mut late).await).as_deref(), Some("L"));
        quiet_for(&mut early, 60).await;
        quiet_for(&mut late, 60).await;
        assert!(leader.is_leader());
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidates_own_lost_or_abandoned_lease_is_not_another_leader() {
    for (notifications, fault) in [
        (true, Fault::Unreachable),
        (true, Fault::EntriesFailed),
        (false, Fault::LostRequest),
        (false, Fault::EntriesFailed),
    ] {
        let store = Flaky::with_push(notifications);
        let candidate = forever(&store.locks().election("n").candidate_name("me"));
        let mut observed = candidate.observe();
        assert!(matches!(next(&mut observed).await, LeadershipEvent::Gained { .. }));
        store.down(fault);
        assert!(matches!(next(&mut observed).await, LeadershipEvent::Lost(_)));
        // The store still has its lease, for as long as the drift allowance.
        store.up();
        let told = next(&mut observed).await;
        assert!(
            matches!(told, LeadershipEvent::Gained { .. }),
            "{notifications} {fault:?}: {told:?}"
        );
    }
    // What it won without knowing.
    let store = Flaky::new();
    store.on_acquire([Fault::SlowReply(secs(12))]);
    let candidate = forever(&store.locks().election("n").candidate_name("me"));
    let mut observed = candidate.observe();
    let told = next(&mut observed).await;
    assert!(matches!(told, LeadershipEvent::Gained { .. }), "{told:?}");
    assert!(store.acquires().len() > 2, "it was refused for its own");
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_misses_no_leader_however_often_a_candidate_tries() {
    let store = Flaky::with_push(false);
    let others = store.others();
    let one = others.election("n").candidate_name("one").campaign().await.unwrap();
    let candidate = forever(&store.locks().election("n").backoff(Fixed::new(secs(1))));
    let mut slow = candidate.observe();
    store.until_acquires(1).await;
    one.resign().await.unwrap();
    let _other = others.election("n").candidate_name("other").campaign().await.unwrap();
    store.until_acquires(200).await;
    assert_eq!(changed(next(&mut slow).await).as_deref(), Some("one"));
    assert_eq!(changed(next(&mut slow).await).as_deref(), Some("other"));
    quiet_for(&mut slow, 60).await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_name_the_holder_does_not_report_that_nobody_leads() {
    let store = Flaky::with_push(false);
    store.down(Fault::Unnamed);
    let candidate = forever(&store.locks().election("n"));
    let mut observed = candidate.observe();
    quiet_for(&mut observed, 60).await;
    assert!(candidate.iterations() > 30);
}

#[tokio::test(start_paused = true)]
async fn while_a_name_is_only_kept_taken_nobody_leads_and_no_round_names_a_leader() {
    let store = Flaky::with_push(false);
    let others = store.others();
    others.lock("n").min_hold(secs(60)).await.unwrap().release().await.unwrap();
    let candidate = forever(&store.locks().election("n"));
    let mut observed = candidate.observe();
    let told = Arc::new(Mutex::new(Vec::new()));
    let rounds = {
        let told = Arc::clone(&told);
        candidate.for_each_round(move |leads| told.lock().unwrap().push(leads))
    };
    let rounds = spawn(rounds);
    assert_eq!(changed(next(&mut observed).await), None);
    assert!(candidate.status().leader.is_none());
    candidate.elected().await.unwrap();
    assert!(candidate.iterations() > 30);
    tokio::task::yield_now().await;
    assert_eq!(*told.lock().unwrap(), [true]);
    rounds.abort();
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_each_change_and_no_renewal() {
    for notifications in [true, false] {
        let store = Flaky::with_push(notifications);
        let mut observed = store.locks().election("n").observe().unwrap();
        assert_eq!(changed(next(&mut observed).await), None, "where it starts");
        quiet_for(&mut observed, 100).await;
        let others = store.others();
        for id in ["a", "b"] {
            let campaigned = store.now();
            let leadership =
                others.election("n").candidate_name(id).ttl(secs(6)).campaign().await.unwrap();
            assert_eq!(changed(next(&mut observed).await).as_deref(), Some(id));
            assert!(store.now() - campaigned <= secs(1), "it looks each second while nobody leads");
            quiet_for(&mut observed, 600).await;
            leadership.resign().await.unwrap();
            let resigned = store.now();
            assert_eq!(changed(next(&mut observed).await), None);
            let woken = if notifications { ms(0) } else { secs(1) };
            assert!(store.now() - resigned <= woken, "{:?}", store.now() - resigned);
        }
        // A leader that ends without a message has ended when its term has.
        let _dead = taken(&store, "n", secs(5)).await;
        let died = store.now();
        assert!(changed(next(&mut observed).await).is_some());
        assert_eq!(changed(next(&mut observed).await), None);
        assert!(store.now() - died <= secs(6), "{:?}", store.now() - died);
    }
}

#[tokio::test]
async fn an_observer_without_pauses_lets_other_tasks_run_between_two_looks() {
    let clock = Arc::new(ManualClock::new());
    let store = LocalStore::with_clock(clock.clone());
    let locks = Locker::builder(store).clock(clock).build();
    let mut pauses = 0;
    let backoff = move |_| {
        pauses += 1;
        (pauses < 100).then_some(Duration::ZERO)
    };
    let mut observed = locks.election("n").backoff(backoff).observe().unwrap();
    assert_eq!(changed(next(&mut observed).await), None);
    assert!(observed.next().now_or_never().is_none(), "not a hundred looks at once");
}

#[tokio::test(start_paused = true)]
async fn an_observer_whose_future_is_dropped_again_and_again_still_looks() {
    let store = Flaky::with_push(false);
    let election = store.locks().election("n").backoff(Fixed::new(secs(5)));
    let mut observed = election.observe().unwrap();
    assert_eq!(changed(next(&mut observed).await), None);
    let _leader = taken(&store, "n", secs(3_600)).await;
    let started = store.now();
    let leader = loop {
        if let Ok(told) = tokio::time::timeout(ms(300), observed.next()).await {
            break changed(told.unwrap());
        }
        assert!(store.now() - started < secs(11), "a pause of 5 to 10 s, not put off");
    };
    assert!(leader.is_some());
}

#[tokio::test(start_paused = true)]
async fn while_the_store_does_not_answer_an_observer_reports_once_that_the_leader_is_unknown() {
    let store = Flaky::with_push(false);
    let _leader = taken(&store, "n", secs(3_600)).await;
    let mut observed = store.locks().election("n").observe().unwrap();
    assert!(changed(next(&mut observed).await).is_some());
    store.on_look([Fault::Unreachable, Fault::LostReply, Fault::Hung, Fault::Unreachable]);
    let unknown = next(&mut observed).await;
    assert!(
        matches!(&unknown, LeadershipEvent::Unknown(e) if e.kind() == ErrorKind::Unavailable),
        "{unknown:?}"
    );
    assert!(changed(next(&mut observed).await).is_some(), "the same, and known again");
    quiet_for(&mut observed, 60).await;
    store.on_look([Fault::Denied]);
    let failed = next(&mut observed).await;
    assert!(
        matches!(&failed, LeadershipEvent::Failed(e) if e.kind() == ErrorKind::Denied),
        "{failed:?}"
    );
    assert!(observed.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn transitions_can_be_passed_to_a_callback() {
    let store = Flaky::new();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let candidate = store.locks().election("n").spawn(async { drop(stopped.await) }).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let callback = {
        let told = Arc::clone(&told);
        spawn(candidate.observe().for_each(move |transition| {
            told.lock().unwrap().push(format!("{transition:?}"));
        }))
    };
    candidate.elected().await.unwrap();
    drop(stop);
    callback.await.unwrap();
    let told = told.lock().unwrap();
    assert!(told[0].starts_with("Gained") && told[1] == "Resigned" && told.len() == 2, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn every_round_can_be_passed_to_a_callback_as_in_spindle() {
    let store = Flaky::with_push(false);
    let guard = taken(&store, "n", secs(600)).await;
    let election = store.locks().election("n").ttl(secs(9)).backoff(Fixed::new(secs(1)));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let candidate = election.spawn(async { drop(stopped.await) }).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let legacy = |leads: bool| if leads { b"1" } else { b"0" };
    let callback = {
        let told = Arc::clone(&told);
        spawn(candidate.for_each_round(move |leads| told.lock().unwrap().push(legacy(leads))))
    };
    let rounds = || std::mem::take(&mut *told.lock().unwrap());

    tokio::time::sleep(secs(60)).await;
    let following = rounds();
    assert!(following.len() >= 30 && following.iter().all(|told| *told == b"0"), "{following:?}");
    assert_eq!(candidate.iterations(), following.len() as u64);

    // Nothing while the store does not answer; the round still counts.
    store.down(Fault::Unreachable);
    tokio::time::sleep(secs(60)).await;
    assert!(rounds().len() <= 1);
    assert!(candidate.iterations() > following.len() as u64 + 30);

    store.up();
    guard.release().await.unwrap();
    candidate.elected().await.unwrap();
    rounds();
    let before = candidate.iterations();
    tokio::time::sleep(secs(90)).await;
    let leading = rounds();
    assert!(leading.len() >= 30 && leading.iter().all(|told| *told == b"1"), "{leading:?}");
    assert_eq!(candidate.iterations(), before + leading.len() as u64);
    drop(stop);
    callback.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn renewals_are_jittered() {
    let store = Flaky::new();
    let candidate = forever(&store.locks().election("n").ttl(secs(30)));
    let leadership = candidate.elected().await.unwrap();
    let mut events = leadership.guard().events();
    let mut gaps = Vec::new();
    let mut last = store.now();
    for _ in 0..20 {
        events.next().await.unwrap();
        gaps.push(store.now() - last);
        last = store.now();
    }
    assert!(gaps.iter().all(|gap| *gap >= secs(9) && *gap <= secs(10)), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap != gaps[0]), "{gaps:?}");
    assert!(drift(secs(30)) < secs(1));
}
