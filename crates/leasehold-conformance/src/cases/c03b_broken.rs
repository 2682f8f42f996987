//! C3b: a lease is held on all its keys or on none.

use leasehold_core::{Mode, ReleaseOutcome, ReleaseRequest, RenewOutcome, RenewRequest};

use crate::attempt::{Attempt, all_of, key};
use crate::case::{CaseResult, PASSED, cases};
use crate::failure::{ensure, ensure_eq};
use crate::fixture::Fixture;
use crate::{Backing, Result};

cases! {
    c03b_renewal_of_a_broken_lease_drops_the_rest [ManyKeys],
    c03b_release_of_a_broken_lease_drops_the_rest [ManyKeys],
    c03b_acquire_of_a_broken_lease_is_a_new_grant [ManyKeys],
    c03b_refused_acquire_of_a_broken_lease_drops_the_rest [ManyKeys],
    c03b_the_rest_stays_until_it_is_named [ManyKeys],
    c03b_a_key_that_expired_alone_breaks_the_lease [ManyKeys],
    c03b_one_more_key_is_a_new_grant [ManyKeys],
    c03b_keep_of_a_broken_lease_keeps_nothing [ManyKeys, Keep],
}

/// A lease of three keys, one of which was ended by force.
async fn broken<B: Backing>(fixture: &Fixture<B>) -> Result<Attempt> {
    let lease = fixture.exclusive_all(&["a", "b", "c"]);
    fixture.client.grant(&lease).await?;
    fixture.client.evict_these(vec![lease.target(&key("b"))], None).await?;
    fixture.holds("b", &[]).await?;
    Ok(lease)
}

async fn c03b_renewal_of_a_broken_lease_drops_the_rest<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = broken(fixture).await?;
    fixture.client.lost(&lease).await?;
    ensure_eq!(fixture.observe().await?.held(&lease.id).count(), 0, "the rows that are left");
    fixture.client.grant(&fixture.exclusive_all(&["a", "b", "c"])).await?;
    PASSED
}

async fn c03b_release_of_a_broken_lease_drops_the_rest<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = broken(fixture).await?;
    fixture.client.not_held(&lease).await?;
    ensure_eq!(fixture.observe().await?.held(&lease.id).count(), 0, "the rows that are left");
    fixture.client.grant(&fixture.exclusive_all(&["a", "b", "c"])).await?;
    PASSED
}

async fn c03b_acquire_of_a_broken_lease_is_a_new_grant<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = broken(fixture).await?;
    let highest = fixture.observe().await?.highest(&key("a"));
    let second = fixture.client.grant(&lease).await?;
    ensure!(
        !fixture.can.tokens || second.token.is_some_and(|token| token.get() > highest),
        "the token of the new grant is {:?} after {highest}",
        second.token
    );
    let seen = fixture.observe().await?;
    ensure_eq!(seen.held(&lease.id).count(), 3, "the rows of the new grant");
    for row in seen.held(&lease.id) {
        ensure_eq!(row.token, second.token, "the token on {:?}", row.key);
    }
    PASSED
}

async fn c03b_refused_acquire_of_a_broken_lease_drops_the_rest<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = broken(fixture).await?;
    let other = fixture.exclusive("b");
    fixture.client.grant(&other).await?;
    let refused = fixture.client.refuse(&lease).await?;
    ensure_eq!(refused.key, key("b"), "the key that refused");
    fixture.holds("a", &[]).await?;
    fixture.holds("b", &[&other]).await?;
    fixture.holds("c", &[]).await?;
    PASSED
}

async fn c03b_the_rest_stays_until_it_is_named<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = broken(fixture).await?;
    fixture.client.refuse(&fixture.exclusive("a")).await?;
    fixture.client.refuse(&fixture.exclusive("c")).await?;
    fixture.client.grant(&fixture.exclusive("b")).await?;
    fixture.holds("a", &[&lease]).await?;
    fixture.holds("c", &[&lease]).await?;
    PASSED
}

async fn c03b_a_key_that_expired_alone_breaks_the_lease<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive_all(&["a", "b"]);
    fixture.client.grant(&lease).await?;
    let part = lease.clone().with_claims(all_of(&["a"], Mode::Exclusive));
    fixture.client.held(&part, fixture.ttl(30)).await?;
    fixture.pass(10).await;
    fixture.holds("a", &[&lease]).await?;
    fixture.holds("b", &[]).await?;
    let renewed =
        fixture.client.renew_all(RenewRequest::new(vec![lease.renewal(lease.term)])).await?;
    ensure!(
        matches!(renewed[0], RenewOutcome::Lost(_)),
        "a lease of which a key has expired was renewed: {renewed:?}"
    );
    fixture.holds("a", &[]).await?;
    PASSED
}

async fn c03b_one_more_key_is_a_new_grant<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("a");
    let first = fixture.client.grant(&lease).await?;
    let wider = lease.clone().with_claims(all_of(&["a", "b"], Mode::Exclusive));
    let second = fixture.client.grant(&wider).await?;
    ensure!(
        !fixture.can.tokens || second.token > first.token,
        "the token of the wider lease is {:?} after {:?}",
        second.token,
        first.token
    );
    ensure_eq!(fixture.observe().await?.held(&lease.id).count(), 2, "the rows of the wider lease");
    PASSED
}

async fn c03b_keep_of_a_broken_lease_keeps_nothing<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = broken(fixture).await?;
    let ending = lease.ending().with_keep(fixture.ticks(20));
    let ended = fixture.client.release_all(ReleaseRequest::new(vec![ending])).await?;
    ensure!(matches!(ended[0], ReleaseOutcome::NotHeld), "a broken lease was kept: {ended:?}");
    ensure_eq!(fixture.observe().await?.held(&lease.id).count(), 0, "the rows that are left");
    PASSED
}
