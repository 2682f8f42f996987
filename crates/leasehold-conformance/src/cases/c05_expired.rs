//! C5: an expired lease is absent for granting, renewing and counting, in every mode, purged or not.

use leasehold_core::{Evict, Filter, Mode};

use crate::Backing;
use crate::attempt::{all_of, at_most};
use crate::bench::Bench;
use crate::case::{PASSED, Verdict, cases};
use crate::failure::{ensure, ensure_eq, take};

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
    c05_purged_or_not_decides_alike,
    c05_an_expired_lease_takes_no_place_of_its_successor [SharedLimit],
}

async fn c05_exclusive_over_expired_exclusive<B: Backing>(bench: &Bench<B>) -> Verdict {
    let (first, second) = (bench.exclusive("job"), bench.exclusive("job"));
    bench.client.grant(&first).await?;
    bench.pass(10).await;
    bench.holds("job", &[]).await?;
    bench.client.grant(&second).await?;
    bench.holds("job", &[&second]).await?;
    PASSED
}

async fn c05_shared_over_expired_exclusive<B: Backing>(bench: &Bench<B>) -> Verdict {
    bench.client.grant(&bench.exclusive("job")).await?;
    bench.pass(10).await;
    let (first, second) = (bench.shared("job"), bench.shared("job"));
    bench.client.grant(&first).await?;
    bench.client.grant(&second).await?;
    bench.holds("job", &[&first, &second]).await?;
    PASSED
}

async fn c05_exclusive_over_expired_shared<B: Backing>(bench: &Bench<B>) -> Verdict {
    bench.client.grant(&bench.shared("job")).await?;
    bench.client.grant(&bench.shared("job").with_term(bench.ticks(12))).await?;
    bench.pass(11).await;
    bench.client.refuse(&bench.exclusive("job")).await?;
    bench.pass(1).await;
    let writer = bench.exclusive("job");
    bench.client.grant(&writer).await?;
    bench.holds("job", &[&writer]).await?;
    PASSED
}

async fn c05_expired_shared_is_not_counted<B: Backing>(bench: &Bench<B>) -> Verdict {
    let short = bench.one("job", at_most(2)).with_term(bench.ticks(3));
    let long = bench.one("job", at_most(2));
    bench.client.grant(&short).await?;
    bench.client.grant(&long).await?;
    bench.client.refuse(&bench.one("job", at_most(2))).await?;
    bench.pass(3).await;
    let third = bench.one("job", at_most(2));
    bench.client.grant(&third).await?;
    bench.holds("job", &[&long, &third]).await?;
    bench.client.refuse(&bench.one("job", at_most(2))).await?;
    PASSED
}

async fn c05_a_live_holder_among_expired_ones_still_excludes<B: Backing>(
    bench: &Bench<B>,
) -> Verdict {
    for term in [2, 9, 4] {
        bench.client.grant(&bench.shared("job").with_term(bench.ticks(term))).await?;
    }
    bench.pass(5).await;
    let refused = bench.client.refuse(&bench.exclusive("job")).await?;
    bench.about(refused.retry_after.unwrap_or_default(), bench.ticks(4), "the live one's rest")?;
    bench.pass(4).await;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}

async fn c05_many_keys_over_expired_ones<B: Backing>(bench: &Bench<B>) -> Verdict {
    let old = bench.exclusive_all(&["a", "b"]);
    bench.client.grant(&old).await?;
    let live = bench.exclusive("c");
    bench.client.grant(&live.clone().with_term(bench.ticks(11))).await?;
    bench.pass(10).await;
    let wide = bench.exclusive_all(&["a", "b", "c"]);
    bench.client.refuse(&wide).await?;
    bench.pass(1).await;
    bench.client.grant(&wide).await?;
    ensure_eq!(bench.observe().await?.held(&wide.id).count(), 3, "the rows of the successor");
    PASSED
}

async fn c05_expired_keep_is_absent<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.keep(&lease, bench.ticks(3)).await?;
    bench.client.refuse(&bench.exclusive("job")).await?;
    bench.pass(3).await;
    bench.holds("job", &[]).await?;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}

async fn c05_listing_shows_live_records_only_unless_asked<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.only(lease.filter()).await?;
    bench.pass(10).await;
    let records = bench.client.list(Filter::default()).await?;
    ensure!(records.is_empty(), "an expired lease is listed among the live ones: {records:?}");
    PASSED
}

/// Purging is hygiene: the same story has the same end with and without it.
async fn c05_purged_or_not_decides_alike<B: Backing>(bench: &Bench<B>) -> Verdict {
    for (name, purge) in [("purged", true), ("left", false)] {
        let (first, second) = (bench.exclusive(name), bench.exclusive(name));
        bench.client.grant(&first).await?;
        bench.pass(10).await;
        if purge {
            let filter = Filter::default().with_keys(first.keys());
            bench.client.evict(Evict::expired(filter)).await?;
        }
        bench.client.lost(&first).await?;
        bench.client.grant(&second).await?;
        bench.client.refuse(&first).await?;
        bench.client.not_held(&first).await?;
        bench.holds(name, &[&second]).await?;
    }
    PASSED
}

async fn c05_an_expired_lease_takes_no_place_of_its_successor<B: Backing>(
    bench: &Bench<B>,
) -> Verdict {
    let permit = bench.attempt(all_of(&["job"], at_most(1)));
    bench.client.grant(&permit).await?;
    for _ in 0..3 {
        bench.pass(10).await;
        bench.client.grant(&permit).await?;
        bench.client.refuse(&bench.one("job", at_most(1))).await?;
    }
    bench.client.grant(&bench.one("job", Mode::SHARED)).await?;
    PASSED
}

/// In a format of others a record counts for longer than its holder was told.
async fn c05_within_the_margin_a_key_stays_taken<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    let granted = bench.client.grant(&lease).await?;
    bench.remains(granted.remaining, 10, "what the holder was told")?;
    bench.pass_for(bench.ticks(10)).await;
    let refused = bench.another().await?.refuse(&bench.exclusive("job")).await?;
    let wait = take!(Some(wait) => wait, refused.retry_after, "for how long the key stays taken");
    ensure!(wait <= bench.can.margin, "taken for {wait:?}, longer than the margin");
    bench.client.lost(&lease).await?;
    bench.client.evict(Evict::expired(Filter::default())).await?;
    bench.client.refuse(&bench.exclusive("job")).await?;
    bench.pass_for(wait).await;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}
