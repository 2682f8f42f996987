//! What `list` promises: every filter, and pages that miss no lasting record.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_core::{Expired, Filter, List, Mode, Note, Owner, Record, Remaining, Store, Ttl};

use crate::attempt::{Attempt, all_of, at_most, key};
use crate::bench::Bench;
use crate::case::{PASSED, Verdict, cases};
use crate::failure::{ensure, ensure_eq};
use crate::{Backing, Failure, Result};

cases! {
    list_of_nothing_is_empty,
    list_changes_nothing,
    list_by_one_key,
    list_by_several_keys,
    list_by_prefix,
    list_by_glob,
    list_by_lease [ManyKeys],
    list_by_owner [TellsOwner],
    list_by_mode [Shared],
    list_by_host [TellsNote],
    list_by_age [TellsAge],
    list_by_remaining,
    list_by_remaining_with_never [Never],
    list_expired_out_in_and_only [TellsExpired],
    list_by_all_parts_at_once [TellsOwner],
    list_shows_every_holder_of_a_key [Shared],
    list_shows_what_was_written [TellsOwner, TellsNote],
    list_shows_age_and_renewal [TellsAge],
    list_shows_what_is_kept [Keep],
    list_by_pages_of_one,
    list_by_pages_of_one_holder [Shared],
    list_pages_miss_no_lasting_record_while_others_change,
}

/// The keys of the records.
fn keys(records: &[Record]) -> BTreeSet<&str> {
    records.iter().map(|record| record.key.as_str()).collect()
}

/// Grants one exclusive lease on each key.
async fn grant_all<B: Backing>(bench: &Bench<B>, names: &[&str]) -> Result<Vec<Attempt>> {
    let leases: Vec<_> = names.iter().map(|name| bench.exclusive(name)).collect();
    for lease in &leases {
        bench.client.grant(lease).await?;
    }
    Ok(leases)
}

/// Checks which keys the filter finds.
async fn finds<B: Backing>(bench: &Bench<B>, filter: Filter, expected: &[&str]) -> Result {
    let records = bench.client.list(filter.clone()).await?;
    ensure_eq!(keys(&records), expected.iter().copied().collect(), "what {filter:?} finds");
    Ok(())
}

async fn list_of_nothing_is_empty<B: Backing>(bench: &Bench<B>) -> Verdict {
    for expired in [Expired::Out, Expired::In, Expired::Only] {
        finds(bench, Filter::default().with_expired(expired), &[]).await?;
    }
    finds(bench, Filter::default().with_key(key("job")), &[]).await?;
    PASSED
}

async fn list_changes_nothing<B: Backing>(bench: &Bench<B>) -> Verdict {
    let leases = grant_all(bench, &["a", "b"]).await?;
    bench.client.held(&leases[1], bench.ttl(20)).await?;
    bench.pass(10).await;
    let before = bench.observe().await?;
    bench.client.list(Filter::default().with_expired(Expired::In)).await?;
    bench.client.list(Filter::default().with_keys([key("a"), key("z")])).await?;
    bench.unchanged(&before).await?;
    PASSED
}

async fn list_by_one_key<B: Backing>(bench: &Bench<B>) -> Verdict {
    grant_all(bench, &["job", "job:1", "Job"]).await?;
    finds(bench, Filter::default().with_key(key("job")), &["job"]).await?;
    finds(bench, Filter::default().with_key(key("jo")), &[]).await?;
    PASSED
}

async fn list_by_several_keys<B: Backing>(bench: &Bench<B>) -> Verdict {
    grant_all(bench, &["a", "b", "c"]).await?;
    let some = Filter::default().with_keys([key("c"), key("a"), key("z"), key("a")]);
    finds(bench, some, &["a", "c"]).await?;
    finds(bench, Filter::default().with_keys([]), &[]).await?;
    PASSED
}

async fn list_by_prefix<B: Backing>(bench: &Bench<B>) -> Verdict {
    grant_all(bench, &["job:1", "job:2", "job", "jobs", "a job:", "JOB:1"]).await?;
    finds(bench, Filter::default().with_prefix("job:"), &["job:1", "job:2"]).await?;
    finds(bench, Filter::default().with_prefix("job:1"), &["job:1"]).await?;
    let all = ["job:1", "job:2", "job", "jobs", "a job:", "JOB:1"];
    finds(bench, Filter::default().with_prefix(""), &all).await?;
    PASSED
}

async fn list_by_glob<B: Backing>(bench: &Bench<B>) -> Verdict {
    grant_all(bench, &["job:1", "job:22", "jab:1", "x job:1", "j\u{fc}b:1"]).await?;
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
        finds(bench, Filter::default().with_glob(pattern)?, expected).await?;
    }
    PASSED
}

async fn list_by_lease<B: Backing>(bench: &Bench<B>) -> Verdict {
    let wide = bench.exclusive_all(&["a", "b"]);
    bench.client.grant(&wide).await?;
    bench.client.grant(&bench.exclusive("c")).await?;
    finds(bench, wide.filter(), &["a", "b"]).await?;
    finds(bench, wide.filter().with_key(key("b")), &["b"]).await?;
    finds(bench, bench.exclusive("a").filter(), &[]).await?;
    PASSED
}

async fn list_by_owner<B: Backing>(bench: &Bench<B>) -> Verdict {
    for (name, owner) in [("a", "one"), ("b", "two"), ("c", "one"), ("d", "One")] {
        bench.client.grant(&bench.exclusive(name).with_owner(owner)).await?;
    }
    bench.client.grant(&bench.exclusive("e")).await?;
    let owner = |name| Owner::new(name);
    finds(bench, Filter::default().with_owner(owner("one")?), &["a", "c"]).await?;
    finds(bench, Filter::default().with_owner(owner("on")?), &[]).await?;
    PASSED
}

async fn list_by_mode<B: Backing>(bench: &Bench<B>) -> Verdict {
    bench.client.grant(&bench.exclusive("w")).await?;
    bench.client.grant(&bench.shared("r")).await?;
    finds(bench, Filter::default().with_mode(Mode::Exclusive), &["w"]).await?;
    finds(bench, Filter::default().with_mode(Mode::SHARED), &["r"]).await?;
    // A limit is not compared.
    finds(bench, Filter::default().with_mode(at_most(9)), &["r"]).await?;
    PASSED
}

async fn list_by_host<B: Backing>(bench: &Bench<B>) -> Verdict {
    for (name, host) in [("a", "db-1"), ("b", "db-2"), ("c", "db-1"), ("d", "DB-1")] {
        let note = Note::default().with_host(host)?;
        bench.client.grant(&bench.exclusive(name).with_note(note)).await?;
    }
    bench.client.grant(&bench.exclusive("e")).await?;
    finds(bench, Filter::default().with_host("db-1"), &["a", "c"]).await?;
    finds(bench, Filter::default().with_host("db"), &[]).await?;
    PASSED
}

/// Every record lies in exactly one of the ranges that meet at these bounds, the last without an end.
async fn list_by_age<B: Backing>(bench: &Bench<B>) -> Verdict {
    for name in ["old", "middle", "new"] {
        bench.client.grant(&bench.exclusive(name).with_term(bench.ticks(40))).await?;
        bench.pass(if name == "new" { 0 } else { 5 }).await;
    }
    let age = |from, to| Filter::default().with_age(bench.ticks(from)..bench.ticks(to));
    finds(bench, age(0, 5), &["new"]).await?;
    finds(bench, age(5, 10), &["middle"]).await?;
    finds(bench, age(10, 15), &["old"]).await?;
    finds(bench, Filter::default().with_age_from(bench.ticks(5)), &["old", "middle"]).await?;
    finds(bench, Filter::default().with_age_from(bench.ticks(16)), &[]).await?;
    PASSED
}

async fn list_by_remaining<B: Backing>(bench: &Bench<B>) -> Verdict {
    for (name, ticks) in [("five", 5), ("ten", 10), ("fifteen", 15)] {
        bench.client.grant(&bench.exclusive(name).with_term(bench.ticks(ticks))).await?;
    }
    // On a clock that runs, what is left is a little less than what was granted.
    let shift = if bench.wall_micros().is_some() { Duration::ZERO } else { bench.ticks(1) };
    let left = |ticks| Remaining::For(bench.ticks(ticks).saturating_sub(shift));
    let range = |from, to| Filter::default().with_remaining(left(from)..left(to));
    finds(bench, range(0, 5), &[]).await?;
    finds(bench, range(5, 10), &["five"]).await?;
    finds(bench, range(10, 15), &["ten"]).await?;
    finds(bench, range(5, 15), &["five", "ten"]).await?;
    let from = Filter::default().with_remaining_from(left(10));
    finds(bench, from.clone(), &["ten", "fifteen"]).await?;
    bench.pass(6).await;
    finds(bench, from, &[]).await?;
    // What has expired has nothing left, in no range.
    finds(bench, range(0, 5).with_expired(Expired::In), &["ten"]).await?;
    PASSED
}

async fn list_by_remaining_with_never<B: Backing>(bench: &Bench<B>) -> Verdict {
    let leases = grant_all(bench, &["never", "ends"]).await?;
    bench.client.held(&leases[0], Ttl::NEVER).await?;
    let zero = Remaining::For(Duration::ZERO);
    let longest = Remaining::For(Duration::MAX);
    finds(bench, Filter::default().with_remaining(zero..longest), &["ends"]).await?;
    finds(bench, Filter::default().with_remaining(zero..Remaining::Never), &["ends"]).await?;
    finds(bench, Filter::default().with_remaining_from(longest), &["never"]).await?;
    finds(bench, Filter::default().with_remaining_from(Remaining::Never), &["never"]).await?;
    finds(bench, Filter::default().with_remaining_from(zero), &["never", "ends"]).await?;
    PASSED
}

async fn list_expired_out_in_and_only<B: Backing>(bench: &Bench<B>) -> Verdict {
    bench.client.grant(&bench.exclusive("over").with_term(bench.ticks(2))).await?;
    bench.client.grant(&bench.exclusive("live")).await?;
    bench.pass(2).await;
    finds(bench, Filter::default(), &["live"]).await?;
    finds(bench, Filter::default().with_expired(Expired::Out), &["live"]).await?;
    finds(bench, Filter::default().with_expired(Expired::In), &["live", "over"]).await?;
    finds(bench, Filter::default().with_expired(Expired::Only), &["over"]).await?;
    let named = Filter::default().with_keys([key("over"), key("live")]);
    finds(bench, named.clone(), &["live"]).await?;
    finds(bench, named.with_expired(Expired::Only), &["over"]).await?;
    PASSED
}

async fn list_by_all_parts_at_once<B: Backing>(bench: &Bench<B>) -> Verdict {
    for (name, owner) in [("job:1", "one"), ("job:2", "two"), ("job:3", "one"), ("x:1", "one")] {
        bench.client.grant(&bench.exclusive(name).with_owner(owner)).await?;
    }
    let owned = Filter::default().with_owner(Owner::new("one")?);
    finds(bench, owned.clone().with_prefix("job:"), &["job:1", "job:3"]).await?;
    finds(bench, owned.clone().with_glob("*:1")?, &["job:1", "x:1"]).await?;
    finds(bench, owned.clone().with_prefix("job:").with_glob("*:1")?, &["job:1"]).await?;
    let named = owned.with_keys([key("job:2"), key("job:3")]);
    finds(bench, named.clone(), &["job:3"]).await?;
    finds(bench, named.clone().with_mode(Mode::Exclusive), &["job:3"]).await?;
    finds(bench, named.with_mode(Mode::SHARED), &[]).await?;
    PASSED
}

async fn list_shows_every_holder_of_a_key<B: Backing>(bench: &Bench<B>) -> Verdict {
    let readers = [bench.shared("job"), bench.shared("job"), bench.shared("job")];
    for reader in &readers {
        bench.client.grant(reader).await?;
    }
    let records = bench.client.list(Filter::default().with_key(key("job"))).await?;
    let found: BTreeSet<_> = records.iter().map(|record| record.id.clone()).collect();
    let expected: BTreeSet<_> = readers.iter().map(|reader| Some(reader.id.clone())).collect();
    ensure_eq!(found, expected, "the holders");
    PASSED
}

async fn list_shows_what_was_written<B: Backing>(bench: &Bench<B>) -> Verdict {
    let note = Note::default()
        .with_host("db-3")?
        .with_pid(4_711)
        .with_program("nightly")?
        .with_comment("rebuild")?;
    let full = bench.exclusive("full").with_owner("worker").with_note(note.clone());
    let bare = bench.exclusive("bare");
    let token = bench.client.grant(&full).await?.token;
    bench.client.grant(&bare).await?;
    let record = bench.client.only(full.filter()).await?;
    ensure_eq!((&record.key, &record.id), (full.key(), &Some(full.id.clone())), "what and whose");
    ensure_eq!((record.mode, record.token), (Mode::Exclusive, token), "mode and token");
    ensure_eq!((&record.owner, &record.note), (&full.owner, &note), "owner and note");
    ensure!(record.is_live() && !record.kept, "a held lease: {record:?}");
    bench.remains(record.remaining(), 10, "what remains")?;
    let record = bench.client.only(bare.filter()).await?;
    ensure_eq!((record.owner, record.note), (None, Note::default()), "owner and note of none");
    PASSED
}

async fn list_shows_age_and_renewal<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job").with_term(bench.ticks(20));
    bench.client.grant(&lease).await?;
    bench.pass(5).await;
    let record = bench.client.only(lease.filter()).await?;
    bench.about(record.age.unwrap_or(Duration::MAX), bench.ticks(5), "the age")?;
    ensure_eq!(record.renewed, None, "the last renewal of a lease never renewed");
    bench.client.held(&lease, lease.term).await?;
    bench.pass(3).await;
    let record = bench.client.only(lease.filter()).await?;
    bench.about(record.age.unwrap_or(Duration::MAX), bench.ticks(8), "the age")?;
    if let Some(renewed) = record.renewed {
        bench.about(renewed, bench.ticks(3), "the time since the renewal")?;
    }
    PASSED
}

async fn list_shows_what_is_kept<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.keep(&lease, bench.ticks(4)).await?;
    let record = bench.client.only(Filter::default().with_key(key("job"))).await?;
    ensure!(record.kept && record.is_live(), "a kept lease: {record:?}");
    bench.remains(record.remaining(), 4, "for how long it is kept")?;
    PASSED
}

async fn list_by_pages_of_one<B: Backing>(bench: &Bench<B>) -> Verdict {
    let names: Vec<_> = (0..23).map(|n| format!("job:{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    grant_all(bench, &names).await?;
    for page in [1, 2, 7, 22, 23, 24] {
        let records = bench.client.list_by(Filter::default(), page).await?;
        ensure_eq!(keys(&records), names.iter().copied().collect(), "all in pages of {page}");
        let half = Filter::default().with_prefix("job:1");
        let found = bench.client.list_by(half, page).await?;
        ensure_eq!(found.len(), 11, "some in pages of {page}");
        let named = Filter::default().with_keys([key("job:3"), key("job:5"), key("job:7")]);
        ensure_eq!(bench.client.list_by(named, page).await?.len(), 3, "named, by {page}");
    }
    PASSED
}

async fn list_by_pages_of_one_holder<B: Backing>(bench: &Bench<B>) -> Verdict {
    for name in ["a", "job", "z"] {
        for _ in 0..5 {
            bench.client.grant(&bench.shared(name)).await?;
        }
    }
    let records = bench.client.list_by(Filter::default().with_key(key("job")), 1).await?;
    let ids: BTreeSet<_> = records.iter().map(|record| record.id.clone()).collect();
    ensure_eq!(ids.len(), 5, "the holders of one key in pages of one");
    let records = bench.client.list_by(Filter::default(), 1).await?;
    let all: BTreeSet<_> = records.iter().map(|r| (r.key.clone(), r.id.clone())).collect();
    ensure_eq!(all.len(), 15, "the holders of all keys in pages of one");
    PASSED
}

/// No snapshot and no order is promised, but what is there throughout comes at least once.
async fn list_pages_miss_no_lasting_record_while_others_change<B: Backing>(
    bench: &Bench<B>,
) -> Verdict {
    let names: Vec<_> = (0..20).map(|n| format!("job:{n:02}:lasting")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    grant_all(bench, &names).await?;
    let mut passing = Vec::new();
    for n in 0..20 {
        passing.push(bench.attempt(all_of(&[&format!("job:{n:02}:a")], Mode::Exclusive)));
        bench.client.grant(&passing[n]).await?;
    }
    let mut request = List::new(Filter::default()).with_limit(3);
    let mut found = BTreeSet::new();
    for n in 0..200 * bench.tells.copies {
        let page = bench.client.store().list(&request).await?;
        found.extend(page.records.iter().map(|record| record.key.clone()));
        // What was just shown goes, and before and behind it something comes.
        if let Some(shown) = passing.iter().position(|lease| found.contains(lease.key())) {
            bench.client.release(&passing.swap_remove(shown)).await?;
        }
        for name in [format!("a:{n}"), format!("job:{:02}:z", n % 20), format!("z:{n}")] {
            bench.client.acquire(&bench.exclusive(&name).with_term(bench.ticks(1))).await?;
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
