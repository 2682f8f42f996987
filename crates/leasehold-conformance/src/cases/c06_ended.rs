//! C6: an ended lease is never revived; renewal never shortens; at exactly its term a lease has ended.

use leasehold_core::{
    LostReason, MAX_ENTRIES, Mode, ReleaseOutcome, Remaining, RenewOutcome, RenewRequest, Ttl,
};

use crate::Backing;
use crate::attempt::{Attempt, all_of};
use crate::case::{CaseResult, PASSED, cases, invalid_input};
use crate::failure::{ensure, ensure_eq, take};
use crate::fixture::Fixture;

cases! {
    c06_just_before_its_term_a_lease_is_held,
    c06_at_exactly_its_term_a_lease_has_ended,
    c06_an_expired_lease_is_not_revived_even_if_its_key_is_free,
    c06_a_released_lease_is_not_revived,
    c06_an_evicted_lease_is_not_revived,
    c06_a_kept_lease_is_not_revived [Keep],
    c06_an_unknown_lease_is_lost,
    c06_renewal_extends,
    c06_renewal_extends_every_key [ManyKeys],
    c06_renewal_never_shortens,
    c06_renewal_keeps_token_and_holder,
    c06_renewal_to_never [Never],
    c06_never_is_not_shortened [Never],
    c06_each_lease_of_a_renewal_has_its_own_outcome,
    c06_renewal_in_another_mode_fails_alone [Shared],
    c06_a_thousand_leases_are_renewed_at_once,
}

async fn c06_just_before_its_term_a_lease_is_held<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.pass_almost(10).await;
    fixture.holds("job", &[&lease]).await?;
    fixture.client.refuse(&fixture.exclusive("job")).await?;
    fixture.client.held(&lease, lease.term).await?;
    PASSED
}

async fn c06_at_exactly_its_term_a_lease_has_ended<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let (renewed, released) = (fixture.exclusive("a"), fixture.exclusive("b"));
    let (listed, followed) = (fixture.exclusive("c"), fixture.exclusive("d"));
    for lease in [&renewed, &released, &listed, &followed] {
        fixture.client.grant(lease).await?;
    }
    fixture.pass(10).await;
    fixture.client.lost(&renewed).await?;
    let ended = fixture.client.release(&released).await?;
    ensure!(
        !matches!(ended, ReleaseOutcome::Released),
        "a lease was still held at exactly its term"
    );
    let records = fixture.client.list(listed.filter()).await?;
    ensure!(records.is_empty(), "a lease was listed as live at exactly its term: {records:?}");
    fixture.client.grant(&fixture.exclusive("d")).await?;
    PASSED
}

async fn c06_an_expired_lease_is_not_revived_even_if_its_key_is_free<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.pass(12).await;
    let reason = fixture.client.lost(&lease).await?;
    if fixture.can.reports_expired {
        ensure_eq!(reason, Some(LostReason::Expired), "why it was lost");
    }
    fixture.holds("job", &[]).await?;
    fixture.client.lost(&lease).await?;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    fixture.client.lost(&lease).await?;
    PASSED
}

async fn c06_a_released_lease_is_not_revived<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.released(&lease).await?;
    fixture.client.lost(&lease).await?;
    fixture.holds("job", &[]).await?;
    PASSED
}

async fn c06_an_evicted_lease_is_not_revived<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.evict_these(lease.targets(), None).await?;
    fixture.client.lost(&lease).await?;
    fixture.client.lost(&lease).await?;
    fixture.holds("job", &[]).await?;
    PASSED
}

async fn c06_a_kept_lease_is_not_revived<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.keep(&lease, fixture.ticks(5)).await?;
    fixture.client.lost(&lease).await?;
    fixture.pass(5).await;
    fixture.holds("job", &[]).await?;
    PASSED
}

async fn c06_an_unknown_lease_is_lost<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let before = fixture.observe().await?;
    fixture.client.lost(&fixture.exclusive("job")).await?;
    fixture.unchanged(&before).await?;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c06_renewal_extends<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    for _ in 0..4 {
        fixture.pass(6).await;
        fixture.remains(fixture.client.held(&lease, lease.term).await?, 10, "the renewed term")?;
    }
    fixture.client.refuse(&fixture.exclusive("job")).await?;
    fixture.remains(fixture.client.held(&lease, fixture.ttl(25)).await?, 25, "a longer term")?;
    fixture.pass(25).await;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c06_renewal_extends_every_key<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive_all(&["a", "b", "c"]);
    fixture.client.grant(&lease).await?;
    fixture.pass(6).await;
    fixture.client.held(&lease, lease.term).await?;
    fixture.pass(6).await;
    for name in ["a", "b", "c"] {
        fixture.holds(name, &[&lease]).await?;
    }
    fixture.pass(4).await;
    ensure_eq!(fixture.observe().await?.held(&lease.id).count(), 0, "the rows after the term");
    PASSED
}

async fn c06_renewal_never_shortens<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.pass(2).await;
    fixture.remains(fixture.client.held(&lease, fixture.ttl(1)).await?, 8, "what remains")?;
    let record = fixture.client.only(lease.filter()).await?;
    fixture.remains(record.remaining(), 8, "what remains as listed")?;
    fixture.pass(5).await;
    fixture.holds("job", &[&lease]).await?;
    PASSED
}

async fn c06_renewal_keeps_token_and_holder<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job").with_group("worker");
    let granted = fixture.client.grant(&lease).await?;
    let before = fixture.observe().await?;
    fixture.pass(4).await;
    fixture.client.held(&lease, lease.term).await?;
    fixture.unchanged(&before).await?;
    ensure_eq!(fixture.client.confirm(&lease).await?.token, granted.token, "the token");
    PASSED
}

async fn c06_renewal_to_never<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let remaining = fixture.client.held(&lease, Ttl::NEVER).await?;
    ensure_eq!(remaining, Remaining::Never, "what remains");
    fixture.pass(15).await;
    fixture.holds("job", &[&lease]).await?;
    let record = fixture.client.only(lease.filter()).await?;
    ensure_eq!(record.remaining(), Remaining::Never, "what remains as listed");
    fixture.client.released(&lease).await?;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c06_never_is_not_shortened<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.held(&lease, Ttl::NEVER).await?;
    let remaining = fixture.client.held(&lease, fixture.ttl(2)).await?;
    ensure_eq!(remaining, Remaining::Never, "what remains after a renewal with an end");
    fixture.pass(11).await;
    fixture.holds("job", &[&lease]).await?;
    PASSED
}

async fn c06_each_lease_of_a_renewal_has_its_own_outcome<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let short = fixture.exclusive("short").with_term(fixture.ticks(2));
    let (live, long) = (fixture.exclusive("live"), fixture.exclusive("long"));
    for lease in [&short, &live, &long] {
        fixture.client.grant(lease).await?;
    }
    fixture.pass(3).await;
    let unknown = fixture.exclusive("unknown");
    let request = RenewRequest::new(vec![
        long.renewal(fixture.ttl(20)),
        short.renewal(short.term),
        unknown.renewal(unknown.term),
        live.renewal(fixture.ttl(1)),
    ]);
    let renewed = fixture.client.renew_all(request).await?;
    let held = |at: usize| match &renewed[at] {
        RenewOutcome::Held(remaining) => Some(*remaining),
        RenewOutcome::Lost(_) | RenewOutcome::Failed(_) => None,
    };
    ensure!(held(1).is_none() && held(2).is_none(), "ended leases were renewed: {renewed:?}");
    let long_rest = take!(Some(rest) => rest, held(0), "the first of {renewed:?}");
    fixture.remains(long_rest, 20, "the first")?;
    let live_rest = take!(Some(rest) => rest, held(3), "the last of {renewed:?}");
    fixture.remains(live_rest, 7, "the last")?;
    PASSED
}

async fn c06_renewal_in_another_mode_fails_alone<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let (lease, beside) = (fixture.exclusive("job"), fixture.exclusive("beside"));
    fixture.client.grant(&lease).await?;
    fixture.client.grant(&beside).await?;
    let before = fixture.observe().await?;
    let other = lease.clone().with_claims(all_of(&["job"], Mode::SHARED));
    let request = RenewRequest::new(vec![other.renewal(other.term), beside.renewal(beside.term)]);
    let mut renewed = fixture.client.renew_all(request).await?;
    ensure!(matches!(renewed[1], RenewOutcome::Held(_)), "the other lease: {renewed:?}");
    let error = take!(RenewOutcome::Failed(error) => error, renewed.remove(0), "the wrong mode");
    invalid_input(&error)?;
    fixture.unchanged(&before).await?;
    PASSED
}

async fn c06_a_thousand_leases_are_renewed_at_once<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let count = MAX_ENTRIES;
    let held: Vec<Attempt> = (0..20)
        .map(|n| fixture.exclusive(&format!("job:{n}")).with_term(fixture.ticks(20)))
        .collect();
    for lease in &held {
        fixture.client.grant(lease).await?;
    }
    let unknown = (held.len()..count).map(|n| fixture.exclusive(&format!("job:{n}")));
    let all: Vec<_> = held.iter().cloned().chain(unknown).collect();
    let request =
        RenewRequest::new(all.iter().map(|lease| lease.renewal(fixture.ttl(40))).collect());
    let renewed = fixture.client.renew_all(request).await?;
    for (n, outcome) in renewed.iter().enumerate() {
        let expected = n < held.len();
        ensure_eq!(matches!(outcome, RenewOutcome::Held(_)), expected, "lease {n}: {outcome:?}");
        ensure_eq!(matches!(outcome, RenewOutcome::Lost(_)), !expected, "lease {n}: {outcome:?}");
    }
    fixture.pass(25).await;
    ensure_eq!(fixture.observe().await?.essence().0.len(), held.len(), "what was renewed");
    PASSED
}
