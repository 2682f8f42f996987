//! What spindle, whose elections these replace, tests, documents, and does wrong: its own case, the scenarios that
//! its documents promise, and each of its 16 defects by the number of `docs/migrating/spindle.md`.

use std::sync::Arc;

use crate::support::{Fault, Flaky, drift, ms, secs, spawn, taken};
use futures_util::future::join_all;
use leasehold::inspect::{Expired, Filter};
use leasehold::{
    ErrorKind, GroupName, LeadershipEvent, LocalStore, Locker, LostReason, ManualClock, Wait,
};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Each store in real time, with a new state.
async fn each_store(mut test: impl AsyncFnMut(AnyLocks)) {
    let local = LocalStore::new();
    test(Arc::new(move || Locker::new(local.clone()))).await;
    #[cfg(feature = "sqlite")]
    {
        let folder = leasehold_testkit::new_directory().unwrap();
        let store = leasehold_sqlite::SqliteStore::open(folder.path().join("locks.db")).await;
        let store = Arc::new(store.unwrap());
        test(Arc::new(move || Locker::new(Arc::clone(&store)))).await;
    }
}

/// Another process on the same store each time.
type AnyLocks = Arc<dyn Fn() -> Locker + Send + Sync>;

/// `TestLock`: runs, has the lock after a few looks, is cancelled, and ends.
#[tokio::test]
async fn spindle_test_lock() {
    each_store(async |locks| {
        let (cancel, cancelled) = oneshot::channel::<()>();
        let election = locks().election("lock").candidate_name("me").ttl(secs(5));
        let candidate = election.spawn(async { drop(cancelled.await) }).unwrap();
        let leadership = timeout(secs(60), candidate.elected()).await.unwrap().unwrap();
        let status = candidate.status();
        assert!(status.leads && status.token == leadership.token() && status.token.is_some());
        assert_eq!(status.leader.unwrap().group, Some(GroupName::new("me").unwrap()));
        drop(cancel);
        timeout(secs(60), candidate.join()).await.unwrap().unwrap();
        assert!(!candidate.is_leader());
    })
    .await;
}

/// `no_run` of spindle-rs: before anything runs nobody has the lock, and there is no token.
#[tokio::test(start_paused = true)]
async fn spindle_no_run() {
    let store = Flaky::new();
    let election = store.locks().election("lock");
    assert!(election.leader().await.unwrap().is_none());
    let candidate = election.spawn(std::future::pending()).unwrap();
    let status = candidate.status();
    assert!(!status.leads && status.token.is_none() && status.leader.is_none());
    assert_eq!(candidate.iterations(), 0);
}

/// Documented: of all that insert the first row, one wins.
#[tokio::test]
async fn spindle_only_one_of_many_first_candidates_leads() {
    each_store(async |locks| {
        let elections: Vec<_> =
            (0..20).map(|_| locks().election("lock").wait(Wait::No).campaign()).collect();
        let outcomes = join_all(elections.into_iter().map(spawn)).await;
        let (mut leaders, mut held) = (Vec::new(), 0);
        for outcome in outcomes {
            match outcome.unwrap() {
                Ok(leadership) => leaders.push(leadership),
                Err(error) if error.kind() == ErrorKind::Held => held += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
        assert_eq!((leaders.len(), held), (1, 19));
        assert!(leaders[0].is_leader());
    })
    .await;
}

/// Documented: an expired lease is taken over once.
#[tokio::test(start_paused = true)]
async fn spindle_an_expired_lease_is_taken_over_exactly_once() {
    let store = Flaky::new();
    let dead = taken(&store, "lock", secs(10)).await;
    let died = store.now();
    let campaigns: Vec<_> =
        (0..20).map(|_| spawn(store.others().election("lock").campaign())).collect();
    tokio::time::sleep(secs(300)).await;
    let mut finished: Vec<_> = campaigns.into_iter().filter(|one| one.is_finished()).collect();
    assert_eq!(finished.len(), 1);
    let leadership = finished.pop().unwrap().await.unwrap().unwrap();
    assert!(leadership.is_leader() && leadership.token() > dead.token());
    let since = store.records("lock").await[0].age.unwrap();
    assert!(store.now() - died - since <= secs(10) + ms(100), "taken over when it expired");
}

/// Documented: an old leader that was paused finds its token invalid.
#[tokio::test]
async fn spindle_a_paused_old_leader_sees_that_its_token_is_invalid() {
    let clock = Arc::new(ManualClock::new());
    let store = LocalStore::with_clock(clock.clone());
    let locks = || Locker::builder(store.clone()).clock(clock.clone()).build();
    let old = locks().election("lock").ttl(secs(5)).campaign().await.unwrap();
    clock.advance(secs(60));
    let new = locks().election("lock").campaign().await.unwrap();
    assert!(!old.is_leader());
    assert!(!old.guard().verify().await.unwrap());
    assert_eq!(old.guard().ensure_held().unwrap_err().kind(), ErrorKind::Lost);
    assert!(old.token() < new.token(), "and a resource that compares tokens refuses it");
}

/// Documented: when the leader stops, a successor leads within the duration and a second; here at once if it
/// stops, and within the TTL if it dies.
#[tokio::test(start_paused = true)]
async fn spindle_when_the_leader_stops_a_successor_follows() {
    let store = Flaky::new();
    for dies in [false, true] {
        let leader = taken(&store, "lock", secs(5)).await;
        let campaign = spawn(store.others().election("lock").campaign());
        tokio::time::sleep(secs(1)).await;
        let stopped = store.now();
        if dies {
            leader.detach();
        } else {
            leader.release().await.unwrap();
        }
        let next = campaign.await.unwrap().unwrap();
        let within = if dies { secs(4) } else { ms(0) };
        assert!(store.now() - stopped <= within, "{:?}", store.now() - stopped);
        next.resign().await.unwrap();
    }
}

/// Package `lock`: a time-out is an error of its own, an unlock takes effect at once, and locking takes no time.
#[tokio::test(start_paused = true)]
async fn spindle_lock_package() {
    let store = Flaky::new();
    let started = store.now();
    let guard = store.locks().lock("lock").ttl(secs(10)).wait(Wait::Forever).await.unwrap();
    assert_eq!(store.now(), started);
    let error = store.others().lock("lock").wait(secs(5)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    guard.release().await.unwrap();
    let freed = store.now();
    let next = store.others().lock("lock").await.unwrap();
    assert_eq!(store.now(), freed);
    drop(next);
}

#[tokio::test(start_paused = true)]
async fn spindle_01_a_crash_between_claim_and_update_does_not_wedge() {
    let store = Flaky::new();
    let old = taken(&store, "lock", secs(5)).await.detach();
    tokio::time::sleep(secs(5)).await;
    // It takes the name over, and dies before it learns that: no reply, and no further message from it.
    store.on_acquire([Fault::SlowReply(secs(3_000))]);
    store.on_release([Fault::Hung; 64]);
    let dying =
        spawn(store.locks().election("lock").candidate_name("dying").ttl(secs(5)).campaign());
    store.until_acquires(1).await;
    dying.abort();
    let died = store.now();
    let [record] = &store.records("lock").await[..] else { panic!("it has taken over") };
    assert_eq!(record.group, Some(GroupName::new("dying").unwrap()));
    let next = store.others().election("lock").campaign().await.unwrap();
    assert!(next.is_leader() && next.token() > old.token);
    assert!(store.now() - died <= secs(5) + ms(100), "{:?}", store.now() - died);
}

#[tokio::test(start_paused = true)]
async fn spindle_02_a_late_claim_does_not_overwrite_a_living_leader() {
    let store = Flaky::new();
    let dead = taken(&store, "lock", secs(5)).await;
    // Sent while the name is about to be free, and delivered long after, although its sender has given up.
    store.on_acquire([Fault::Detached(secs(60))]);
    let late = spawn(store.locks().election("lock").campaign());
    store.until_acquires(1).await;
    late.abort();
    let leadership = store.others().election("lock").ttl(secs(9)).campaign().await.unwrap();
    tokio::time::sleep(secs(120)).await;
    assert!(leadership.is_leader() && leadership.guard().verify().await.unwrap());
    assert_eq!(store.records("lock").await[0].token, leadership.token());
    assert!(leadership.token() > dead.token());
}

#[tokio::test(start_paused = true)]
async fn spindle_03_a_deposed_leader_keeps_nobody_elses_lease_alive() {
    let store = Flaky::new();
    // All its renewals arrive long after, when another leads, and that one dies.
    store.on_renew(vec![Fault::Detached(secs(12)); 64]);
    let candidate =
        store.locks().election("lock").ttl(secs(9)).spawn(std::future::pending()).unwrap();
    let deposed = candidate.elected().await.unwrap();
    assert_eq!(deposed.lost().await, LostReason::StoreUnreachable);
    candidate.pause().await.unwrap();
    let next = taken(&store, "lock", secs(10)).await;
    let elected = store.now();
    store.until_free("lock").await;
    assert!(store.renews().len() >= 2, "they were under way");
    assert!(store.now() - elected <= secs(10) + ms(200), "{:?}", store.now() - elected);
    assert!(!deposed.is_leader() && !candidate.is_leader());
    let third = store.others().election("lock").campaign().await.unwrap();
    assert!(third.token() > next.token());
}

#[tokio::test(start_paused = true)]
async fn spindle_04_a_campaign_that_is_cancelled_by_a_deadline_renews_nothing() {
    let store = Flaky::new();
    let locks = store.locks();
    // While it waits, while it leads, and for a spawned candidate.
    let leader = taken(&store, "lock", secs(60)).await;
    timeout(secs(5), locks.election("lock").campaign()).await.unwrap_err();
    leader.release().await.unwrap();
    let rule = async {
        let _leadership = locks.election("lock").campaign().await.unwrap();
        std::future::pending::<()>().await;
    };
    timeout(secs(5), rule).await.unwrap_err();
    store.until_free("lock").await;
    let deadline = tokio::time::sleep(secs(60));
    let candidate = locks.election("lock").ttl(secs(9)).spawn(deadline).unwrap();
    candidate.join().await.unwrap();
    assert!(store.renews().len() > 10, "it was renewed before");
    assert!(store.is_free("lock").await);
    let sent = store.log().len();
    tokio::time::sleep(secs(3_600)).await;
    assert_eq!(store.log().len(), sent);
}

#[tokio::test(start_paused = true)]
async fn spindle_05_a_try_in_the_instant_of_a_renewal_is_refused() {
    let store = Flaky::new();
    let leadership = store.locks().election("lock").ttl(secs(9)).campaign().await.unwrap();
    let rival = store.others();
    for _ in 0..50 {
        leadership.guard().renew().await.unwrap();
        let error = rival.election("lock").wait(Wait::No).campaign().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Held);
        tokio::time::sleep(ms(700)).await;
    }
    assert!(leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn spindle_06_names_that_begin_alike_do_not_affect_each_other() {
    let store = Flaky::new();
    let locks = store.locks();
    let short = locks.election("job").ttl(secs(9)).campaign().await.unwrap();
    let long = locks.election("job_x").ttl(secs(9)).campaign().await.unwrap();
    let idle = taken(&store, "job_y", secs(3_600)).await;
    tokio::time::sleep(secs(600)).await;
    assert!(short.is_leader() && long.is_leader());
    short.resign().await.unwrap();
    assert!(long.guard().verify().await.unwrap() && idle.verify().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn spindle_07_a_deleted_record_stops_no_running_candidate() {
    let store = Flaky::new();
    // The first try of each fails, because of a fault or of the other.
    store.on_acquire([Fault::Unreachable]);
    let spawned =
        |locks: Locker| locks.election("lock").ttl(secs(9)).spawn(std::future::pending()).unwrap();
    let (one, other) = (spawned(store.locks()), spawned(store.others()));
    for _ in 0..50 {
        let leadership = tokio::select! {
            leadership = one.elected() => leadership.unwrap(),
            leadership = other.elected() => leadership.unwrap(),
        };
        store.evict("lock", "deleted by hand").await;
        assert!(matches!(leadership.lost().await, LostReason::Evicted(_)));
    }
    // Either can lead if the other does not.
    for (one, other) in [(&one, &other), (&other, &one)] {
        other.pause().await.unwrap();
        timeout(secs(60), one.elected()).await.unwrap().unwrap();
        other.resume().unwrap();
    }
}

#[tokio::test]
async fn spindle_08_tokens_are_ordered() {
    each_store(async |locks| {
        let mut last = None;
        for _ in 0..50 {
            let leadership = locks().election("lock").campaign().await.unwrap();
            assert!(leadership.token() > last);
            last = leadership.token();
            leadership.resign().await.unwrap();
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn spindle_09_a_leader_without_its_store_notices_and_steps_down() {
    let store = Flaky::new();
    let candidate =
        store.locks().election("lock").ttl(secs(9)).spawn(std::future::pending()).unwrap();
    candidate.elected().await.unwrap();
    let mut transitions = candidate.observe();
    assert!(matches!(transitions.next().await, Some(LeadershipEvent::Gained { .. })));
    store.down(Fault::Unreachable);
    let down = store.now();
    let lost = transitions.next().await.unwrap();
    assert!(matches!(lost, LeadershipEvent::Lost(LostReason::StoreUnreachable)), "{lost:?}");
    assert!(store.now() - down <= secs(9) - drift(secs(9)));
    assert!(!candidate.is_leader());
    store.up();
}

#[tokio::test(start_paused = true)]
async fn spindle_10_a_graceful_stop_frees_the_name_at_once_and_nothing_leads_after_it() {
    let store = Flaky::new();
    let (stop, stopped) = oneshot::channel::<()>();
    let election = store.locks().election("lock").ttl(secs(30));
    let candidate = election.spawn(async { drop(stopped.await) }).unwrap();
    candidate.elected().await.unwrap();
    let next = spawn(store.others().election("lock").campaign());
    tokio::time::sleep(secs(60)).await;
    let stopping = store.now();
    drop(stop);
    candidate.join().await.unwrap();
    next.await.unwrap().unwrap().resign().await.unwrap();
    assert_eq!(store.now(), stopping);
    assert!(!candidate.is_leader());
    // Nor does a try that was in flight when it was stopped.
    store.on_acquire([Fault::SlowReply(secs(5))]);
    let asked = store.acquires().len();
    let candidate = election.spawn(tokio::time::sleep(secs(1))).unwrap();
    store.until_acquires(asked + 1).await;
    candidate.join().await.unwrap();
    assert!(!candidate.is_leader() && candidate.status().token.is_none());
    assert!(store.is_free("lock").await);
}

#[tokio::test(start_paused = true)]
async fn spindle_11_a_slow_round_within_the_term_costs_no_leadership() {
    let store = Flaky::new();
    store.on_renew(vec![Fault::SlowRequest(secs(8)); 1_000]);
    let leadership = store.locks().election("lock").ttl(secs(30)).campaign().await.unwrap();
    let rival = spawn(store.others().election("lock").campaign());
    tokio::time::sleep(secs(600)).await;
    assert!(leadership.is_leader());
    assert!(!rival.is_finished());
    assert!(store.renews().len() > 30);
}

#[tokio::test(start_paused = true)]
async fn spindle_12_a_candidate_with_a_shorter_ttl_steals_nothing() {
    let store = Flaky::new();
    taken(&store, "lock", secs(60)).await.detach();
    let died = store.now();
    let next = store.others().election("lock").ttl(secs(1)).campaign().await.unwrap();
    assert!(store.now() - died >= secs(60), "{:?}", store.now() - died);
    assert!(next.is_leader());
}

#[tokio::test]
async fn spindle_13_names_and_ids_are_data() {
    each_store(async |locks| {
        let names = ["it's", "x'); DELETE FROM locks; --", "a\"b", "%_", "\\", "日本"];
        let mut leaders = Vec::new();
        for name in names {
            let election = locks().election(name).candidate_name(name);
            leaders.push(election.campaign().await.unwrap());
            let leader = election.leader().await.unwrap().unwrap();
            assert_eq!((leader.key.as_str(), leader.group.unwrap().as_str()), (name, name));
        }
        for leadership in leaders {
            assert!(leadership.guard().verify().await.unwrap());
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn spindle_14_is_leader_sends_no_request() {
    let store = Flaky::new();
    let candidate = store.locks().election("lock").spawn(std::future::pending()).unwrap();
    let leadership = candidate.elected().await.unwrap();
    store.down(Fault::Hung);
    store.on_look([Fault::Hung]);
    let (sent, asked) = (store.log().len(), store.now());
    for _ in 0..1_000 {
        assert!(candidate.is_leader() && candidate.status().leads && leadership.is_leader());
    }
    assert_eq!((store.log().len(), store.now()), (sent, asked));
    // Asking for the leader sends a request, and ends all the same.
    assert_eq!(candidate.leader().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(store.now() - asked, secs(10));
}

#[tokio::test(start_paused = true)]
async fn spindle_15_an_uncontended_campaign_takes_no_time_and_two_of_one_process_are_refused() {
    let store = Flaky::new();
    let locks = store.locks();
    let started = store.now();
    let (one, other) =
        tokio::join!(locks.election("lock").campaign(), locks.election("lock").campaign());
    assert_eq!(store.now(), started);
    assert!(one.unwrap().is_leader());
    assert_eq!(other.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(store.acquires().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn spindle_16_a_renewal_names_one_lease_and_removes_nothing() {
    let store = Flaky::new();
    let locks = store.locks();
    drop(taken(&store, "job_old", secs(5)).await.detach());
    let leadership = locks.election("job").ttl(secs(9)).campaign().await.unwrap();
    tokio::time::sleep(secs(600)).await;
    let own = vec![leadership.guard().lease().id.clone()];
    assert!(store.renews().len() > 100 && store.renews().iter().all(|renewed| *renewed == own));
    let old = locks.list(Filter::default().with_prefix("job_").with_expired(Expired::Only)).await;
    assert_eq!(old.unwrap().records.len(), 1, "any client may purge what expired");
}
