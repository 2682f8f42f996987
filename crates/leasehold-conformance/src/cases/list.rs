//! `list`: every filter, and pages that miss no lasting record.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::{
    Expired, Filter, GroupName, ListRequest, Mode, Note, Record, Remaining, Store, Ttl,
};

use crate::attempt::{Attempt, all_of, at_most, key};
use crate::case::{CaseResult, PASSED, cases};
use crate::failure::{ensure, ensure_eq};
use crate::fixture::Fixture;
use crate::{Backing, Failure, Result};

cases! {
    list_of_nothing_is_empty,
    list_changes_nothing,
    list_by_one_key,
    list_by_several_keys,
    list_by_prefix,
    list_by_glob,
    list_by_lease [ManyKeys],
    list_by_group [ReportsGroup],
    list_by_mode [Shared],
    list_by_host [ReportsNote],
    list_by_age [ReportsAge],
    list_by_remaining,
    list_by_remaining_with_never [Never],
    list_expired_out_in_and_only [ReportsExpired],
    list_by_all_conditions_at_once [ReportsGroup],
    list_shows_every_holder_of_a_key [Shared],
    list_shows_what_was_written [ReportsGroup, ReportsNote],
    list_shows_age_and_renewal [ReportsAge],
    list_shows_kept_keys [Keep],
    list_by_pages_of_one,
    list_by_pages_of_one_holder [Shared],
    list_pages_miss_no_lasting_record_while_others_change,
}

/// The keys of the records.
fn keys(records: &[Record]) -> BTreeSet<&str> {
    records.iter().map(|record| record.key.as_str()).collect()
}

/// Grants one exclusive lease on each key.
async fn grant_all<B: Backing>(fixture: &Fixture<B>, names: &[&str]) -> Result<Vec<Attempt>> {
    let leases: Vec<_> = names.iter().map(|name| fixture.exclusive(name)).collect();
    for lease in &leases {
        fixture.client.grant(lease).await?;
    }
    Ok(leases)
}

/// Checks which keys the filter finds.
async fn finds<B: Backing>(fixture: &Fixture<B>, filter: Filter, expected: &[&str]) -> Result {
    let records = fixture.client.list(filter.clone()).await?;
    ensure_eq!(keys(&records), expected.iter().copied().collect(), "what {filter:?} finds");
    Ok(())
}

async fn list_of_nothing_is_empty<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for expired in [Expired::Out, Expired::In, Expired::Only] {
        finds(fixture, Filter::default().with_expired(expired), &[]).await?;
    }
    finds(fixture, Filter::default().with_key(key("job")), &[]).await?;
    PASSED
}

async fn list_changes_nothing<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let leases = grant_all(fixture, &["a", "b"]).await?;
    fixture.client.held(&leases[1], fixture.ttl(20)).await?;
    fixture.pass(10).await;
    let before = fixture.observe().await?;
    fixture.client.list(Filter::default().with_expired(Expired::In)).await?;
    fixture.client.list(Filter::default().with_keys([key("a"), key("z")])).await?;
    fixture.unchanged(&before).await?;
    PASSED
}

async fn list_by_one_key<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    grant_all(fixture, &["job", "job:1", "Job"]).await?;
    finds(fixture, Filter::default().with_key(key("job")), &["job"]).await?;
    finds(fixture, Filter::default().with_key(key("jo")), &[]).await?;
    PASSED
}

async fn list_by_several_keys<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    grant_all(fixture, &["a", "b", "c"]).await?;
    let some = Filter::default().with_keys([key("c"), key("a"), key("z"), key("a")]);
    finds(fixture, some, &["a", "c"]).await?;
    finds(fixture, Filter::default().with_keys([]), &[]).await?;
    PASSED
}

async fn list_by_prefix<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    grant_all(fixture, &["job:1", "job:2", "job", "jobs", "a job:", "JOB:1"]).await?;
    finds(fixture, Filter::default().with_prefix("job:"), &["job:1", "job:2"]).await?;
    finds(fixture, Filter::default().with_prefix("job:1"), &["job:1"]).await?;
    let all = ["job:1", "job:2", "job", "jobs", "a job:", "JOB:1"];
    finds(fixture, Filter::default().with_prefix(""), &all).await?;
    PASSED
}

async fn list_by_glob<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    grant_all(fixture, &["job:1", "job:22", "jab:1", "x job:1", "j\u{fc}b:1"]).await?;
    for (pattern, expected) in [
        ("*", &["job:1", "job:22", "jab:1", "x job:1", "j\u{fc}b:1"][..]),
        ("job:*", &["job:1", "job:22"]),
        ("j?b:1", &["job:1", "jab:1", "j\u{fc}b:1"]),
        ("*:1", &["job:1", "jab:1", "x job:1", "j\u{fc}b:1"]),
        ("*o*2", &["job:22"]),
        ("job:1", &["job:1"]),
        ("job:?*", &["job:1", "job:22"]),
        ("job", &[]),
    ] {
        finds(fixture, Filter::default().with_glob(pattern)?, expected).await?;
    }
    PASSED
}

async fn list_by_lease<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let wide = fixture.exclusive_all(&["a", "b"]);
    fixture.client.grant(&wide).await?;
    fixture.client.grant(&fixture.exclusive("c")).await?;
    finds(fixture, wide.filter(), &["a", "b"]).await?;
    finds(fixture, wide.filter().with_key(key("b")), &["b"]).await?;
    finds(fixture, fixture.exclusive("a").filter(), &[]).await?;
    PASSED
}

async fn list_by_group<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for (name, group) in [("a", "one"), ("b", "two"), ("c", "one"), ("d", "One")] {
        fixture.client.grant(&fixture.exclusive(name).with_group(group)).await?;
    }
    fixture.client.grant(&fixture.exclusive("e")).await?;
    let group = |name| GroupName::new(name);
    finds(fixture, Filter::default().with_group(group("one")?), &["a", "c"]).await?;
    finds(fixture, Filter::default().with_group(group("on")?), &[]).await?;
    PASSED
}

async fn list_by_mode<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    fixture.client.grant(&fixture.exclusive("w")).await?;
    fixture.client.grant(&fixture.shared("r")).await?;
    finds(fixture, Filter::default().with_mode(Mode::Exclusive), &["w"]).await?;
    finds(fixture, Filter::default().with_mode(Mode::SHARED), &["r"]).await?;
    // A limit is not compared.
    finds(fixture, Filter::default().with_mode(at_most(9)), &["r"]).await?;
    PASSED
}

async fn list_by_host<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for (name, host) in [("a", "db-1"), ("b", "db-2"), ("c", "db-1"), ("d", "DB-1")] {
        let note = Note::default().with_host(host)?;
        fixture.client.grant(&fixture.exclusive(name).with_note(note)).await?;
    }
    fixture.client.grant(&fixture.exclusive("e")).await?;
    finds(fixture, Filter::default().with_host("db-1"), &["a", "c"]).await?;
    finds(fixture, Filter::default().with_host("db"), &[]).await?;
    PASSED
}

/// Every record is in exactly one of these adjoining ranges; the last has no end.
async fn list_by_age<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for name in ["old", "middle", "new"] {
        fixture.client.grant(&fixture.exclusive(name).with_term(fixture.ticks(40))).await?;
        fixture.pass(if name == "new" { 0 } else { 5 }).await;
    }
    let age = |from, to| Filter::default().with_age(fixture.ticks(from)..fixture.ticks(to));
    finds(fixture, age(0, 5), &["new"]).await?;
    finds(fixture, age(5, 10), &["middle"]).await?;
    finds(fixture, age(10, 15), &["old"]).await?;
    finds(fixture, Filter::default().with_age_from(fixture.ticks(5)), &["old", "middle"]).await?;
    finds(fixture, Filter::default().with_age_from(fixture.ticks(16)), &[]).await?;
    PASSED
}

async fn list_by_remaining<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for (name, ticks) in [("five", 5), ("ten", 10), ("fifteen", 15)] {
        fixture.client.grant(&fixture.exclusive(name).with_term(fixture.ticks(ticks))).await?;
    }
    // On a running clock the remaining term is a little less than granted.
    let shift = if fixture.wall_micros().is_some() { Duration::ZERO } else { fixture.ticks(1) };
    let left = |ticks| Remaining::For(fixture.ticks(ticks).saturating_sub(shift));
    let range = |from, to| Filter::default().with_remaining(left(from)..left(to));
    finds(fixture, range(0, 5), &[]).await?;
    finds(fixture, range(5, 10), &["five"]).await?;
    finds(fixture, range(10, 15), &["ten"]).await?;
    finds(fixture, range(5, 15), &["five", "ten"]).await?;
    let from = Filter::default().with_remaining_from(left(10));
    finds(fixture, from.clone(), &["ten", "fifteen"]).await?;
    fixture.pass(6).await;
    finds(fixture, from, &[]).await?;
    // An expired record has no remaining term, in any range.
    finds(fixture, range(0, 5).with_expired(Expired::In), &["ten"]).await?;
    PASSED
}

async fn list_by_remaining_with_never<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let leases = grant_all(fixture, &["never", "ends"]).await?;
    fixture.client.held(&leases[0], Ttl::NEVER).await?;
    let zero = Remaining::For(Duration::ZERO);
    let longest = Remaining::For(Duration::MAX);
    finds(fixture, Filter::default().with_remaining(zero..longest), &["ends"]).await?;
    finds(fixture, Filter::default().with_remaining(zero..Remaining::Never), &["ends"]).await?;
    finds(fixture, Filter::default().with_remaining_from(longest), &["never"]).await?;
    finds(fixture, Filter::default().with_remaining_from(Remaining::Never), &["never"]).await?;
    finds(fixture, Filter::default().with_remaining_from(zero), &["never", "ends"]).await?;
    PASSED
}

async fn list_expired_out_in_and_only<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    fixture.client.grant(&fixture.exclusive("over").with_term(fixture.ticks(2))).await?;
    fixture.client.grant(&fixture.exclusive("live")).await?;
    fixture.pass(2).await;
    finds(fixture, Filter::default(), &["live"]).await?;
    finds(fixture, Filter::default().with_expired(Expired::Out), &["live"]).await?;
    finds(fixture, Filter::default().with_expired(Expired::In), &["live", "over"]).await?;
    finds(fixture, Filter::default().with_expired(Expired::Only), &["over"]).await?;
    let named = Filter::default().with_keys([key("over"), key("live")]);
    finds(fixture, named.clone(), &["live"]).await?;
    finds(fixture, named.with_expired(Expired::Only), &["over"]).await?;
    PASSED
}

async fn list_by_all_conditions_at_once<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for (name, group) in [("job:1", "one"), ("job:2", "two"), ("job:3", "one"), ("x:1", "one")] {
        fixture.client.grant(&fixture.exclusive(name).with_group(group)).await?;
    }
    let owned = Filter::default().with_group(GroupName::new("one")?);
    finds(fixture, owned.clone().with_prefix("job:"), &["job:1", "job:3"]).await?;
    finds(fixture, owned.clone().with_glob("*:1")?, &["job:1", "x:1"]).await?;
    finds(fixture, owned.clone().with_prefix("job:").with_glob("*:1")?, &["job:1"]).await?;
    let named = owned.with_keys([key("job:2"), key("job:3")]);
    finds(fixture, named.clone(), &["job:3"]).await?;
    finds(fixture, named.clone().with_mode(Mode::Exclusive), &["job:3"]).await?;
    finds(fixture, named.with_mode(Mode::SHARED), &[]).await?;
    PASSED
}

async fn list_shows_every_holder_of_a_key<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let readers = [fixture.shared("job"), fixture.shared("job"), fixture.shared("job")];
    for reader in &readers {
        fixture.client.grant(reader).await?;
    }
    let records = fixture.client.list(Filter::default().with_key(key("job"))).await?;
    let found: BTreeSet<_> = records.iter().map(|record| record.id.clone()).collect();
    let expected: BTreeSet<_> = readers.iter().map(|reader| Some(reader.id.clone())).collect();
    ensure_eq!(found, expected, "the holders");
    PASSED
}

async fn list_shows_what_was_written<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let note = Note::default()
        .with_host("db-3")?
        .with_pid(4_711)
        .with_program("nightly")?
        .with_comment("rebuild")?;
    let full = fixture.exclusive("full").with_group("worker").with_note(note.clone());
    let bare = fixture.exclusive("bare");
    let token = fixture.client.grant(&full).await?.token;
    fixture.client.grant(&bare).await?;
    let record = fixture.client.only(full.filter()).await?;
    ensure_eq!((&record.key, &record.id), (full.key(), &Some(full.id.clone())), "what and whose");
    ensure_eq!((record.mode, record.token), (Mode::Exclusive, token), "mode and token");
    ensure_eq!((&record.group, &record.note), (&full.group, &note), "group and note");
    ensure!(record.is_live() && !record.kept, "a held lease: {record:?}");
    fixture.remains(record.remaining(), 10, "what remains")?;
    let record = fixture.client.only(bare.filter()).await?;
    ensure_eq!((record.group, record.note), (None, Note::default()), "group and note of none");
    PASSED
}

async fn list_shows_age_and_renewal<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job").with_term(fixture.ticks(20));
    fixture.client.grant(&lease).await?;
    fixture.pass(5).await;
    let record = fixture.client.only(lease.filter()).await?;
    fixture.about(record.age.unwrap_or(Duration::MAX), fixture.ticks(5), "the age")?;
    ensure_eq!(record.renewed, None, "the last renewal of a lease never renewed");
    fixture.client.held(&lease, lease.term).await?;
    fixture.pass(3).await;
    let record = fixture.client.only(lease.filter()).await?;
    fixture.about(record.age.unwrap_or(Duration::MAX), fixture.ticks(8), "the age")?;
    if let Some(renewed) = record.renewed {
        fixture.about(renewed, fixture.ticks(3), "the time since the renewal")?;
    }
    PASSED
}

async fn list_shows_kept_keys<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.keep(&lease, fixture.ticks(4)).await?;
    let record = fixture.client.only(Filter::default().with_key(key("job"))).await?;
    ensure!(record.kept && record.is_live(), "a kept lease: {record:?}");
    fixture.remains(record.remaining(), 4, "for how long it is kept")?;
    PASSED
}

async fn list_by_pages_of_one<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let names: Vec<_> = (0..23).map(|n| format!("job:{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    grant_all(fixture, &names).await?;
    for page in [1, 2, 7, 22, 23, 24] {
        let records = fixture.client.list_by(Filter::default(), page).await?;
        ensure_eq!(keys(&records), names.iter().copied().collect(), "all in pages of {page}");
        let half = Filter::default().with_prefix("job:1");
        let found = fixture.client.list_by(half, page).await?;
        ensure_eq!(found.len(), 11, "some in pages of {page}");
        let named = Filter::default().with_keys([key("job:3"), key("job:5"), key("job:7")]);
        ensure_eq!(fixture.client.list_by(named, page).await?.len(), 3, "named, by {page}");
    }
    PASSED
}

async fn list_by_pages_of_one_holder<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for name in ["a", "job", "z"] {
        for _ in 0..5 {
            fixture.client.grant(&fixture.shared(name)).await?;
        }
    }
    let records = fixture.client.list_by(Filter::default().with_key(key("job")), 1).await?;
    let ids: BTreeSet<_> = records.iter().map(|record| record.id.clone()).collect();
    ensure_eq!(ids.len(), 5, "the holders of one key in pages of one");
    let records = fixture.client.list_by(Filter::default(), 1).await?;
    let all: BTreeSet<_> = records.iter().map(|r| (r.key.clone(), r.id.clone())).collect();
    ensure_eq!(all.len(), 15, "the holders of all keys in pages of one");
    PASSED
}

/// There is no snapshot and no order, but a record that is present throughout comes at least once.
async fn list_pages_miss_no_lasting_record_while_others_change<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let names: Vec<_> = (0..20).map(|n| format!("job:{n:02}:lasting")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    grant_all(fixture, &names).await?;
    let mut passing = Vec::new();
    for n in 0..20 {
        passing.push(fixture.attempt(all_of(&[&format!("job:{n:02}:a")], Mode::Exclusive)));
        fixture.client.grant(&passing[n]).await?;
    }
    let mut request = ListRequest::new(Filter::default()).with_limit(3);
    let mut found = BTreeSet::new();
    for n in 0..200 * fixture.reports.copies {
        let page = fixture.client.store().list(&request).await?;
        found.extend(page.records.iter().map(|record| record.key.clone()));
        // The record that was just listed goes, and new ones come before and after it.
        if let Some(shown) = passing.iter().position(|lease| found.contains(lease.key())) {
            fixture.client.release(&passing.swap_remove(shown)).await?;
        }
        for name in [format!("a:{n}"), format!("job:{:02}:z", n % 20), format!("z:{n}")] {
            fixture.client.acquire(&fixture.exclusive(&name).with_term(fixture.ticks(1))).await?;
        }
        match page.next {
            Some(next) => request = request.with_cursor(next),
            None => {
                let lasting: BTreeSet<_> = names.iter().map(|name| key(name)).collect();
                let missed: Vec<_> = lasting.difference(&found).collect();
                ensure!(missed.is_empty(), "the pages missed {missed:?}");
                return PASSED;
            }
        }
    }
    Err(Failure::new("the pages did not end"))
}
