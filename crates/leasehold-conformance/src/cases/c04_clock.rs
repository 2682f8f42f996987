//! C4: the store's own clock decides expiry, and only durations cross the wire.

use std::time::Duration;

use leasehold_core::{Expired, RecordTerm, Remaining};

use crate::case::{CaseResult, PASSED, cases, no_wall_step};
use crate::ended::Ended;
use crate::failure::{ensure_eq, take};
use crate::fixture::Fixture;
use crate::{Backing, WallStep};

cases! {
    c04_terms_run_on_the_stores_clock,
    c04_every_client_sees_the_same_remaining_term,
    c04_terms_are_rounded_up,
    c04_a_later_request_counts_from_later,
    c04_a_record_shows_how_long_ago_it_ended [ReportsExpired],
    c04_wall_clock_forward_ends_no_lease_of_a_boot_clock,
}

async fn c04_terms_run_on_the_stores_clock<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    let granted = fixture.client.grant(&lease).await?;
    fixture.remains(granted.remaining, 10, "the term of a grant")?;
    for passed in 1..10 {
        fixture.pass(1).await;
        let refused = fixture.client.refuse(&fixture.exclusive("job")).await?;
        let rest = refused.retry_after.unwrap_or_default();
        fixture.about(rest, fixture.ticks(10 - passed), "the rest in a refusal")?;
    }
    fixture.pass(1).await;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c04_every_client_sees_the_same_remaining_term<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.pass(4).await;
    for _ in 0..3 {
        let record = fixture.another().await?.only(lease.filter()).await?;
        fixture.remains(record.remaining(), 6, "the rest as listed")?;
    }
    PASSED
}

/// The holder rounds down, so the store must not end a lease sooner than requested.
async fn c04_terms_are_rounded_up<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for (n, nanos) in [1, 499, 999, 1_001, 999_999].into_iter().enumerate() {
        let term = fixture.ticks(10) + Duration::from_nanos(nanos);
        let lease = fixture.exclusive(&format!("job:{n}")).with_term(term);
        let granted = fixture.client.grant(&lease).await?;
        let unit = fixture.reports.unit.as_nanos();
        let whole = u64::try_from(term.as_nanos().next_multiple_of(unit))?;
        let whole = Remaining::For(Duration::from_nanos(whole));
        if fixture.wall_micros().is_none() {
            fixture.remains(granted.remaining, 10, "the term")?;
            continue;
        }
        ensure_eq!(granted.remaining, whole, "what became of {term:?}");
        fixture.pass_for(term - Duration::from_nanos(nanos)).await;
        fixture.holds(lease.key().as_str(), &[&lease]).await?;
        ensure_eq!(fixture.client.confirm(&lease).await?.remaining, whole, "the term counted anew");
    }
    PASSED
}

async fn c04_a_later_request_counts_from_later<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let early = fixture.exclusive("early");
    let late = fixture.exclusive("late");
    fixture.client.grant(&early).await?;
    fixture.pass(5).await;
    fixture.client.grant(&late).await?;
    fixture.pass(5).await;
    fixture.holds("early", &[]).await?;
    fixture.holds("late", &[&late]).await?;
    fixture.pass(5).await;
    fixture.holds("late", &[]).await?;
    PASSED
}

async fn c04_a_record_shows_how_long_ago_it_ended<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.pass(13).await;
    let filter = lease.filter().with_expired(Expired::Only);
    let record = fixture.client.only(filter).await?;
    let ago = take!(
        RecordTerm::Expired(ago) => ago,
        record.term,
        "the term of a lease that ended three ticks ago"
    );
    // A store that does not know reports nothing.
    if let Some(ago) = ago {
        fixture.about(ago, fixture.ticks(3), "how long ago it ended")?;
    }
    PASSED
}

/// If terms and wall time are two clocks, only the first decides.
async fn c04_wall_clock_forward_ends_no_lease_of_a_boot_clock<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    if !fixture.step_wall(WallStep::Forward(fixture.ticks(1_000))).await? {
        return Ok(no_wall_step());
    }
    if !fixture.reports.own_clock {
        fixture.client.lost(&lease).await?;
        fixture.client.grant(&fixture.exclusive("job")).await?;
        let name = fixture.can.name;
        return Ok(Ended::NotApplicable(format!(
            "{name} uses its wall clock for terms, and ended a lease for all clients alike when the clock was set \
             forward"
        )));
    }
    fixture.client.refuse(&fixture.exclusive("job")).await?;
    fixture.step_wall(WallStep::Back(fixture.ticks(5_000))).await?;
    fixture.holds("job", &[&lease]).await?;
    fixture.pass(10).await;
    fixture.holds("job", &[]).await?;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}
