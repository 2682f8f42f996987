//! C3b: a lease lives or dies whole.

use leasehold_core::{LeaseReleased, LeaseRenewed, Mode, Release, Renew};

use crate::attempt::{Attempt, all_of, key};
use crate::bench::Bench;
use crate::case::{PASSED, Verdict, cases};
use crate::failure::{ensure, ensure_eq};
use crate::{Backing, Result};

cases! {
    c03b_renewal_of_a_broken_lease_drops_the_rest [ManyKeys],
    c03b_release_of_a_broken_lease_drops_the_rest [ManyKeys],
    c03b_acquire_of_a_broken_lease_is_a_new_grant [ManyKeys],
    c03b_refused_acquire_of_a_broken_lease_drops_the_rest [ManyKeys],
    c03b_the_rest_stays_until_it_is_named [ManyKeys],
    c03b_a_key_that_expired_alone_breaks_the_lease [ManyKeys],
    c03b_naming_a_key_more_is_a_new_grant [ManyKeys],
    c03b_keep_of_a_broken_lease_keeps_nothing [ManyKeys, Keep],
}

/// A lease of three keys of which one was broken by force.
async fn broken<B: Backing>(bench: &Bench<B>) -> Result<Attempt> {
    let lease = bench.exclusive_all(&["a", "b", "c"]);
    bench.client.grant(&lease).await?;
    bench.client.evict_these(vec![lease.target(&key("b"))], None).await?;
    bench.holds("b", &[]).await?;
    Ok(lease)
}

async fn c03b_renewal_of_a_broken_lease_drops_the_rest<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = broken(bench).await?;
    bench.client.lost(&lease).await?;
    ensure_eq!(bench.observe().await?.held(&lease.id).count(), 0, "the rows that are left");
    bench.client.grant(&bench.exclusive_all(&["a", "b", "c"])).await?;
    PASSED
}

async fn c03b_release_of_a_broken_lease_drops_the_rest<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = broken(bench).await?;
    bench.client.not_held(&lease).await?;
    ensure_eq!(bench.observe().await?.held(&lease.id).count(), 0, "the rows that are left");
    bench.client.grant(&bench.exclusive_all(&["a", "b", "c"])).await?;
    PASSED
}

async fn c03b_acquire_of_a_broken_lease_is_a_new_grant<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = broken(bench).await?;
    let highest = bench.observe().await?.counter(&key("a"));
    let second = bench.client.grant(&lease).await?;
    ensure!(
        !bench.can.tokens || second.token.is_some_and(|token| token.get() > highest),
        "the token of the new grant is {:?} after {highest}",
        second.token
    );
    let seen = bench.observe().await?;
    ensure_eq!(seen.held(&lease.id).count(), 3, "the rows of the new grant");
    for row in seen.held(&lease.id) {
        ensure_eq!(row.token, second.token, "the token on {:?}", row.key);
    }
    PASSED
}

async fn c03b_refused_acquire_of_a_broken_lease_drops_the_rest<B: Backing>(
    bench: &Bench<B>,
) -> Verdict {
    let lease = broken(bench).await?;
    let other = bench.exclusive("b");
    bench.client.grant(&other).await?;
    let refused = bench.client.refuse(&lease).await?;
    ensure_eq!(refused.key, key("b"), "the key that refused");
    bench.holds("a", &[]).await?;
    bench.holds("b", &[&other]).await?;
    bench.holds("c", &[]).await?;
    PASSED
}

async fn c03b_the_rest_stays_until_it_is_named<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = broken(bench).await?;
    bench.client.refuse(&bench.exclusive("a")).await?;
    bench.client.refuse(&bench.exclusive("c")).await?;
    bench.client.grant(&bench.exclusive("b")).await?;
    bench.holds("a", &[&lease]).await?;
    bench.holds("c", &[&lease]).await?;
    PASSED
}

async fn c03b_a_key_that_expired_alone_breaks_the_lease<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive_all(&["a", "b"]);
    bench.client.grant(&lease).await?;
    let part = lease.clone().with_claims(all_of(&["a"], Mode::Exclusive));
    bench.client.held(&part, bench.ttl(30)).await?;
    bench.pass(10).await;
    bench.holds("a", &[&lease]).await?;
    bench.holds("b", &[]).await?;
    let renewed = bench.client.renew_all(Renew::new(vec![lease.renewal(lease.term)])).await?;
    ensure!(
        matches!(renewed[0], LeaseRenewed::Lost(_)),
        "a lease of which a key has expired was renewed: {renewed:?}"
    );
    bench.holds("a", &[]).await?;
    PASSED
}

async fn c03b_naming_a_key_more_is_a_new_grant<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("a");
    let first = bench.client.grant(&lease).await?;
    let wider = lease.clone().with_claims(all_of(&["a", "b"], Mode::Exclusive));
    let second = bench.client.grant(&wider).await?;
    ensure!(
        !bench.can.tokens || second.token > first.token,
        "the token of the wider lease is {:?} after {:?}",
        second.token,
        first.token
    );
    ensure_eq!(bench.observe().await?.held(&lease.id).count(), 2, "the rows of the wider lease");
    PASSED
}

async fn c03b_keep_of_a_broken_lease_keeps_nothing<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = broken(bench).await?;
    let ending = lease.ending().with_keep(bench.ticks(20));
    let ended = bench.client.release_all(Release::new(vec![ending])).await?;
    ensure!(matches!(ended[0], LeaseReleased::NotHeld), "a broken lease was kept: {ended:?}");
    ensure_eq!(bench.observe().await?.held(&lease.id).count(), 0, "the rows that are left");
    PASSED
}
