//! C4: the store's own clock decides expiry, and only durations cross the wire.

use std::time::Duration;

use leasehold_core::{Expired, RecordTerm, Remaining};

use crate::bench::Bench;
use crate::case::{Ended, PASSED, Verdict, cases, no_wall_step};
use crate::failure::{ensure_eq, take};
use crate::{Backing, WallStep};

cases! {
    c04_terms_run_on_the_stores_clock,
    c04_every_client_sees_the_same_rest,
    c04_terms_are_rounded_up,
    c04_a_later_request_counts_from_later,
    c04_a_record_tells_how_long_ago_it_ended [TellsExpired],
    c04_wall_clock_forward_ends_no_lease_of_a_boot_clock,
}

async fn c04_terms_run_on_the_stores_clock<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    let granted = bench.client.grant(&lease).await?;
    bench.remains(granted.remaining, 10, "the term of a grant")?;
    for passed in 1..10 {
        bench.pass(1).await;
        let refused = bench.client.refuse(&bench.exclusive("job")).await?;
        let rest = refused.retry_after.unwrap_or_default();
        bench.about(rest, bench.ticks(10 - passed), "the rest told to another")?;
    }
    bench.pass(1).await;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}

async fn c04_every_client_sees_the_same_rest<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.pass(4).await;
    for _ in 0..3 {
        let record = bench.another().await?.only(lease.filter()).await?;
        bench.remains(record.remaining(), 6, "the rest as listed")?;
    }
    PASSED
}

/// What a holder believes is rounded down, so the store must not end a lease sooner than was asked.
async fn c04_terms_are_rounded_up<B: Backing>(bench: &Bench<B>) -> Verdict {
    for (n, odd) in [1, 499, 999, 1_001, 999_999].into_iter().enumerate() {
        let term = bench.ticks(10) + Duration::from_nanos(odd);
        let lease = bench.exclusive(&format!("job:{n}")).with_term(term);
        let granted = bench.client.grant(&lease).await?;
        let unit = bench.tells.unit.as_nanos();
        let whole = u64::try_from(term.as_nanos().next_multiple_of(unit))?;
        let whole = Remaining::For(Duration::from_nanos(whole));
        if bench.wall_micros().is_none() {
            bench.remains(granted.remaining, 10, "the term")?;
            continue;
        }
        ensure_eq!(granted.remaining, whole, "what became of {term:?}");
        bench.pass_for(term - Duration::from_nanos(odd)).await;
        bench.holds(lease.key().as_str(), &[&lease]).await?;
        ensure_eq!(bench.client.confirm(&lease).await?.remaining, whole, "the term counted anew");
    }
    PASSED
}

async fn c04_a_later_request_counts_from_later<B: Backing>(bench: &Bench<B>) -> Verdict {
    let early = bench.exclusive("early");
    let late = bench.exclusive("late");
    bench.client.grant(&early).await?;
    bench.pass(5).await;
    bench.client.grant(&late).await?;
    bench.pass(5).await;
    bench.holds("early", &[]).await?;
    bench.holds("late", &[&late]).await?;
    bench.pass(5).await;
    bench.holds("late", &[]).await?;
    PASSED
}

async fn c04_a_record_tells_how_long_ago_it_ended<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.pass(13).await;
    let filter = lease.filter().with_expired(Expired::Only);
    let record = bench.client.only(filter).await?;
    let ago = take!(
        RecordTerm::Expired(ago) => ago,
        record.term,
        "the term of a lease that ended three ticks ago"
    );
    // A store that cannot tell says nothing.
    if let Some(ago) = ago {
        bench.about(ago, bench.ticks(3), "how long ago it ended")?;
    }
    PASSED
}

/// Where terms and wall time are two clocks, only the first decides.
async fn c04_wall_clock_forward_ends_no_lease_of_a_boot_clock<B: Backing>(
    bench: &Bench<B>,
) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    if !bench.step_wall(WallStep::Forward(bench.ticks(1_000))).await? {
        return Ok(no_wall_step());
    }
    if !bench.tells.own_clock {
        bench.client.lost(&lease).await?;
        bench.client.grant(&bench.exclusive("job")).await?;
        let name = bench.can.name;
        return Ok(Ended::NotApplicable(format!(
            "{name} counts terms on its wall clock, and was seen to end a lease for all alike when it was set forward"
        )));
    }
    bench.client.refuse(&bench.exclusive("job")).await?;
    bench.step_wall(WallStep::Back(bench.ticks(5_000))).await?;
    bench.holds("job", &[&lease]).await?;
    bench.pass(10).await;
    bench.holds("job", &[]).await?;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}
