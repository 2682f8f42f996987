//! C5: an expired lease is absent for granting, renewing and counting, in every mode, purged or not.

use leasehold_core::{EvictRequest, Filter, Mode};

use crate::Backing;
use crate::attempt::{all_of, at_most};
use crate::case::{CaseResult, PASSED, cases};
use crate::failure::{ensure, ensure_eq, take};
use crate::fixture::Fixture;

cases! {
    c05_within_the_margin_a_key_stays_taken [Margin],
    c05_exclusive_over_expired_exclusive,
    c05_shared_over_expired_exclusive [Shared],
    c05_exclusive_over_expired_shared [Shared],
    c05_expired_shared_is_not_counted [SharedLimit],
    c05_a_live_holder_among_expired_ones_still_excludes [Shared],
    c05_many_keys_over_expired_ones [ManyKeys],
    c05_expired_keep_is_absent [Keep],
    c05_listing_shows_live_records_only_unless_asked,
    c05_purging_changes_no_decision,
    c05_an_expired_lease_takes_no_place_from_its_successor [SharedLimit],
}

async fn c05_exclusive_over_expired_exclusive<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let (first, second) = (fixture.exclusive("job"), fixture.exclusive("job"));
    fixture.client.grant(&first).await?;
    fixture.pass(10).await;
    fixture.holds("job", &[]).await?;
    fixture.client.grant(&second).await?;
    fixture.holds("job", &[&second]).await?;
    PASSED
}

async fn c05_shared_over_expired_exclusive<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    fixture.client.grant(&fixture.exclusive("job")).await?;
    fixture.pass(10).await;
    let (first, second) = (fixture.shared("job"), fixture.shared("job"));
    fixture.client.grant(&first).await?;
    fixture.client.grant(&second).await?;
    fixture.holds("job", &[&first, &second]).await?;
    PASSED
}

async fn c05_exclusive_over_expired_shared<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    fixture.client.grant(&fixture.shared("job")).await?;
    fixture.client.grant(&fixture.shared("job").with_term(fixture.ticks(12))).await?;
    fixture.pass(11).await;
    fixture.client.refuse(&fixture.exclusive("job")).await?;
    fixture.pass(1).await;
    let writer = fixture.exclusive("job");
    fixture.client.grant(&writer).await?;
    fixture.holds("job", &[&writer]).await?;
    PASSED
}

async fn c05_expired_shared_is_not_counted<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let short = fixture.one("job", at_most(2)).with_term(fixture.ticks(3));
    let long = fixture.one("job", at_most(2));
    fixture.client.grant(&short).await?;
    fixture.client.grant(&long).await?;
    fixture.client.refuse(&fixture.one("job", at_most(2))).await?;
    fixture.pass(3).await;
    let third = fixture.one("job", at_most(2));
    fixture.client.grant(&third).await?;
    fixture.holds("job", &[&long, &third]).await?;
    fixture.client.refuse(&fixture.one("job", at_most(2))).await?;
    PASSED
}

async fn c05_a_live_holder_among_expired_ones_still_excludes<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    for term in [2, 9, 4] {
        fixture.client.grant(&fixture.shared("job").with_term(fixture.ticks(term))).await?;
    }
    fixture.pass(5).await;
    let refused = fixture.client.refuse(&fixture.exclusive("job")).await?;
    fixture.about(
        refused.retry_after.unwrap_or_default(),
        fixture.ticks(4),
        "the live one's rest",
    )?;
    fixture.pass(4).await;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c05_many_keys_over_expired_ones<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let old = fixture.exclusive_all(&["a", "b"]);
    fixture.client.grant(&old).await?;
    let live = fixture.exclusive("c");
    fixture.client.grant(&live.clone().with_term(fixture.ticks(11))).await?;
    fixture.pass(10).await;
    let wide = fixture.exclusive_all(&["a", "b", "c"]);
    fixture.client.refuse(&wide).await?;
    fixture.pass(1).await;
    fixture.client.grant(&wide).await?;
    ensure_eq!(fixture.observe().await?.held(&wide.id).count(), 3, "the rows of the successor");
    PASSED
}

async fn c05_expired_keep_is_absent<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.keep(&lease, fixture.ticks(3)).await?;
    fixture.client.refuse(&fixture.exclusive("job")).await?;
    fixture.pass(3).await;
    fixture.holds("job", &[]).await?;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c05_listing_shows_live_records_only_unless_asked<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.only(lease.filter()).await?;
    fixture.pass(10).await;
    let records = fixture.client.list(Filter::default()).await?;
    ensure!(records.is_empty(), "an expired lease is listed among the live ones: {records:?}");
    PASSED
}

/// Purging only saves space: the same requests have the same results with and without it.
async fn c05_purging_changes_no_decision<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for (name, purge) in [("purged", true), ("left", false)] {
        let (first, second) = (fixture.exclusive(name), fixture.exclusive(name));
        fixture.client.grant(&first).await?;
        fixture.pass(10).await;
        if purge {
            let filter = Filter::default().with_keys(first.keys());
            fixture.client.evict(EvictRequest::expired(filter)).await?;
        }
        fixture.client.lost(&first).await?;
        fixture.client.grant(&second).await?;
        fixture.client.refuse(&first).await?;
        fixture.client.not_held(&first).await?;
        fixture.holds(name, &[&second]).await?;
    }
    PASSED
}

async fn c05_an_expired_lease_takes_no_place_from_its_successor<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let permit = fixture.attempt(all_of(&["job"], at_most(1)));
    fixture.client.grant(&permit).await?;
    for _ in 0..3 {
        fixture.pass(10).await;
        fixture.client.grant(&permit).await?;
        fixture.client.refuse(&fixture.one("job", at_most(1))).await?;
    }
    fixture.client.grant(&fixture.one("job", Mode::SHARED)).await?;
    PASSED
}

/// In a shared format a record excludes others for longer than the reply to its holder stated.
async fn c05_within_the_margin_a_key_stays_taken<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    let granted = fixture.client.grant(&lease).await?;
    fixture.remains(granted.remaining, 10, "what the reply to the holder stated")?;
    fixture.pass_for(fixture.ticks(10)).await;
    let refused = fixture.another().await?.refuse(&fixture.exclusive("job")).await?;
    let wait = take!(Some(wait) => wait, refused.retry_after, "for how long the key stays taken");
    ensure!(wait <= fixture.can.margin, "taken for {wait:?}, longer than the margin");
    fixture.client.lost(&lease).await?;
    fixture.client.evict(EvictRequest::expired(Filter::default())).await?;
    fixture.client.refuse(&fixture.exclusive("job")).await?;
    fixture.pass_for(wait).await;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}
