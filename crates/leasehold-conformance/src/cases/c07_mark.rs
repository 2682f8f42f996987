//! C7, of a store that keeps one high-water mark of tokens for all keys.

use std::time::Duration;

use leasehold_core::table::TELL_EXPIRED_FOR;
use leasehold_core::{ErrorKind, FencingToken, RenewOutcome, Store};

use super::c07_tokens::{above, raise};
use crate::case::{CaseResult, PASSED, cases};
use crate::ended::Ended;
use crate::failure::{ensure, ensure_eq, take};
use crate::fixture::Fixture;
use crate::{Backing, Result};

cases! {
    c07_a_raise_far_above_the_mark_is_refused [Raise],
    c07_nothing_remains_of_a_key_that_nobody_holds [Tokens],
    c07_an_ended_lease_is_remembered_for_an_hour_at_most [Tokens],
}

/// Why a case about the mark is not applicable to a store without one.
async fn without_mark<B: Backing>(fixture: &Fixture<B>) -> Result<Option<Ended>> {
    let has_mark = fixture.observe().await?.mark.is_some();
    let why = || format!("{} keeps a counter for each key", fixture.can.name);
    Ok((!has_mark).then(|| Ended::NotApplicable(why())))
}

/// One value near the end of all tokens would end every key.
async fn c07_a_raise_far_above_the_mark_is_refused<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    if let Some(ended) = without_mark(fixture).await? {
        return Ok(ended);
    }
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let before = fixture.observe().await?;
    let most = (1 << 52) + (1 << 32);
    // It is the only lease of the request, so some stores fail the request.
    let failed = match fixture.client.store().renew(&raise(&lease, most + 1)?).await {
        Ok(reply) => {
            take!(Some(RenewOutcome::Failed(error)) => error, reply.leases.into_iter().next(), "a raise")
        }
        Err(error) => error,
    };
    ensure_eq!(failed.kind(), ErrorKind::InvalidInput, "a raise to {}: {failed}", most + 1);
    fixture.unchanged(&before).await?;
    fixture.client.renew_all(raise(&lease, most)?).await?;
    fixture.client.released(&lease).await?;
    above(fixture, &fixture.exclusive("other"), Some(FencingToken::new(most)?)).await?;
    PASSED
}

async fn c07_nothing_remains_of_a_key_that_nobody_holds<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    if let Some(ended) = without_mark(fixture).await? {
        return Ok(ended);
    }
    for name in ["a", "b", "c"] {
        let lease = fixture.exclusive(name);
        fixture.client.grant(&lease).await?;
        fixture.client.released(&lease).await?;
    }
    let seen = fixture.observe().await?;
    ensure!(seen.rows.is_empty() && seen.counters.is_empty(), "what remains: {seen:?}");
    PASSED
}

/// And nothing after that, without a purge, as long as the store is used.
async fn c07_an_ended_lease_is_remembered_for_an_hour_at_most<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    if let Some(ended) = without_mark(fixture).await? {
        return Ok(ended);
    }
    if !fixture.removes_what_is_over() {
        return Ok(Ended::NotApplicable("only a purge removes what is over".to_owned()));
    }
    if fixture.wall_micros().is_none() {
        return Ok(Ended::CannotHere("it would take an hour".to_owned()));
    }
    let (expired, evicted) = (fixture.exclusive("expired"), fixture.exclusive("evicted"));
    for lease in [&expired, &evicted] {
        fixture.client.grant(lease).await?;
    }
    fixture.client.evict_these(evicted.targets(), None).await?;
    fixture.pass(10).await;
    fixture.pass_for(TELL_EXPIRED_FOR + Duration::from_secs(60)).await;
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.released(&lease).await?;
    ensure_eq!(fixture.observe().await?.rows, [], "what is remembered");
    PASSED
}
