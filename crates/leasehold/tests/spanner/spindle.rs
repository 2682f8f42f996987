//! spindle's own case, the scenarios that its documents promise, and its 16 defects, on both tables of Cloud Spanner. With the
//! local store and disturbed requests they are in `front_end`.

use std::future::pending;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::inspect::{EvictRequest, EvictTarget, Filter};
use leasehold::{
    ErrorKind, GroupName, Leadership, LeadershipEvent, Lease, Locker, LostReason, Wait,
};
use leasehold_testkit::spanner::Emulator;
use leasehold_testkit::spanner::spindle::Spindle;
use leasehold_testkit::{in_time, until};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Of leaders whose end a test awaits.
const TTL: Duration = Duration::from_secs(1);

/// Of others, in seconds: longer than a busy machine needs for what a test does meanwhile.
const LONG: u64 = 20;
const LONG_TTL: Duration = Duration::from_secs(LONG);

/// A table on an emulator.
struct Table<'e> {
    emulator: &'e Emulator,
    url: String,
    is_spindle: bool,
}

impl Table<'_> {
    /// Another process.
    async fn locks(&self) -> Locker {
        Locker::connect_unchecked(&self.url).await.unwrap()
    }

    /// A leader in a process of its own.
    async fn leader(&self, name: &str) -> Leadership {
        in_time(self.locks().await.election(name).ttl(LONG_TTL).campaign()).await.unwrap()
    }

    /// A leader that dies at once: the leader of a name holds its lock.
    async fn dead_leader(&self, name: &str, ttl: Duration) -> Lease {
        let request = self.locks().await.lock(name).ttl(ttl).wait(Wait::Forever);
        in_time(request.into_future()).await.unwrap().detach()
    }

    /// A try that does not wait.
    async fn is_held(&self, name: &str) -> bool {
        let campaign = self.locks().await.election(name).ttl(LONG_TTL).wait(Wait::No).campaign();
        match campaign.await {
            Ok(leadership) => {
                leadership.resign().await.unwrap();
                false
            }
            Err(error) if error.kind() == ErrorKind::Held => true,
            Err(error) => panic!("{error}"),
        }
    }

    fn name(&self) -> &'static str {
        if self.is_spindle { "locktable" } else { "leasehold" }
    }

    async fn count(&self) -> i64 {
        self.emulator.number(format!("SELECT COUNT(*) FROM {}", self.name())).await.unwrap()
    }

    async fn delete_everything(&self) {
        self.emulator.write(format!("DELETE FROM {} WHERE TRUE", self.name())).await.unwrap();
    }
}

/// Both tables, empty, with a longest term of so many seconds.
async fn each_table(seconds: u64, mut test: impl AsyncFnMut(&Table<'_>)) {
    let emulator = Emulator::start().await.unwrap();
    let of_spindle = emulator.spindle_url().replace("duration=1s", &format!("duration={seconds}s"));
    for (url, is_spindle) in [(emulator.url(), false), (of_spindle, true)] {
        let table = Table { emulator: &emulator, url, is_spindle };
        table.locks().await.prepare().await.unwrap();
        test(&table).await;
    }
}

pub(crate) async fn spindle_test_lock() {
    each_table(LONG, async |table| {
        let locks = table.locks().await;
        let (cancel, cancelled) = oneshot::channel::<()>();
        let election = locks.election("lock").candidate_name("me").ttl(LONG_TTL);
        let candidate = election.spawn(async { drop(cancelled.await) }).unwrap();
        let leadership = in_time(candidate.elected()).await.unwrap();
        let status = candidate.status();
        assert!(status.leads && status.token == leadership.token() && status.token.is_some());
        assert_eq!(status.leader.unwrap().group, Some(GroupName::new("me").unwrap()));
        drop(cancel);
        in_time(candidate.join()).await.unwrap();
        assert!(!candidate.is_leader() && !table.is_held("lock").await);
    })
    .await;
}

pub(crate) async fn spindle_no_run() {
    each_table(LONG, async |table| {
        let election = table.locks().await.election("lock");
        assert!(election.leader().await.unwrap().is_none());
    })
    .await;
}

pub(crate) async fn spindle_only_one_of_many_first_candidates_leads() {
    each_table(LONG, async |table| {
        let locks = join_all((0..8).map(|_| table.locks())).await;
        let campaigns = locks
            .iter()
            .map(|locks| locks.election("lock").ttl(LONG_TTL).wait(Wait::No).campaign());
        let (leaders, others): (Vec<_>, Vec<_>) =
            join_all(campaigns).await.into_iter().partition(Result::is_ok);
        assert_eq!((leaders.len(), others.len()), (1, 7));
        for error in others.into_iter().filter_map(Result::err) {
            assert_eq!(error.kind(), ErrorKind::Held, "{error}");
        }
        assert!(leaders[0].as_ref().unwrap().is_leader());
    })
    .await;
}

pub(crate) async fn spindle_an_expired_lease_is_taken_over_exactly_once() {
    each_table(LONG, async |table| {
        let token = table.dead_leader("lock", TTL).await.token;
        let locks = join_all((0..4).map(|_| table.locks())).await;
        let campaigns = locks
            .iter()
            .map(|locks| locks.election("lock").ttl(LONG_TTL).wait(LONG_TTL / 2).campaign());
        let leaders: Vec<_> =
            join_all(campaigns).await.into_iter().filter_map(Result::ok).collect();
        let [leader] = &leaders[..] else { panic!("{} lead", leaders.len()) };
        assert!(leader.is_leader() && leader.token() > token);
    })
    .await;
}

pub(crate) async fn spindle_a_paused_old_leader_sees_that_its_token_is_invalid() {
    each_table(LONG, async |table| {
        let old = table.leader("lock").await;
        let locks = table.locks().await;
        let listed = locks.list(Filter::default()).await.unwrap();
        let targets = listed.records.iter().map(EvictTarget::of).collect();
        locks.evict(&EvictRequest::exactly(targets, None)).await.unwrap();
        let new = table.leader("lock").await;
        assert!(!old.guard().verify().await.unwrap());
        assert!(!old.is_leader() && new.is_leader() && old.token() < new.token());
    })
    .await;
}

pub(crate) async fn spindle_when_the_leader_stops_a_successor_follows() {
    each_table(LONG, async |table| {
        for dies in [false, true] {
            let locks = table.locks().await;
            let next =
                async || in_time(locks.election("lock").ttl(LONG_TTL).campaign()).await.unwrap();
            let next = if dies {
                table.dead_leader("lock", TTL).await;
                next().await
            } else {
                let leader = table.leader("lock").await;
                tokio::join!(next(), async { leader.resign().await.unwrap() }).0
            };
            next.resign().await.unwrap();
        }
    })
    .await;
}

pub(crate) async fn spindle_lock_package() {
    each_table(LONG, async |table| {
        let guard = table.locks().await.lock("lock").wait(Wait::Forever).await.unwrap();
        let error = table.locks().await.lock("lock").wait(TTL / 4).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        guard.release().await.unwrap();
        assert!(!table.is_held("lock").await);
    })
    .await;
}

pub(crate) async fn spindle_01_a_crash_between_claim_and_update_does_not_wedge() {
    each_table(LONG, async |table| {
        // Somebody's request, dropped at some instant.
        for after in 0..20 {
            let locks = table.locks().await;
            let dying = locks.election("lock").ttl(TTL).campaign();
            timeout(Duration::from_millis(after), dying).await.map(drop).unwrap_or_default();
        }
        table.leader("lock").await.resign().await.unwrap();
        if table.is_spindle {
            let client = table.emulator.client().await.unwrap();
            let mut go = Spindle::new(client, "lock", "web 1", 1_000);
            let token = go.check().await.unwrap().1;
            go.claim(token).await.unwrap();
            table.leader("lock").await.resign().await.unwrap();
        }
    })
    .await;
}

pub(crate) async fn spindle_02_a_late_claim_does_not_overwrite_a_living_leader() {
    each_table(LONG, async |table| {
        table.leader("lock").await.resign().await.unwrap();
        let client = table.emulator.client().await.unwrap();
        let mut go = Spindle::new(client, "lock", "web 1", 1_000);
        let token = go.check().await.unwrap().1;
        let leadership = table.leader("lock").await;
        if table.is_spindle {
            assert_eq!(go.claim(token).await, None);
        }
        assert!(table.is_held("lock").await);
        assert!(leadership.guard().verify().await.unwrap());
    })
    .await;
}

pub(crate) async fn spindle_03_a_deposed_leader_keeps_nobody_elses_lease_alive() {
    each_table(LONG, async |table| {
        let candidate =
            table.locks().await.election("lock").ttl(LONG_TTL).spawn(pending()).unwrap();
        let deposed = in_time(candidate.elected()).await.unwrap();
        candidate.pause().await.unwrap();
        let dead = table.dead_leader("lock", TTL).await;
        assert!(!deposed.is_leader());
        let next = table.leader("lock").await;
        assert!(next.token() > dead.token && !candidate.is_leader());
    })
    .await;
}

pub(crate) async fn spindle_04_a_campaign_that_is_cancelled_by_a_deadline_renews_nothing() {
    each_table(LONG, async |table| {
        let locks = table.locks().await;
        let rule = async {
            let _leadership = locks.election("lock").ttl(TTL).campaign().await.unwrap();
            pending::<()>().await;
        };
        timeout(2 * TTL, rule).await.unwrap_err();
        until(async || !table.is_held("lock").await).await;
    })
    .await;
}

pub(crate) async fn spindle_05_a_try_in_the_instant_of_a_renewal_is_refused() {
    each_table(LONG, async |table| {
        let (leadership, rival) = (table.leader("lock").await, table.locks().await);
        for _ in 0..20 {
            let try_once = rival.election("lock").ttl(LONG_TTL).wait(Wait::No).campaign();
            let (renewed, tried) = tokio::join!(leadership.guard().renew(), try_once);
            renewed.unwrap();
            assert_eq!(tried.unwrap_err().kind(), ErrorKind::Held);
        }
        assert!(leadership.is_leader());
    })
    .await;
}

pub(crate) async fn spindle_06_names_that_begin_alike_do_not_affect_each_other() {
    each_table(LONG, async |table| {
        let short = table.leader("job").await;
        let long =
            table.locks().await.election("job_x").ttl(LONG_TTL).wait(Wait::No).campaign().await;
        if table.is_spindle {
            let error = long.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains("\"job\""), "{error}");
        } else {
            let long = long.unwrap();
            short.resign().await.unwrap();
            assert!(long.guard().verify().await.unwrap());
        }
    })
    .await;
}

pub(crate) async fn spindle_07_a_deleted_record_stops_no_running_candidate() {
    each_table(LONG, async |table| {
        let candidate = table.locks().await.election("lock").ttl(3 * TTL).spawn(pending()).unwrap();
        for _ in 0..3 {
            let leadership = in_time(candidate.elected()).await.unwrap();
            table.delete_everything().await;
            assert_eq!(in_time(leadership.lost()).await, LostReason::Gone);
        }
        in_time(candidate.elected()).await.unwrap();
    })
    .await;
}

pub(crate) async fn spindle_08_tokens_are_ordered() {
    each_table(LONG, async |table| {
        let (locks, mut last) = (table.locks().await, None);
        for _ in 0..20 {
            let leadership = locks.election("lock").ttl(LONG_TTL).campaign().await.unwrap();
            assert!(leadership.token() > last);
            last = leadership.token();
            leadership.resign().await.unwrap();
        }
    })
    .await;
}

pub(crate) async fn spindle_09_a_leader_without_its_store_notices_and_steps_down() {
    each_table(LONG, async |table| {
        let candidate = table.locks().await.election("lock").ttl(3 * TTL).spawn(pending()).unwrap();
        in_time(candidate.elected()).await.unwrap();
        let mut transitions = candidate.observe();
        assert!(matches!(transitions.next().await, Some(LeadershipEvent::Gained { .. })));
        table.emulator.pause();
        let lost = timeout(3 * TTL, transitions.next()).await;
        table.emulator.resume();
        let lost = lost.expect("it notices within its term").unwrap();
        assert!(matches!(lost, LeadershipEvent::Lost(LostReason::StoreUnreachable)), "{lost:?}");
    })
    .await;
}

pub(crate) async fn spindle_10_a_graceful_stop_frees_the_name_at_once_and_nothing_leads_after_it() {
    each_table(LONG, async |table| {
        let (stop, stopped) = oneshot::channel::<()>();
        let election = table.locks().await.election("lock").ttl(LONG_TTL);
        let candidate = election.spawn(async { drop(stopped.await) }).unwrap();
        in_time(candidate.elected()).await.unwrap();
        drop(stop);
        in_time(candidate.join()).await.unwrap();
        assert!(!table.is_held("lock").await && !candidate.is_leader());
        // Nor does a try that is under way.
        let candidate = election.spawn(std::future::ready(())).unwrap();
        in_time(candidate.join()).await.unwrap();
        assert!(!candidate.is_leader() && !table.is_held("lock").await);
    })
    .await;
}

pub(crate) async fn spindle_11_a_slow_round_within_the_term_costs_no_leadership() {
    each_table(LONG, async |table| {
        let locks = table.locks().await;
        let leadership = locks.election("lock").ttl(LONG_TTL).campaign().await.unwrap();
        for _ in 0..2 {
            leadership.guard().renew().await.unwrap();
            table.emulator.pause();
            let renewed = leadership.guard().renew();
            // Half a term without an answer.
            let (renewed, ()) = tokio::join!(renewed, async {
                tokio::time::sleep(3 * TTL).await;
                table.emulator.resume();
            });
            renewed.unwrap();
            assert!(leadership.is_leader());
        }
    })
    .await;
}

pub(crate) async fn spindle_12_a_candidate_with_a_shorter_ttl_steals_nothing() {
    each_table(LONG, async |table| {
        let token = table.dead_leader("lock", 10 * TTL).await.token;
        let rival = table.locks().await;
        let short = rival.election("lock").ttl(TTL / 10).wait(2 * TTL).campaign().await;
        assert_eq!(short.unwrap_err().kind(), ErrorKind::TimedOut);
        let short = in_time(rival.election("lock").ttl(LONG_TTL).campaign()).await.unwrap();
        assert!(short.token() > token);
    })
    .await;
}

pub(crate) async fn spindle_13_names_and_ids_are_data() {
    each_table(LONG, async |table| {
        let locks = table.locks().await;
        let names = ["it's", "x'); DELETE FROM locktable; --", "a\"b", "%_", "\\", "日本", " lh:"];
        for name in names {
            let election = locks.election(name).candidate_name(name).ttl(LONG_TTL).wait(Wait::No);
            match election.campaign().await {
                Ok(_leadership) => {
                    let leader = election.leader().await.unwrap().unwrap();
                    let shown = (leader.key.as_str(), leader.group.as_ref().unwrap().as_str());
                    assert_eq!(shown, (name, name));
                }
                Err(error) => {
                    assert!(table.is_spindle && name.contains(['\'', '\\']), "{error}");
                    assert_eq!(error.kind(), ErrorKind::Unsupported);
                }
            }
        }
    })
    .await;
}

pub(crate) async fn spindle_14_is_leader_sends_no_request() {
    each_table(LONG, async |table| {
        let locks = table.locks().await;
        let leadership = locks.election("lock").ttl(LONG_TTL).campaign().await.unwrap();
        table.emulator.pause();
        let leads = (0..1_000).all(|_| leadership.is_leader());
        table.emulator.resume();
        assert!(leads);
    })
    .await;
}

pub(crate) async fn spindle_15_an_uncontended_campaign_waits_for_nothing_and_two_are_refused() {
    each_table(LONG, async |table| {
        let locks = table.locks().await;
        let (one, other) = tokio::join!(
            locks.election("lock").ttl(LONG_TTL).wait(Wait::No).campaign(),
            locks.election("lock").ttl(LONG_TTL).wait(Wait::No).campaign(),
        );
        assert!(one.unwrap().is_leader());
        assert_eq!(other.unwrap_err().kind(), ErrorKind::InvalidInput);
    })
    .await;
}

pub(crate) async fn spindle_16_a_renewal_names_one_lease_and_removes_nothing() {
    each_table(LONG, async |table| {
        for _ in 0..3 {
            table.leader("lock").await.resign().await.unwrap();
        }
        let other = table.leader("other").await;
        let leadership = table.leader("lock").await;
        let rows = table.count().await;
        for _ in 0..5 {
            leadership.guard().renew().await.unwrap();
        }
        assert_eq!(table.count().await, rows);
        assert!(other.guard().verify().await.unwrap());
    })
    .await;
}
