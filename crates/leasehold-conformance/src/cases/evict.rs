//! `evict` removes expired records, or exactly the named ones, and reports them.

use std::collections::BTreeSet;

use leasehold_core::{
    EvictRequest, EvictTarget, Expired, Filter, LeaseId, LostReason, Reason, Store, Ttl,
};

use crate::attempt::{Attempt, key};
use crate::case::{CaseResult, PASSED, cases};
use crate::failure::{ensure, ensure_eq};
use crate::fixture::Fixture;
use crate::{Backing, Result};

cases! {
    evict_expired_never_touches_live_leases,
    evict_expired_removes_only_what_matches [ReportsExpired],
    evict_expired_keeps_to_its_limit [ReportsExpired],
    evict_expired_again_removes_nothing [ReportsExpired],
    evict_expired_reports_what_it_removed [ReportsExpired],
    evict_exactly_compares_the_id,
    evict_exactly_compares_the_token [Tokens],
    evict_exactly_frees_at_once,
    evict_exactly_again_removes_nothing,
    evict_exactly_keeps_to_its_limit,
    evict_exactly_reports_what_it_removed,
    evict_exactly_accepts_a_listed_record,
    evict_exactly_one_reader_of_many [Shared],
    evict_exactly_a_lease_without_end [Never],
    evict_exactly_a_kept_lease [Keep],
    evict_exactly_an_expired_lease [ReportsExpired],
    evict_gives_the_holder_the_reason [ReportsEvicted],
    evict_without_a_reason_notifies_the_holder_too [ReportsEvicted],
    evict_leaves_a_mark_that_excludes_nobody,
}

/// The names of the keys of expired records.
async fn expired<B: Backing>(fixture: &Fixture<B>) -> Result<BTreeSet<String>> {
    let filter = Filter::default().with_expired(Expired::Only);
    let records = fixture.client.list(filter).await?;
    Ok(records.iter().map(|record| record.key.to_string()).collect())
}

/// Grants leases that expire at once.
async fn grant_expired<B: Backing>(fixture: &Fixture<B>, names: &[&str]) -> Result<Vec<Attempt>> {
    let leases: Vec<_> =
        names.iter().map(|name| fixture.exclusive(name).with_term(fixture.ticks(2))).collect();
    for lease in &leases {
        fixture.client.grant(lease).await?;
    }
    fixture.pass(2).await;
    Ok(leases)
}

async fn evict_expired_never_touches_live_leases<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    grant_expired(fixture, &["over"]).await?;
    let live = fixture.exclusive("live");
    fixture.client.grant(&live).await?;
    for filter in [
        Filter::default(),
        Filter::default().with_expired(Expired::In),
        Filter::default().with_expired(Expired::Out),
        Filter::default().with_key(key("live")),
        live.filter(),
    ] {
        fixture.client.evict(EvictRequest::expired(filter)).await?;
        fixture.holds("live", &[&live]).await?;
    }
    fixture.client.held(&live, live.term).await?;
    PASSED
}

async fn evict_expired_removes_only_what_matches<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    grant_expired(fixture, &["job:1", "job:2", "other"]).await?;
    let purge = |filter| fixture.client.evict(EvictRequest::expired(filter));
    ensure_eq!(purge(Filter::default().with_prefix("z")).await?.removed.len(), 0, "nothing");
    purge(Filter::default().with_key(key("job:2"))).await?;
    let left = expired(fixture).await?;
    ensure_eq!(left, ["job:1", "other"].map(str::to_owned).into(), "what is left of three");
    purge(Filter::default().with_glob("job:*")?).await?;
    ensure_eq!(expired(fixture).await?, ["other".to_owned()].into(), "what is left of two");
    PASSED
}

async fn evict_expired_keeps_to_its_limit<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let names: Vec<_> = (0..10).map(|n| format!("job:{n}")).collect();
    grant_expired(fixture, &names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    for left in [6, 2] {
        let evicted =
            fixture.client.evict(EvictRequest::expired(Filter::default()).with_limit(4)).await?;
        ensure_eq!((evicted.removed.len(), evicted.more), (4, true), "what a limit of 4 removed");
        ensure_eq!(expired(fixture).await?.len(), left, "what it left");
    }
    let evicted =
        fixture.client.evict(EvictRequest::expired(Filter::default()).with_limit(4)).await?;
    ensure_eq!((evicted.removed.len(), evicted.more), (2, false), "what was left to remove");
    ensure_eq!(expired(fixture).await?.len(), 0, "what is left");
    PASSED
}

async fn evict_expired_again_removes_nothing<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let leases = grant_expired(fixture, &["a", "b"]).await?;
    let request = EvictRequest::expired(Filter::default());
    ensure_eq!(fixture.client.evict(request.clone()).await?.removed.len(), 2, "the first time");
    let next = fixture.exclusive("a");
    fixture.client.grant(&next).await?;
    for _ in 0..2 {
        let evicted = fixture.another().await?.evict(request.clone()).await?;
        ensure_eq!((evicted.removed.len(), evicted.more), (0, false), "the same again");
    }
    fixture.client.not_held(&leases[1]).await?;
    fixture.holds("a", &[&next]).await?;
    PASSED
}

async fn evict_expired_reports_what_it_removed<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = &grant_expired(fixture, &["job"]).await?[0];
    let evicted = fixture.client.evict(EvictRequest::expired(Filter::default())).await?;
    ensure_eq!(evicted.removed.len(), 1, "what was removed");
    let removed = &evicted.removed[0];
    ensure_eq!((&removed.key, &removed.id), (lease.key(), &Some(lease.id.clone())), "which");
    PASSED
}

async fn evict_exactly_compares_the_id<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let stranger = fixture.exclusive("job");
    let targets = vec![
        stranger.target(&key("job")),
        lease.target(&key("other")),
        EvictTarget::new(key("job"), None),
        EvictTarget::new(key("job"), Some(LeaseId::foreign(b"%")?)),
    ];
    let evicted = fixture.client.evict(EvictRequest::exactly(targets, None)).await?;
    ensure_eq!(evicted.removed.len(), 0, "what was removed");
    fixture.holds("job", &[&lease]).await?;
    PASSED
}

async fn evict_exactly_compares_the_token<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    let first = fixture.client.grant(&lease).await?.token;
    fixture.client.released(&lease).await?;
    let second = fixture.client.grant(&lease).await?.token;
    let mut target = lease.target(&key("job"));
    target.token = first;
    let evicted = fixture.client.evict(EvictRequest::exactly(vec![target.clone()], None)).await?;
    ensure_eq!(evicted.removed.len(), 0, "what an earlier token removed");
    fixture.holds("job", &[&lease]).await?;
    target.token = second;
    fixture.client.evict_these(vec![target], None).await?;
    fixture.holds("job", &[]).await?;
    PASSED
}

async fn evict_exactly_frees_at_once<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let (lease, next) = (fixture.exclusive("job"), fixture.exclusive("job"));
    fixture.client.grant(&lease).await?;
    fixture.client.refuse(&next).await?;
    fixture.another().await?.evict_these(lease.targets(), Some("broken")).await?;
    fixture.holds("job", &[]).await?;
    fixture.client.grant(&next).await?;
    fixture.client.lost(&lease).await?;
    fixture.holds("job", &[&next]).await?;
    PASSED
}

async fn evict_exactly_again_removes_nothing<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let (lease, next) = (fixture.exclusive("job"), fixture.exclusive("job"));
    fixture.client.grant(&lease).await?;
    let request = EvictRequest::exactly(lease.targets(), None);
    ensure_eq!(fixture.client.evict(request.clone()).await?.removed.len(), 1, "the first time");
    ensure_eq!(fixture.client.evict(request.clone()).await?.removed.len(), 0, "the same again");
    fixture.client.grant(&next).await?;
    ensure_eq!(fixture.client.evict(request).await?.removed.len(), 0, "the same once more");
    fixture.holds("job", &[&next]).await?;
    PASSED
}

async fn evict_exactly_keeps_to_its_limit<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let leases = [fixture.exclusive("a"), fixture.exclusive("b"), fixture.exclusive("c")];
    for lease in &leases {
        fixture.client.grant(lease).await?;
    }
    let targets: Vec<_> = leases.iter().flat_map(Attempt::targets).collect();
    let evicted = fixture.client.evict(EvictRequest::exactly(targets, None).with_limit(2)).await?;
    ensure_eq!((evicted.removed.len(), evicted.more), (2, true), "what a limit of 2 removed");
    ensure_eq!(fixture.observe().await?.essence().0.len(), 1, "the leases left");
    PASSED
}

async fn evict_exactly_reports_what_it_removed<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let (held, unknown) = (fixture.exclusive("a"), fixture.exclusive("b"));
    fixture.client.grant(&held).await?;
    let targets = vec![unknown.target(&key("b")), held.target(&key("a"))];
    let evicted = fixture.client.evict(EvictRequest::exactly(targets, None)).await?;
    ensure_eq!(evicted.removed.len(), 1, "what was removed");
    ensure_eq!(evicted.removed[0].key, key("a"), "which key");
    ensure_eq!(evicted.removed[0].id, Some(held.id.clone()), "which lease");
    ensure_eq!(
        (evicted.counters_forgotten, evicted.more),
        (0, false),
        "counters, and whether more"
    );
    PASSED
}

async fn evict_exactly_accepts_a_listed_record<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let leases = [fixture.exclusive("a"), fixture.exclusive("b")];
    for lease in &leases {
        fixture.client.grant(lease).await?;
    }
    let records = fixture.client.list(Filter::default()).await?;
    fixture.client.evict_these(records.iter().map(EvictTarget::of).collect(), None).await?;
    ensure_eq!(fixture.observe().await?.essence().0.len(), 0, "the leases left");
    PASSED
}

async fn evict_exactly_one_reader_of_many<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let readers = [fixture.shared("job"), fixture.shared("job"), fixture.shared("job")];
    for reader in &readers {
        fixture.client.grant(reader).await?;
    }
    fixture.client.evict_these(readers[1].targets(), None).await?;
    fixture.holds("job", &[&readers[0], &readers[2]]).await?;
    fixture.client.lost(&readers[1]).await?;
    fixture.client.held(&readers[0], readers[0].term).await?;
    PASSED
}

async fn evict_exactly_a_lease_without_end<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.held(&lease, Ttl::NEVER).await?;
    fixture.client.evict_these(lease.targets(), None).await?;
    fixture.client.lost(&lease).await?;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

async fn evict_exactly_a_kept_lease<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.keep(&lease, fixture.ticks(8)).await?;
    fixture.client.evict_these(lease.targets(), None).await?;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

async fn evict_exactly_an_expired_lease<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = &grant_expired(fixture, &["job"]).await?[0];
    fixture.client.evict_these(lease.targets(), None).await?;
    ensure_eq!(expired(fixture).await?.len(), 0, "what has expired and is still there");
    fixture.client.not_held(lease).await?;
    PASSED
}

async fn evict_gives_the_holder_the_reason<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.evict_these(lease.targets(), Some("maintenance of db-3")).await?;
    let reason = LostReason::Evicted(Some(Reason::new("maintenance of db-3")?));
    ensure_eq!(
        fixture.client.lost(&lease).await?,
        Some(reason.clone()),
        "the reason that the holder gets"
    );
    let next = fixture.exclusive("job");
    fixture.client.grant(&next).await?;
    ensure_eq!(fixture.client.lost(&lease).await?, Some(reason), "the reason at the next renewal");
    fixture.client.held(&next, next.term).await?;
    PASSED
}

async fn evict_without_a_reason_notifies_the_holder_too<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.evict_these(lease.targets(), None).await?;
    let lost = fixture.client.lost(&lease).await?;
    ensure_eq!(lost, Some(LostReason::Evicted(None)), "the reason that the holder gets");
    PASSED
}

/// The mark of an evicted lease is not a lease: it is not listed, not counted and not renewed.
async fn evict_leaves_a_mark_that_excludes_nobody<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.evict_these(lease.targets(), Some("broken")).await?;
    for expired in [Expired::Out, Expired::In, Expired::Only] {
        let records = fixture.client.list(Filter::default().with_expired(expired)).await?;
        ensure!(records.is_empty(), "an evicted lease is listed: {records:?}");
    }
    let purged = fixture.client.store().evict(&EvictRequest::expired(Filter::default())).await?;
    ensure_eq!(purged.removed.len(), 0, "expired leases removed where there is none");
    let again = fixture.client.grant(&lease).await?;
    fixture.remains(again.remaining, 10, "the term of a new lease under the old id")?;
    fixture.client.held(&lease, lease.term).await?;
    fixture.holds("job", &[&lease]).await?;
    PASSED
}
