//! The table of spindle v2, beside its clients.

use std::time::Duration;

use leasehold_conformance::{Fault, Proxy};
use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, Effect, ErrorKind, EvictRequest, EvictTarget, Expired,
    FencingToken, Filter, GroupName, LeaseId, Level, ListRequest, LostReason, Mode, Record,
    RefusalReason, Refused, ReleaseEntry, ReleaseOutcome, ReleaseRequest, RenewEntry, RenewOutcome,
    RenewRequest, Store as _, Ttl,
};
use leasehold_spanner::{SpannerConfig, SpindleConfig, SpindleStore};
use leasehold_testkit::spanner::Emulator;
use leasehold_testkit::spanner::spindle::{Round, Spindle};
use leasehold_testkit::until;

use super::{config, key, token_of};

/// Of every client where no test may see a term end, however busy the machine.
const LONG: Duration = Duration::from_secs(300);

/// Of every client where a test waits for the end of a term; spindle has no shorter one.
const SHORT: Duration = Duration::from_secs(1);

struct Table {
    emulator: Emulator,
    store: SpindleStore,
    duration: Duration,
}

/// A lease of a key, as its holder knows it.
struct Held {
    request: AcquireRequest,
    token: FencingToken,
}

impl Table {
    async fn new(duration: Duration) -> Self {
        let emulator = Emulator::start().await.unwrap();
        let store = Self::config(&emulator, duration).connect().await.unwrap();
        Self { emulator, store, duration }
    }

    fn config(emulator: &Emulator, duration: Duration) -> SpindleConfig {
        let spanner = config(emulator).table("locktable").timeout(Duration::from_secs(30));
        SpindleConfig::new(spanner).duration(duration)
    }

    /// The store of another process.
    async fn other(&self) -> SpindleStore {
        Self::config(&self.emulator, self.duration).connect().await.unwrap()
    }

    /// The store of another process, whose requests pass a proxy.
    async fn behind_a_proxy(&self) -> (Proxy, SpindleStore) {
        let emulator = ([127, 0, 0, 1], self.emulator.port()).into();
        let proxy = Proxy::before_http2(emulator).await.unwrap();
        let spanner = config(&self.emulator).emulator(proxy.address().to_string());
        let spanner = spanner.table("locktable").timeout(Duration::from_secs(30));
        let store = SpindleConfig::new(spanner).duration(self.duration).connect().await.unwrap();
        (proxy, store)
    }

    async fn go(&self, name: &str, id: &str) -> Spindle {
        let duration = i64::try_from(self.duration.as_millis()).unwrap();
        Spindle::new(self.emulator.client().await.unwrap(), name, id, duration)
    }

    fn request(&self, name: &str) -> AcquireRequest {
        let claims = Claims::one(key(name), Mode::Exclusive);
        AcquireRequest::new(LeaseId::mint().unwrap(), claims, Ttl::new(self.duration).unwrap())
    }

    /// A client of spindle that leads.
    async fn leader(&self, name: &str, id: &str) -> Spindle {
        let mut go = self.go(name, id).await;
        assert_eq!(go.round().await.unwrap(), Round::Attempted);
        assert_eq!(go.round().await.unwrap(), Round::Leads);
        go
    }

    async fn hold(&self, name: &str) -> Held {
        let request = self.request(name);
        let token = token_of(self.store.acquire(&request).await.unwrap());
        Held { request, token }
    }

    async fn refuse(&self, name: &str) -> Refused {
        match self.store.acquire(&self.request(name)).await.unwrap() {
            AcquireReply::Refused(refused) => refused,
            AcquireReply::Granted(granted) => panic!("{granted:?}"),
        }
    }

    async fn renew(&self, held: &Held) -> RenewOutcome {
        let (id, claims) = (held.request.id().clone(), held.request.claims().clone());
        let entry = RenewEntry::extend(id, claims, Ttl::new(self.duration).unwrap());
        self.store.renew(&RenewRequest::new(vec![entry])).await.unwrap().leases.remove(0)
    }

    async fn release(&self, held: &Held, keep: Option<Duration>) -> ReleaseOutcome {
        let keys = held.request.claims().keys().cloned();
        let mut entry = ReleaseEntry::new(held.request.id().clone(), keys);
        if let Some(keep) = keep {
            entry = entry.with_keep(keep);
        }
        self.store.release(&ReleaseRequest::new(vec![entry])).await.unwrap().leases.remove(0)
    }

    async fn records(&self, filter: Filter) -> Vec<Record> {
        self.store.list(&ListRequest::new(filter)).await.unwrap().records
    }

    async fn number(&self, sql: &str) -> i64 {
        self.emulator.number(sql).await.unwrap()
    }

    async fn write(&self, sql: &str) {
        self.emulator.write(sql).await.unwrap();
    }

    async fn heartbeat(&self, name: &str) -> i64 {
        self.number(&format!("SELECT UNIX_MICROS(heartbeat) FROM locktable WHERE name = '{name}'"))
            .await
    }

    async fn now(&self) -> i64 {
        self.number("SELECT UNIX_MICROS(CURRENT_TIMESTAMP())").await
    }

    /// Waits until a client of spindle leads.
    async fn leads(&self, go: &mut Spindle) {
        until(async || go.round().await.unwrap() == Round::Leads).await;
    }
}

fn name(text: &str) -> GroupName {
    GroupName::new(text).unwrap()
}

pub(super) async fn a_client_of_spindle_waits_for_our_lease_and_its_margin() {
    let table = Table::new(SHORT).await;
    table.hold("job").await;
    let heartbeat = table.heartbeat("job").await;
    let mut go = table.go("job", "web 1").await;
    assert_eq!(go.round().await.unwrap(), Round::Follows);
    table.leads(&mut go).await;
    // Its token is the time at which it took over.
    let waited = table.number("SELECT UNIX_MICROS(token) FROM locktable WHERE name = 'job'").await;
    assert!(waited - heartbeat > 2_000_000, "after {} us", waited - heartbeat);
}

pub(super) async fn we_wait_for_a_leader_of_spindle_and_its_margin() {
    let table = Table::new(SHORT).await;
    let go = table.leader("job", "web 1").await;
    let refused = table.refuse("job").await;
    let RefusalReason::Held(Some(holder)) = &refused.why else { panic!("{refused:?}") };
    assert_eq!((&holder.group, &holder.id), (&Some(name("web 1")), &None));
    let after = refused.retry_after.unwrap();
    assert!(after > SHORT && after <= 2 * SHORT, "{after:?}");
    let heartbeat = table.heartbeat("job").await;
    let request = table.request("job");
    let mut granted = None;
    until(async || {
        let reply = table.store.acquire(&request).await.unwrap();
        granted = matches!(reply, AcquireReply::Granted(_)).then(|| token_of(reply));
        granted.is_some()
    })
    .await;
    let waited = i64::try_from(granted.unwrap().get()).unwrap() - heartbeat;
    assert!((2_000_000..3_000_000).contains(&waited), "after {waited} us");
    assert!(!go.has_lock().await.unwrap());
}

pub(super) async fn a_release_frees_the_lock_at_once_for_both() {
    let table = Table::new(LONG).await;
    let held = table.hold("job").await;
    assert!(matches!(table.release(&held, None).await, ReleaseOutcome::Released));
    assert!(matches!(table.release(&held, None).await, ReleaseOutcome::NotHeld));
    let held = table.hold("job").await;
    assert!(matches!(table.release(&held, None).await, ReleaseOutcome::Released));
    let mut go = table.go("job", "web 1").await;
    assert_eq!(go.round().await.unwrap(), Round::Attempted);
    assert_eq!(go.round().await.unwrap(), Round::Leads);
}

pub(super) async fn a_token_is_the_time_of_its_commit_and_a_heartbeat_lies_back() {
    let table = Table::new(LONG).await;
    let mut last = 0;
    for _ in 0..3 {
        let held = table.hold("job").await;
        let row = "SELECT UNIX_MICROS(token) FROM locktable WHERE name = 'job'";
        let token = table.number(row).await;
        assert_eq!(i64::try_from(held.token.get()).unwrap(), token);
        assert!(token > last);
        last = token;
        assert!(token - table.heartbeat("job").await >= 2_000);
        let renewed = table.renew(&held).await;
        assert!(matches!(renewed, RenewOutcome::Held(_)), "{renewed:?}");
        assert!(table.now().await - table.heartbeat("job").await >= 2_000);
        table.release(&held, None).await;
    }
}

pub(super) async fn a_shorter_term_is_a_heartbeat_that_lies_further_back() {
    let table = Table::new(SHORT).await;
    let claims = Claims::one(key("job"), Mode::Exclusive);
    let ttl = Ttl::new(Duration::from_millis(200)).unwrap();
    let short = AcquireRequest::new(LeaseId::mint().unwrap(), claims.clone(), ttl);
    let token = token_of(table.store.acquire(&short).await.unwrap()).get();
    let back = i64::try_from(token).unwrap() - table.heartbeat("job").await;
    assert!((802_000..1_500_000).contains(&back), "{back} us");
    let long = Ttl::new(Duration::from_millis(1_001)).unwrap();
    let long = AcquireRequest::new(LeaseId::mint().unwrap(), claims, long);
    let error = table.store.acquire(&long).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("duration"), "{error}");
}

pub(super) async fn an_acquire_whose_reply_was_lost_finds_its_own_grant() {
    let table = Table::new(LONG).await;
    let held = table.hold("job").await;
    let AcquireReply::Granted(again) = table.other().await.acquire(&held.request).await.unwrap()
    else {
        panic!("its own lease refuses it")
    };
    assert_eq!((again.token, again.fresh), (Some(held.token), false));
}

pub(super) async fn a_kept_lock_is_shown_and_not_renewed() {
    let table = Table::new(LONG).await;
    let held = table.hold("job").await;
    let kept = table.release(&held, Some(LONG / 2)).await;
    assert!(matches!(kept, ReleaseOutcome::Kept(_)), "{kept:?}");
    let [record] = &table.records(Filter::default()).await[..] else { panic!("one lock is kept") };
    assert!(record.kept);
    assert!(matches!(table.renew(&held).await, RenewOutcome::Lost(Some(LostReason::Gone))));
    table.refuse("job").await;
    let mut go = table.go("job", "web 1").await;
    assert_eq!(go.round().await.unwrap(), Round::Follows);
}

pub(super) async fn a_heartbeat_of_a_deposed_leader_costs_us_nothing() {
    let table = Table::new(LONG).await;
    let mut go = table.leader("job", "web 1").await;
    let target = EvictTarget::of(&table.records(Filter::default()).await[0]);
    let evicted = table.store.evict(&EvictRequest::exactly(vec![target], None)).await.unwrap();
    assert_eq!(evicted.removed.len(), 1);
    assert!(!go.has_lock().await.unwrap(), "an eviction deposes a leader of spindle");
    let held = table.hold("job").await;
    go.heartbeat().await.unwrap();
    assert!(matches!(table.renew(&held).await, RenewOutcome::Held(_)));
    assert_eq!(go.round().await.unwrap(), Round::Follows);
}

pub(super) async fn a_deposed_leader_revives_no_lease_that_was_released_or_evicted() {
    let table = Table::new(LONG).await;
    let go = table.go("job", "web 1").await;
    for is_evicted in [false, true] {
        let held = table.hold("job").await;
        if is_evicted {
            let target = EvictTarget::of(&table.records(Filter::default()).await[0]);
            table.store.evict(&EvictRequest::exactly(vec![target], None)).await.unwrap();
        } else {
            table.release(&held, None).await;
        }
        go.heartbeat().await.unwrap();
        let renewed = table.renew(&held).await;
        assert!(matches!(renewed, RenewOutcome::Lost(Some(LostReason::Gone))), "{renewed:?}");
        let [record] = &table.records(Filter::default()).await[..] else { panic!("a heartbeat") };
        assert_eq!(record.id, None);
        table.write("UPDATE locktable SET heartbeat = NULL WHERE TRUE").await;
    }
}

pub(super) async fn a_token_that_changed_under_us_is_lost_at_the_next_renewal() {
    let table = Table::new(SHORT).await;
    let mut go = table.go("job", "web 1").await;
    table.release(&table.hold("job").await, None).await;
    // It was stopped between its two writes.
    let token = go.check().await.unwrap().1;
    let new = go.claim(token).await.unwrap();
    let held = {
        let request = table.request("job");
        until(async || {
            matches!(table.store.acquire(&request).await.unwrap(), AcquireReply::Granted(_))
        })
        .await;
        Held { request, token: FencingToken::new(1).unwrap() }
    };
    assert!(matches!(table.renew(&held).await, RenewOutcome::Held(_)));
    go.update(new).await.unwrap();
    // Until here two clients lead: nothing of ours can prevent it.
    assert!(go.has_lock().await.unwrap());
    assert!(matches!(table.renew(&held).await, RenewOutcome::Lost(Some(LostReason::Gone))));
    assert!(matches!(table.release(&held, None).await, ReleaseOutcome::NotHeld));
    assert!(go.has_lock().await.unwrap(), "what we do afterwards changes nothing of its lease");
}

pub(super) async fn a_client_that_looked_before_us_and_reads_our_token_overwrites_us() {
    let table = Table::new(LONG).await;
    for is_first in [true, false] {
        let name = if is_first { "first" } else { "job" };
        if !is_first {
            table.release(&table.hold(name).await, None).await;
        }
        let mut go = table.go(name, "web 1").await;
        assert!(go.check().await.unwrap().0.is_none(), "it has found the lock free");
        let held = table.hold(name).await;
        // Its insert fails, and it claims the token that it then reads: ours.
        assert_eq!(go.attempt().await.unwrap(), Round::Attempted);
        assert!(go.has_lock().await.unwrap(), "two clients lead: nothing of ours can prevent it");
        assert!(matches!(table.renew(&held).await, RenewOutcome::Lost(Some(LostReason::Gone))));
    }
}

pub(super) async fn our_claim_row_stops_a_client_that_read_the_token_before_us() {
    let table = Table::new(LONG).await;
    table.release(&table.hold("job").await, None).await;
    let mut go = table.go("job", "web 1").await;
    let token = go.check().await.unwrap().1;
    let held = table.hold("job").await;
    assert_eq!(go.claim(token).await, None, "it takes what we have taken");
    // Also after our lease.
    table.release(&held, None).await;
    assert_eq!(go.claim(token).await, None);
    let purge = EvictRequest::expired(Filter::default());
    table.store.evict(&purge).await.unwrap();
    assert_eq!(go.claim(token).await, None, "a purge removed a claim row that is not a day old");
}

pub(super) async fn our_claim_row_stops_a_client_that_found_no_row() {
    let table = Table::new(SHORT).await;
    let go = table.go("job", "web 1").await;
    for _ in 0..2 {
        // The second time our claim row is there, and we wait for nothing.
        table.release(&table.hold("job").await, None).await;
        assert_eq!(go.claim_without_row().await, None, "it takes what we have taken");
        // By an operator, or the leader of a shorter name.
        table.write("DELETE FROM locktable WHERE name = 'job'").await;
    }
}

pub(super) async fn a_claim_without_a_row_blocks_us_for_the_duration_and_the_margin() {
    let table = Table::new(SHORT).await;
    table.go("job", "web 1").await.claim_without_row().await.unwrap();
    let begun = table.now().await;
    let refused = table.refuse("job").await;
    assert!(matches!(refused.why, RefusalReason::Held(None)), "{refused:?}");
    assert_eq!(refused.retry_after, Some(2 * SHORT));
    until(async || {
        let reply = table.store.acquire(&table.request("job")).await.unwrap();
        matches!(reply, AcquireReply::Granted(_))
    })
    .await;
    assert!(table.now().await - begun >= 2_000_000);
}

pub(super) async fn a_lock_that_a_client_takes_over_is_not_evicted_before_its_time() {
    let table = Table::new(SHORT).await;
    let leader = table.leader("job", "web 1").await;
    let token = leader.check().await.unwrap().1;
    table.go("job", "web 2").await.claim(token).await.unwrap();
    let expired = Filter::default().with_expired(Expired::In);
    let target = EvictTarget::of(&table.records(expired).await[0]);
    let request = EvictRequest::exactly(vec![target], None);
    let begun = table.now().await;
    let error = table.store.evict(&request).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    assert!(error.to_string().contains("\"job\""), "{error}");
    // It has crashed.
    until(async || table.store.evict(&request).await.is_ok_and(|done| done.removed.len() == 1))
        .await;
    assert!(table.now().await - begun >= 2_000_000);
    assert!(!leader.has_lock().await.unwrap());
}

pub(super) async fn a_claim_without_an_update_blocks_us_for_the_duration_and_the_margin() {
    let table = Table::new(SHORT).await;
    table.release(&table.hold("job").await, None).await;
    let mut go = table.go("job", "web 1").await;
    let token = go.check().await.unwrap().1;
    go.claim(token).await.unwrap();
    // It has crashed.
    let begun = table.now().await;
    let refused = table.refuse("job").await;
    assert!(matches!(refused.why, RefusalReason::Held(None)), "{refused:?}");
    assert_eq!(refused.retry_after, Some(2 * SHORT));
    until(async || {
        matches!(
            table.store.acquire(&table.request("job")).await.unwrap(),
            AcquireReply::Granted(_)
        )
    })
    .await;
    assert!(table.now().await - begun >= 2_000_000);
    // The next one of ours waits for nothing.
    let other = table.go("job", "web 2").await;
    assert!(other.check().await.unwrap().0.is_some());
}

pub(super) async fn names_that_spindle_confuses_are_refused() {
    let table = Table::new(LONG).await;
    for (held, asked) in [("a_b", "a"), ("c", "c_d"), ("e", "e_f_g"), ("h_", "h")] {
        table.hold(held).await;
        let error = table.store.acquire(&table.request(asked)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let text = error.to_string();
        assert!(
            text.contains(&format!("{held:?}")) && text.contains(&format!("{asked:?}")),
            "{text}"
        );
    }
    // Also locks that are there, because a client of spindle has added them.
    for lock in ["x", "x_y"] {
        let token = "PENDING_COMMIT_TIMESTAMP()";
        table.write(&format!("INSERT locktable (name, token) VALUES ('{lock}', {token})")).await;
    }
    for lock in ["x", "x_y"] {
        let error = table.store.acquire(&table.request(lock)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
    for quoted in ["o'neil", "a\\b"] {
        let error = table.store.acquire(&table.request(quoted)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
    table.hold("ab").await;
    table.hold("abc").await;
}

pub(super) async fn a_neighbour_that_is_added_meanwhile_is_refused() {
    let table = Table::new(LONG).await;
    let (proxy, store) = table.behind_a_proxy().await;
    // The look around the name has been answered; the transaction begins after the neighbour was added.
    proxy.once_after(1, Fault::Delay(Duration::from_secs(2)));
    let (request, exchanges) = (table.request("a"), proxy.exchanges() + 2);
    let asked = async { store.acquire(&request).await };
    let added = async {
        until(async || proxy.exchanges() == exchanges).await;
        table.hold("a_b").await;
    };
    let (asked, ()) = tokio::join!(asked, added);
    let error = asked.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("\"a_b\""), "{error}");
}

pub(super) async fn requests_about_one_lock_are_sent_in_their_order() {
    let table = Table::new(LONG).await;
    let (proxy, store) = table.behind_a_proxy().await;
    // The caller of an acquire goes while it looks around the name.
    proxy.once(Fault::Delay(Duration::from_secs(1)));
    let request = table.request("a");
    let exchanges = proxy.exchanges() + 1;
    tokio::select! {
        reply = store.acquire(&request) => panic!("{reply:?}"),
        () = until(async || proxy.exchanges() == exchanges) => {}
    }
    let ends = ReleaseEntry::new(request.id().clone(), [key("a")]);
    let released = store.release(&ReleaseRequest::new(vec![ends])).await.unwrap();
    assert!(matches!(released.leases[0], ReleaseOutcome::Released), "{released:?}");
    table.hold("a").await;
}

pub(super) async fn other_generations_of_spindle_are_refused() {
    let table = Table::new(LONG).await;
    table.release(&table.hold("job").await, None).await;
    let now = table.now().await;
    // More claim rows of ours than a check looks at, before those of the others.
    table
        .write(
            "INSERT locktable (name, heartbeat) SELECT CONCAT('a_', CAST(n AS STRING)), CURRENT_TIMESTAMP() \
             FROM UNNEST(GENERATE_ARRAY(1, 10001)) AS n",
        )
        .await;
    for claim in ["job_2026-11-21T06:57:38.797585Z".to_owned(), format!("job_{now}000")] {
        table.write(&format!("INSERT locktable (name) VALUES ('{claim}')")).await;
        let other = table.other().await;
        for error in [other.acquire(&table.request("job")).await.err(), other.check().await.err()] {
            let error = error.unwrap();
            assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
            assert!(error.to_string().contains(&claim), "{error}");
        }
        table.write(&format!("DELETE FROM locktable WHERE name = '{claim}'")).await;
        assert!(other.check().await.is_ok());
    }
}

pub(super) async fn a_check_names_what_the_table_does_not_show() {
    let table = Table::new(LONG).await;
    for lock in ["job", "job_x", "other"] {
        let token = "PENDING_COMMIT_TIMESTAMP()";
        table.write(&format!("INSERT locktable (name, token) VALUES ('{lock}', {token})")).await;
    }
    let health = table.store.check().await.unwrap();
    assert_eq!((health.level, health.schema), (Level::BestEffort, Some(2)));
    let hazards = health.hazards.join("\n");
    for part in ["\"job_x\"", "\"job\"", "below 300s", "stopped between its two writes"] {
        assert!(hazards.contains(part), "{part} in {hazards}");
    }
    assert!(!hazards.contains("other\""), "{hazards}");
}

pub(super) async fn the_table_is_created_when_asked_and_another_one_refused() {
    let table = Table::new(LONG).await;
    let spanner = |name: &str| config(&table.emulator).table(name);
    let new = SpindleConfig::new(spanner("elections")).duration(LONG).connect().await.unwrap();
    assert_eq!(new.check().await.unwrap().schema, None);
    let error = new.acquire(&table.request("job")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    new.prepare().await.unwrap();
    new.prepare().await.unwrap();
    assert_eq!(new.check().await.unwrap().schema, Some(2));
    assert!(matches!(new.acquire(&table.request("job")).await.unwrap(), AcquireReply::Granted(_)));
    let other = SpindleConfig::new(spanner("clock")).connect().await.unwrap();
    let error = other.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
    let native: SpannerConfig = spanner("elections");
    let error = native.connect().await.unwrap().check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
}

pub(super) async fn old_claim_rows_of_ours_go_in_batches_and_no_others() {
    let table = Table::new(LONG).await;
    let held = table.hold("job").await;
    let age = "TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 2 DAY)";
    table
        .write(&format!(
            "INSERT locktable (name, heartbeat) SELECT CONCAT('job_', CAST(n AS STRING)), {age} \
             FROM UNNEST(GENERATE_ARRAY(1, 2500)) AS n"
        ))
        .await;
    table.write("INSERT locktable (name) VALUES ('job_0')").await;
    table
        .write("INSERT locktable (name, heartbeat) VALUES ('job_9999', CURRENT_TIMESTAMP())")
        .await;
    let rows = "SELECT COUNT(*) FROM locktable";
    // The lock, and the claim row of its first lease.
    assert_eq!(table.number(rows).await, 2 + 2_502);
    let purge = EvictRequest::expired(Filter::default());
    let done = table.store.evict(&purge).await.unwrap();
    assert!(done.removed.is_empty() && !done.more, "{done:?}");
    assert_eq!(table.number(rows).await, 4);
    let renewed = table.renew(&held).await;
    assert!(matches!(renewed, RenewOutcome::Held(_)), "{renewed:?}");
}

pub(super) async fn a_purge_frees_the_locks_of_the_dead_and_deletes_no_row() {
    let table = Table::new(SHORT).await;
    table.hold("job").await;
    let purge = EvictRequest::expired(Filter::default());
    assert!(table.store.evict(&purge).await.unwrap().removed.is_empty());
    until(async || table.store.evict(&purge).await.unwrap().removed.len() == 1).await;
    assert_eq!(table.number("SELECT COUNT(*) FROM locktable WHERE heartbeat IS NULL").await, 1);
    let filter = Filter::default().with_expired(Expired::In);
    assert!(table.records(filter).await.is_empty());
}
