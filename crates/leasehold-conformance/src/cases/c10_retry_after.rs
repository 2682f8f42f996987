//! C10: contention is a value with the holder and the time to retry; every error states its effect.

use std::time::Duration;

use leasehold_core::{Mode, Note, RefusalReason, Refused, Ttl};

use crate::attempt::{Attempt, all_of, at_most, claims, key};
use crate::case::{CaseResult, PASSED, cases, invalid_input};
use crate::failure::{ensure_eq, take};
use crate::fixture::Fixture;
use crate::{Backing, Result};

cases! {
    c10_exclusive_waits_for_the_holder,
    c10_exclusive_waits_for_the_longest_reader [Shared],
    c10_shared_waits_for_the_writer [Shared],
    c10_limited_waits_for_enough_readers_to_end [SharedLimit],
    c10_limited_waits_for_the_writer [SharedLimit],
    c10_many_keys_wait_for_the_largest [ManyKeys],
    c10_many_modes_wait_for_the_largest [ManyKeys, SharedLimit],
    c10_a_holder_without_end_has_no_retry_after [Never],
    c10_a_lease_without_end_that_is_not_awaited_does_not_count [Never, SharedLimit],
    c10_a_kept_key_is_awaited [Keep],
    c10_the_first_refusing_key_is_named [ManyKeys],
    c10_the_awaited_holder_is_named [ReportsHolder, ReportsGroup, ReportsNote],
    c10_the_awaited_reader_is_named [ReportsHolder, SharedLimit],
    c10_a_retry_at_retry_after_is_admitted,
    c10_bad_input_has_no_effect [Shared],
}

/// Checks `retry_after`, in ticks.
#[track_caller]
fn comes_back<B: Backing>(fixture: &Fixture<B>, refused: &Refused, ticks: u32) -> Result {
    let after = take!(Some(after) => after, refused.retry_after, "the refusal {refused:?}");
    fixture.about(after, fixture.ticks(ticks), "when to retry")
}

/// Grants leases on one key with these terms.
async fn grant_all<B: Backing>(
    fixture: &Fixture<B>,
    mode: Mode,
    terms: &[u32],
) -> Result<Vec<Attempt>> {
    let mut leases = Vec::new();
    for ticks in terms {
        let lease = fixture.one("job", mode).with_term(fixture.ticks(*ticks));
        fixture.client.grant(&lease).await?;
        leases.push(lease);
    }
    Ok(leases)
}

async fn c10_exclusive_waits_for_the_holder<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    grant_all(fixture, Mode::Exclusive, &[13]).await?;
    fixture.pass(4).await;
    comes_back(fixture, &fixture.client.refuse(&fixture.exclusive("job")).await?, 9)?;
    PASSED
}

async fn c10_exclusive_waits_for_the_longest_reader<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    grant_all(fixture, Mode::SHARED, &[5, 23, 11]).await?;
    fixture.pass(2).await;
    comes_back(fixture, &fixture.client.refuse(&fixture.exclusive("job")).await?, 21)?;
    PASSED
}

async fn c10_shared_waits_for_the_writer<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    grant_all(fixture, Mode::Exclusive, &[13]).await?;
    fixture.pass(6).await;
    comes_back(fixture, &fixture.client.refuse(&fixture.shared("job")).await?, 7)?;
    PASSED
}

/// With n holders and a limit, the (n - limit + 1)-th that ends makes room.
async fn c10_limited_waits_for_enough_readers_to_end<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    grant_all(fixture, Mode::SHARED, &[30, 6, 24, 12, 18]).await?;
    for (max, rest) in [(5, 6), (4, 12), (3, 18), (2, 24), (1, 30)] {
        comes_back(
            fixture,
            &fixture.client.refuse(&fixture.one("job", at_most(max))).await?,
            rest,
        )?;
    }
    fixture.pass(6).await;
    for (max, rest) in [(4, 6), (3, 12), (2, 18), (1, 24)] {
        comes_back(
            fixture,
            &fixture.client.refuse(&fixture.one("job", at_most(max))).await?,
            rest,
        )?;
    }
    fixture.client.grant(&fixture.one("job", at_most(5))).await?;
    PASSED
}

async fn c10_limited_waits_for_the_writer<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    grant_all(fixture, Mode::Exclusive, &[8]).await?;
    comes_back(fixture, &fixture.client.refuse(&fixture.one("job", at_most(3))).await?, 8)?;
    PASSED
}

async fn c10_many_keys_wait_for_the_largest<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for (name, ticks) in [("a", 5), ("c", 19), ("d", 12)] {
        fixture.client.grant(&fixture.exclusive(name).with_term(fixture.ticks(ticks))).await?;
    }
    let wide = fixture.exclusive_all(&["a", "b", "c", "d"]);
    comes_back(fixture, &fixture.client.refuse(&wide).await?, 19)?;
    fixture.pass(5).await;
    comes_back(fixture, &fixture.client.refuse(&wide).await?, 14)?;
    PASSED
}

async fn c10_many_modes_wait_for_the_largest<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    grant_all(fixture, Mode::SHARED, &[30, 9, 16]).await?;
    fixture.client.grant(&fixture.exclusive("a").with_term(fixture.ticks(4))).await?;
    let mixed = claims(&[("a", Mode::SHARED), ("job", at_most(2))]);
    comes_back(fixture, &fixture.client.refuse(&fixture.attempt(mixed)).await?, 16)?;
    PASSED
}

async fn c10_a_holder_without_end_has_no_retry_after<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let never = fixture.exclusive("job");
    fixture.client.grant(&never).await?;
    fixture.client.held(&never, Ttl::NEVER).await?;
    let refused = fixture.client.refuse(&fixture.exclusive("job")).await?;
    ensure_eq!(refused.retry_after, None, "when to retry after a lease without end");
    if fixture.can.many_keys {
        fixture.client.grant(&fixture.exclusive("a")).await?;
        let refused = fixture.client.refuse(&fixture.exclusive_all(&["a", "job"])).await?;
        ensure_eq!(refused.retry_after, None, "when to retry if one of two has no end");
        ensure_eq!(refused.key, key("a"), "the key that refused");
    }
    PASSED
}

async fn c10_a_lease_without_end_that_is_not_awaited_does_not_count<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let leases = grant_all(fixture, Mode::SHARED, &[20, 8, 10]).await?;
    fixture.client.held(&leases[2], Ttl::NEVER).await?;
    for (max, rest) in [(3, 8), (2, 20)] {
        comes_back(
            fixture,
            &fixture.client.refuse(&fixture.one("job", at_most(max))).await?,
            rest,
        )?;
    }
    let refused = fixture.client.refuse(&fixture.one("job", at_most(1))).await?;
    ensure_eq!(refused.retry_after, None, "when to retry if all must end");
    PASSED
}

async fn c10_a_kept_key_is_awaited<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.keep(&lease, fixture.ticks(17)).await?;
    fixture.pass(3).await;
    comes_back(fixture, &fixture.client.refuse(&fixture.exclusive("job")).await?, 14)?;
    PASSED
}

async fn c10_the_first_refusing_key_is_named<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let wide = fixture.exclusive_all(&["d", "b", "e", "a", "c"]);
    for (held, first) in [("e", "e"), ("b", "b"), ("c", "b"), ("a", "a")] {
        fixture.client.grant(&fixture.exclusive(held)).await?;
        let refused = fixture.client.refuse(&wide).await?;
        ensure_eq!(refused.key, key(first), "the first key that refuses");
    }
    PASSED
}

async fn c10_the_awaited_holder_is_named<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let note = Note::default().with_host("db-3")?.with_pid(4_711).with_comment("nightly")?;
    let holder = fixture.exclusive("job").with_group("worker").with_note(note.clone());
    let granted = fixture.client.grant(&holder).await?;
    fixture.pass(3).await;
    let refused = fixture.client.refuse(&fixture.exclusive("job")).await?;
    let named = take!(RefusalReason::Held(Some(named)) => named, refused.why, "why it was refused");
    ensure_eq!(named.key, key("job"), "the key of the holder's record");
    ensure_eq!(named.id, Some(holder.id.clone()), "the holder");
    ensure_eq!(named.mode, Mode::Exclusive, "its mode");
    ensure_eq!(named.token, granted.token, "its token");
    ensure_eq!((named.group.clone(), named.note.clone()), (holder.group, note), "who it is");
    fixture.remains(named.remaining(), 7, "what remains of it")?;
    PASSED
}

async fn c10_the_awaited_reader_is_named<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let leases = grant_all(fixture, Mode::SHARED, &[30, 6, 18]).await?;
    let asked = [(at_most(3), 1), (at_most(2), 2), (at_most(1), 0), (Mode::Exclusive, 0)];
    for (mode, awaited) in asked {
        let refused = fixture.client.refuse(&fixture.one("job", mode)).await?;
        let named =
            take!(RefusalReason::Held(Some(named)) => named, refused.why, "why it was refused");
        ensure_eq!(named.id, Some(leases[awaited].id.clone()), "whose end {mode} awaits");
    }
    PASSED
}

async fn c10_a_retry_at_retry_after_is_admitted<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    grant_all(fixture, Mode::Exclusive, &[7]).await?;
    let second = fixture.exclusive("job");
    let after = fixture.client.refuse(&second).await?.retry_after.unwrap_or(Duration::ZERO);
    if fixture.wall_micros().is_some() {
        let unit = fixture.reports.unit;
        fixture.pass_for(after.saturating_sub(unit)).await;
        let refused = fixture.client.refuse(&second).await?;
        ensure_eq!(refused.retry_after, Some(unit), "the very last rest");
        fixture.pass_for(unit).await;
    } else {
        fixture.pass_for(after).await;
    }
    fixture.client.grant(&second).await?;
    PASSED
}

/// Input that no store accepts is refused as such, without an effect.
async fn c10_bad_input_has_no_effect<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let before = fixture.observe().await?;
    let other = lease.with_claims(all_of(&["job"], Mode::SHARED));
    invalid_input(&fixture.client.reject(&other).await?)?;
    fixture.unchanged(&before).await?;
    PASSED
}
