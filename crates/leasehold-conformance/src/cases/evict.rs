//! What `evict` promises: it removes what has expired, or exactly what is named, and says what.

use std::collections::BTreeSet;

use leasehold_core::{Evict, Expired, Filter, LeaseId, LostReason, Reason, Store, Target, Ttl};

use crate::attempt::{Attempt, key};
use crate::bench::Bench;
use crate::case::{PASSED, Verdict, cases};
use crate::failure::{ensure, ensure_eq};
use crate::{Backing, Result};

cases! {
    evict_expired_never_touches_the_live,
    evict_expired_removes_what_matches_only [TellsExpired],
    evict_expired_keeps_to_its_limit [TellsExpired],
    evict_expired_again_removes_nothing [TellsExpired],
    evict_expired_says_what_it_removed [TellsExpired],
    evict_exactly_compares_the_id,
    evict_exactly_compares_the_token [Tokens],
    evict_exactly_frees_at_once,
    evict_exactly_again_removes_nothing,
    evict_exactly_keeps_to_its_limit,
    evict_exactly_says_what_it_removed,
    evict_exactly_takes_what_was_listed,
    evict_exactly_one_reader_of_many [Shared],
    evict_exactly_a_lease_without_end [Never],
    evict_exactly_a_kept_one [Keep],
    evict_exactly_an_expired_one [TellsExpired],
    evict_tells_the_holder_why [TellsEvicted],
    evict_without_a_reason_is_told_too [TellsEvicted],
    evict_leaves_a_mark_that_excludes_nobody,
}

/// What has expired, in the names of the keys.
async fn expired<B: Backing>(bench: &Bench<B>) -> Result<BTreeSet<String>> {
    let filter = Filter::default().with_expired(Expired::Only);
    let records = bench.client.list(filter).await?;
    Ok(records.iter().map(|record| record.key.to_string()).collect())
}

/// Grants leases that have expired at once.
async fn grant_expired<B: Backing>(bench: &Bench<B>, names: &[&str]) -> Result<Vec<Attempt>> {
    let leases: Vec<_> =
        names.iter().map(|name| bench.exclusive(name).with_term(bench.ticks(2))).collect();
    for lease in &leases {
        bench.client.grant(lease).await?;
    }
    bench.pass(2).await;
    Ok(leases)
}

async fn evict_expired_never_touches_the_live<B: Backing>(bench: &Bench<B>) -> Verdict {
    grant_expired(bench, &["over"]).await?;
    let live = bench.exclusive("live");
    bench.client.grant(&live).await?;
    for filter in [
        Filter::default(),
        Filter::default().with_expired(Expired::In),
        Filter::default().with_expired(Expired::Out),
        Filter::default().with_key(key("live")),
        live.filter(),
    ] {
        bench.client.evict(Evict::expired(filter)).await?;
        bench.holds("live", &[&live]).await?;
    }
    bench.client.held(&live, live.term).await?;
    PASSED
}

async fn evict_expired_removes_what_matches_only<B: Backing>(bench: &Bench<B>) -> Verdict {
    grant_expired(bench, &["job:1", "job:2", "other"]).await?;
    let purge = |filter| bench.client.evict(Evict::expired(filter));
    ensure_eq!(purge(Filter::default().with_prefix("z")).await?.removed.len(), 0, "nothing");
    purge(Filter::default().with_key(key("job:2"))).await?;
    let left = expired(bench).await?;
    ensure_eq!(left, ["job:1", "other"].map(str::to_owned).into(), "what is left of three");
    purge(Filter::default().with_glob("job:*")?).await?;
    ensure_eq!(expired(bench).await?, ["other".to_owned()].into(), "what is left of two");
    PASSED
}

async fn evict_expired_keeps_to_its_limit<B: Backing>(bench: &Bench<B>) -> Verdict {
    let names: Vec<_> = (0..10).map(|n| format!("job:{n}")).collect();
    grant_expired(bench, &names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    for left in [6, 2] {
        let evicted = bench.client.evict(Evict::expired(Filter::default()).with_limit(4)).await?;
        ensure_eq!((evicted.removed.len(), evicted.more), (4, true), "what a limit of 4 removed");
        ensure_eq!(expired(bench).await?.len(), left, "what it left");
    }
    let evicted = bench.client.evict(Evict::expired(Filter::default()).with_limit(4)).await?;
    ensure_eq!((evicted.removed.len(), evicted.more), (2, false), "what was left to remove");
    ensure_eq!(expired(bench).await?.len(), 0, "what is left");
    PASSED
}

async fn evict_expired_again_removes_nothing<B: Backing>(bench: &Bench<B>) -> Verdict {
    let leases = grant_expired(bench, &["a", "b"]).await?;
    let request = Evict::expired(Filter::default());
    ensure_eq!(bench.client.evict(request.clone()).await?.removed.len(), 2, "the first time");
    let next = bench.exclusive("a");
    bench.client.grant(&next).await?;
    for _ in 0..2 {
        let evicted = bench.another().await?.evict(request.clone()).await?;
        ensure_eq!((evicted.removed.len(), evicted.more), (0, false), "the same again");
    }
    bench.client.not_held(&leases[1]).await?;
    bench.holds("a", &[&next]).await?;
    PASSED
}

async fn evict_expired_says_what_it_removed<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = &grant_expired(bench, &["job"]).await?[0];
    let evicted = bench.client.evict(Evict::expired(Filter::default())).await?;
    ensure_eq!(evicted.removed.len(), 1, "what was removed");
    let removed = &evicted.removed[0];
    ensure_eq!((&removed.key, &removed.id), (lease.key(), &Some(lease.id.clone())), "which");
    PASSED
}

async fn evict_exactly_compares_the_id<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let stranger = bench.exclusive("job");
    let targets = vec![
        stranger.target(&key("job")),
        lease.target(&key("other")),
        Target::new(key("job"), None),
        Target::new(key("job"), Some(LeaseId::foreign(b"%")?)),
    ];
    let evicted = bench.client.evict(Evict::exactly(targets, None)).await?;
    ensure_eq!(evicted.removed.len(), 0, "what was removed");
    bench.holds("job", &[&lease]).await?;
    PASSED
}

async fn evict_exactly_compares_the_token<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    let first = bench.client.grant(&lease).await?.token;
    bench.client.released(&lease).await?;
    let second = bench.client.grant(&lease).await?.token;
    let mut target = lease.target(&key("job"));
    target.token = first;
    let evicted = bench.client.evict(Evict::exactly(vec![target.clone()], None)).await?;
    ensure_eq!(evicted.removed.len(), 0, "what an earlier token removed");
    bench.holds("job", &[&lease]).await?;
    target.token = second;
    bench.client.evict_these(vec![target], None).await?;
    bench.holds("job", &[]).await?;
    PASSED
}

async fn evict_exactly_frees_at_once<B: Backing>(bench: &Bench<B>) -> Verdict {
    let (lease, next) = (bench.exclusive("job"), bench.exclusive("job"));
    bench.client.grant(&lease).await?;
    bench.client.refuse(&next).await?;
    bench.another().await?.evict_these(lease.targets(), Some("broken")).await?;
    bench.holds("job", &[]).await?;
    bench.client.grant(&next).await?;
    bench.client.lost(&lease).await?;
    bench.holds("job", &[&next]).await?;
    PASSED
}

async fn evict_exactly_again_removes_nothing<B: Backing>(bench: &Bench<B>) -> Verdict {
    let (lease, next) = (bench.exclusive("job"), bench.exclusive("job"));
    bench.client.grant(&lease).await?;
    let request = Evict::exactly(lease.targets(), None);
    ensure_eq!(bench.client.evict(request.clone()).await?.removed.len(), 1, "the first time");
    ensure_eq!(bench.client.evict(request.clone()).await?.removed.len(), 0, "the same again");
    bench.client.grant(&next).await?;
    ensure_eq!(bench.client.evict(request).await?.removed.len(), 0, "the same once more");
    bench.holds("job", &[&next]).await?;
    PASSED
}

async fn evict_exactly_keeps_to_its_limit<B: Backing>(bench: &Bench<B>) -> Verdict {
    let leases = [bench.exclusive("a"), bench.exclusive("b"), bench.exclusive("c")];
    for lease in &leases {
        bench.client.grant(lease).await?;
    }
    let targets: Vec<_> = leases.iter().flat_map(Attempt::targets).collect();
    let evicted = bench.client.evict(Evict::exactly(targets, None).with_limit(2)).await?;
    ensure_eq!((evicted.removed.len(), evicted.more), (2, true), "what a limit of 2 removed");
    ensure_eq!(bench.observe().await?.essence().0.len(), 1, "the leases left");
    PASSED
}

async fn evict_exactly_says_what_it_removed<B: Backing>(bench: &Bench<B>) -> Verdict {
    let (held, unknown) = (bench.exclusive("a"), bench.exclusive("b"));
    bench.client.grant(&held).await?;
    let targets = vec![unknown.target(&key("b")), held.target(&key("a"))];
    let evicted = bench.client.evict(Evict::exactly(targets, None)).await?;
    ensure_eq!(evicted.removed.len(), 1, "what was removed");
    ensure_eq!(evicted.removed[0].key, key("a"), "which key");
    ensure_eq!(evicted.removed[0].id, Some(held.id.clone()), "which lease");
    ensure_eq!((evicted.forgotten, evicted.more), (0, false), "counters, and whether more");
    PASSED
}

async fn evict_exactly_takes_what_was_listed<B: Backing>(bench: &Bench<B>) -> Verdict {
    let leases = [bench.exclusive("a"), bench.exclusive("b")];
    for lease in &leases {
        bench.client.grant(lease).await?;
    }
    let records = bench.client.list(Filter::default()).await?;
    bench.client.evict_these(records.iter().map(Target::of).collect(), None).await?;
    ensure_eq!(bench.observe().await?.essence().0.len(), 0, "the leases left");
    PASSED
}

async fn evict_exactly_one_reader_of_many<B: Backing>(bench: &Bench<B>) -> Verdict {
    let readers = [bench.shared("job"), bench.shared("job"), bench.shared("job")];
    for reader in &readers {
        bench.client.grant(reader).await?;
    }
    bench.client.evict_these(readers[1].targets(), None).await?;
    bench.holds("job", &[&readers[0], &readers[2]]).await?;
    bench.client.lost(&readers[1]).await?;
    bench.client.held(&readers[0], readers[0].term).await?;
    PASSED
}

async fn evict_exactly_a_lease_without_end<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.held(&lease, Ttl::NEVER).await?;
    bench.client.evict_these(lease.targets(), None).await?;
    bench.client.lost(&lease).await?;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}

async fn evict_exactly_a_kept_one<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.keep(&lease, bench.ticks(8)).await?;
    bench.client.evict_these(lease.targets(), None).await?;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}

async fn evict_exactly_an_expired_one<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = &grant_expired(bench, &["job"]).await?[0];
    bench.client.evict_these(lease.targets(), None).await?;
    ensure_eq!(expired(bench).await?.len(), 0, "what has expired and is still there");
    bench.client.not_held(lease).await?;
    PASSED
}

async fn evict_tells_the_holder_why<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.evict_these(lease.targets(), Some("maintenance of db-3")).await?;
    let told = LostReason::Evicted(Some(Reason::new("maintenance of db-3")?));
    ensure_eq!(bench.client.lost(&lease).await?, Some(told.clone()), "what the holder is told");
    let next = bench.exclusive("job");
    bench.client.grant(&next).await?;
    ensure_eq!(bench.client.lost(&lease).await?, Some(told), "what it is told once more");
    bench.client.held(&next, next.term).await?;
    PASSED
}

async fn evict_without_a_reason_is_told_too<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.evict_these(lease.targets(), None).await?;
    let told = bench.client.lost(&lease).await?;
    ensure_eq!(told, Some(LostReason::Evicted(None)), "what the holder is told");
    PASSED
}

/// What remembers an evicted lease is no lease: it is not listed, not counted and not renewed.
async fn evict_leaves_a_mark_that_excludes_nobody<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.evict_these(lease.targets(), Some("broken")).await?;
    for expired in [Expired::Out, Expired::In, Expired::Only] {
        let records = bench.client.list(Filter::default().with_expired(expired)).await?;
        ensure!(records.is_empty(), "an evicted lease is listed: {records:?}");
    }
    let purged = bench.client.store().evict(&Evict::expired(Filter::default())).await?;
    ensure_eq!(purged.removed.len(), 0, "expired leases removed where there is none");
    let again = bench.client.grant(&lease).await?;
    bench.remains(again.remaining, 10, "the term of a new lease under the old id")?;
    bench.client.held(&lease, lease.term).await?;
    bench.holds("job", &[&lease]).await?;
    PASSED
}
