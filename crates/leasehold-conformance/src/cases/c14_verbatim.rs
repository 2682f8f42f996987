//! C14: everything the caller supplies is data, stored and compared byte for byte.

use std::collections::BTreeSet;

use leasehold_core::{Filter, Key, LeaseId, LostReason, Note, Reason};

use crate::Backing;
use crate::attempt::key;
use crate::case::{CaseResult, PASSED, cases};
use crate::failure::{ensure, ensure_eq};
use crate::fixture::Fixture;

cases! {
    c14_keys_are_compared_byte_for_byte,
    c14_hostile_keys_are_data,
    c14_hostile_keys_of_one_lease_are_data [ManyKeys],
    c14_hostile_groups_are_data [ReportsGroup],
    c14_hostile_notes_are_data [ReportsNote],
    c14_hostile_reasons_are_data [ReportsEvicted],
    c14_hostile_ids_are_data,
    c14_hostile_filters_are_data,
    c14_the_longest_texts_are_kept [ReportsGroup, ReportsNote],
}

/// Texts that break a store which builds statements, patterns, scripts or documents from them.
const HOSTILE: [&str; 24] = [
    "'",
    "''; DROP TABLE leases; --",
    "\" OR \"\"=\"",
    "`leases`",
    "\\",
    "\\'",
    "%",
    "_",
    "%s%n",
    "$1",
    "?",
    ":key",
    "@id",
    "{}",
    "{{key}}",
    "{\"$ne\":null}",
    "$where",
    "a.b.$[]",
    "]] return redis.call('FLUSHALL') --[[",
    "*",
    "[a-z]",
    "null",
    "../../etc/passwd",
    "\u{202e}\u{feff}\u{1f512}",
];

/// Names that a collation, normalisation or trimming would make equal.
const ALIKE: [&str; 14] = [
    "job",
    "Job",
    "JOB",
    "job ",
    " job",
    "job\u{a0}",
    "j\u{f6}b",
    "jo\u{308}b",
    "\u{ff4a}ob",
    "stra\u{df}e",
    "strasse",
    "\u{131}",
    "i",
    "\u{1f512}",
];

async fn c14_keys_are_compared_byte_for_byte<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let leases: Vec<_> = ALIKE.iter().map(|name| fixture.exclusive(name)).collect();
    for lease in &leases {
        fixture.client.grant(lease).await?;
    }
    for lease in &leases {
        fixture.client.refuse(&fixture.exclusive(lease.key().as_str())).await?;
        fixture.holds(lease.key().as_str(), &[lease]).await?;
        let record = fixture.client.only(Filter::default().with_key(lease.key().clone())).await?;
        ensure_eq!((&record.key, &record.id), (lease.key(), &Some(lease.id.clone())), "a record");
    }
    fixture.client.released(&leases[0]).await?;
    for lease in &leases[1..] {
        fixture.holds(lease.key().as_str(), &[lease]).await?;
    }
    PASSED
}

/// Those that may be keys.
fn hostile_keys<B: Backing>(fixture: &Fixture<B>) -> Vec<&'static str> {
    let is_key = |name: &&str| fixture.reports.any_key || !name.contains(['\'', '\\']);
    HOSTILE.into_iter().filter(is_key).collect()
}

async fn c14_hostile_keys_are_data<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let names = hostile_keys(fixture);
    let leases: Vec<_> = names.iter().map(|name| fixture.exclusive(name)).collect();
    for lease in &leases {
        fixture.client.grant(lease).await?;
        fixture.client.confirm(lease).await?;
    }
    let seen = fixture.observe().await?;
    let rows: BTreeSet<_> = seen.rows.iter().map(|row| row.key.clone()).collect();
    let expected: BTreeSet<_> = names.iter().map(|name| key(name)).collect();
    ensure_eq!(rows, expected, "the keys as stored");
    for lease in &leases {
        fixture.client.held(lease, lease.term).await?;
        fixture.client.only(Filter::default().with_key(lease.key().clone())).await?;
        fixture.client.released(lease).await?;
        fixture.holds(lease.key().as_str(), &[]).await?;
    }
    PASSED
}

async fn c14_hostile_keys_of_one_lease_are_data<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let count = fixture.can.max_claims.unwrap_or(usize::MAX).min(HOSTILE.len());
    let lease = fixture.exclusive_all(&HOSTILE[..count]);
    fixture.client.grant(&lease).await?;
    ensure_eq!(fixture.observe().await?.held(&lease.id).count(), count, "the rows of the lease");
    fixture.client.held(&lease, lease.term).await?;
    let records = fixture.client.list(Filter::default().with_keys(lease.keys())).await?;
    ensure_eq!(records.len(), count, "the records of the lease");
    fixture.client.released(&lease).await?;
    PASSED
}

async fn c14_hostile_groups_are_data<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for (n, group) in HOSTILE.iter().enumerate() {
        let lease = fixture.exclusive(&format!("job:{n}")).with_group(group);
        fixture.client.grant(&lease).await?;
        let Some(named) = lease.group.clone() else { continue };
        let record = fixture.client.only(Filter::default().with_group(named.clone())).await?;
        ensure_eq!(record.group, Some(named.clone()), "the group as listed");
        ensure_eq!(record.id, Some(lease.id.clone()), "whose it is");
        for row in fixture.observe().await?.held(&lease.id) {
            ensure_eq!(row.group, Some(named.clone()), "the group as stored");
        }
    }
    PASSED
}

async fn c14_hostile_notes_are_data<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for (n, text) in HOSTILE.iter().enumerate() {
        let note = Note::default()
            .with_host(text)?
            .with_program(text)?
            .with_comment(text)?
            .with_pid(u32::MAX);
        let lease = fixture.exclusive(&format!("job:{n}")).with_note(note.clone());
        fixture.client.grant(&lease).await?;
        let record = fixture.client.only(Filter::default().with_host(*text)).await?;
        ensure_eq!(record.note, note, "the note as listed");
        for row in fixture.observe().await?.held(&lease.id) {
            ensure_eq!(row.note, note, "the note as stored");
        }
    }
    PASSED
}

async fn c14_hostile_reasons_are_data<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for (n, text) in HOSTILE.iter().enumerate() {
        let lease = fixture.exclusive(&format!("job:{n}"));
        fixture.client.grant(&lease).await?;
        fixture.client.evict_these(lease.targets(), Some(text)).await?;
        let lost = fixture.client.lost(&lease).await?;
        ensure_eq!(
            lost,
            Some(LostReason::Evicted(Some(Reason::new(text)?))),
            "the reported reason"
        );
    }
    PASSED
}

async fn c14_hostile_ids_are_data<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let holder = fixture.exclusive("job");
    fixture.client.grant(&holder).await?;
    for text in HOSTILE {
        let stranger = fixture.exclusive("job").with_id(&LeaseId::foreign(text.as_bytes())?);
        fixture.client.refuse(&stranger).await?;
        fixture.client.lost(&stranger).await?;
        fixture.client.not_held(&stranger).await?;
        let own = fixture.exclusive("own").with_id(&stranger.id);
        fixture.client.grant(&own).await?;
        fixture.holds("own", &[&own]).await?;
        fixture.client.released(&own).await?;
    }
    fixture.holds("job", &[&holder]).await?;
    PASSED
}

/// A prefix is not a pattern, and a glob knows only `*` and `?`.
async fn c14_hostile_filters_are_data<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let names = hostile_keys(fixture);
    for name in &names {
        fixture.client.grant(&fixture.exclusive(&format!("{name}x"))).await?;
    }
    fixture.client.grant(&fixture.exclusive("plain")).await?;
    let all: Vec<_> = names.iter().map(|name| key(&format!("{name}x"))).collect();
    for (text, own) in names.iter().zip(&all) {
        let expected: BTreeSet<&Key> =
            all.iter().filter(|key| key.as_str().starts_with(text)).collect();
        let records = fixture.client.list(Filter::default().with_prefix(*text)).await?;
        let found: BTreeSet<&Key> = records.iter().map(|record| &record.key).collect();
        ensure_eq!(found, expected, "the keys that begin with {text:?}");
        let records =
            fixture.client.list(Filter::default().with_glob(&format!("{text}?"))?).await?;
        let found = records.iter().any(|record| record.key == *own);
        ensure!(found, "{text:?} and a question mark do not match {own:?}");
        let wild = text.contains(['*', '?']);
        ensure!(wild || records.len() == 1, "{text:?} is taken for a pattern: {records:?}");
        let nobody = Filter::default().with_host(*text);
        ensure_eq!(fixture.client.list(nobody).await?.len(), 0, "the records of the host {text:?}");
    }
    PASSED
}

async fn c14_the_longest_texts_are_kept<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let name = format!("{}x", "\u{fc}".repeat(127));
    let comment = "\u{1f512}".repeat(Note::MAX_COMMENT_BYTES / 4);
    let note = Note::default().with_host(&name)?.with_program(&name)?.with_comment(&comment)?;
    let lease = fixture.exclusive("job").with_group(&name).with_note(note.clone());
    fixture.client.grant(&lease).await?;
    let record = fixture.client.only(lease.filter()).await?;
    ensure_eq!((record.group, record.note), (lease.group.clone(), note.clone()), "the record");
    for row in fixture.observe().await?.held(&lease.id) {
        ensure_eq!((&row.group, &row.note), (&lease.group, &note), "what is stored");
    }
    PASSED
}
