//! C7: tokens strictly grow per key in grant order, and the same grant keeps its token.

use leasehold_core::{EvictRequest, FencingToken, Filter, Mode, RenewOutcome, RenewRequest};

use crate::attempt::{Attempt, all_of, key};
use crate::case::{CaseResult, PASSED, cases, no_wall_step};
use crate::cases::FORGET_AFTER;
use crate::ended::Ended;
use crate::failure::{ensure, ensure_eq, take};
use crate::fixture::Fixture;
use crate::{Backing, Restarted, Result, WallStep};

cases! {
    c07_tokens_grow_through_release [Tokens],
    c07_tokens_grow_through_expiry [Tokens],
    c07_tokens_grow_through_purge [Tokens],
    c07_tokens_grow_through_eviction [Tokens],
    c07_tokens_grow_through_keep [Tokens, Keep],
    c07_tokens_grow_through_restart [Tokens],
    c07_tokens_grow_though_the_wall_clock_steps_back [Tokens],
    c07_tokens_are_no_less_than_the_wall_clock [Tokens],
    c07_shared_grants_have_tokens_of_their_own [Tokens, Shared],
    c07_one_token_above_every_earlier_token_of_each_key [Tokens, ManyKeys],
    c07_the_same_grant_keeps_its_token [Tokens],
    c07_a_raise_raises_every_later_token [Raise],
    c07_a_raise_never_lowers [Raise],
    c07_a_raise_of_a_lost_lease_does_nothing [Raise],
    c07_counters_are_forgotten_after_a_while [Tokens, Forgetting],
    c07_counters_of_live_leases_are_not_forgotten [Tokens, Forgetting],
    c07_counters_ahead_of_the_clock_are_not_forgotten [Tokens, Forgetting],
}

/// Acquires the key again, and checks that the token is above `last` and that the state remembers it.
pub(super) async fn above<B: Backing>(
    fixture: &Fixture<B>,
    lease: &Attempt,
    last: Option<FencingToken>,
) -> Result<Option<FencingToken>> {
    let client = fixture.another().await?;
    let granted = client.grant(lease).await?;
    let token = take!(Some(token) => token, granted.token, "the token of a grant");
    ensure!(Some(token) > last, "the token {token} is not above {last:?}");
    let seen = fixture.observe().await?;
    for name in lease.claims.keys() {
        ensure!(seen.remembers(name, token.get()), "of the token {token} of {name:?}: {seen:?}");
    }
    Ok(Some(token))
}

/// Checks that the state remembers this token of `job`.
async fn remembered<B: Backing>(fixture: &Fixture<B>, token: Option<FencingToken>) -> Result<()> {
    let seen = fixture.observe().await?;
    let token = token.map_or(0, FencingToken::get);
    ensure!(seen.remembers(&key("job"), token), "of the token {token}: {seen:?}");
    Ok(())
}

async fn c07_tokens_grow_through_release<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let mut last = None;
    for _ in 0..10 {
        let lease = fixture.exclusive("job");
        last = above(fixture, &lease, last).await?;
        fixture.client.released(&lease).await?;
        remembered(fixture, last).await?;
    }
    PASSED
}

async fn c07_tokens_grow_through_expiry<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let mut last = None;
    for _ in 0..4 {
        last = above(fixture, &fixture.exclusive("job"), last).await?;
        fixture.pass(10).await;
    }
    PASSED
}

async fn c07_tokens_grow_through_purge<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let mut last = None;
    for _ in 0..3 {
        last = above(fixture, &fixture.exclusive("job"), last).await?;
        fixture.pass(10).await;
        fixture.client.evict(EvictRequest::expired(Filter::default())).await?;
        remembered(fixture, last).await?;
        // The wall clock is set back behind the purged lease, so it alone must not decide the next token.
        fixture.step_wall(WallStep::Back(fixture.ticks(100))).await?;
    }
    PASSED
}

async fn c07_tokens_grow_through_eviction<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let mut last = None;
    for _ in 0..4 {
        let lease = fixture.exclusive("job");
        last = above(fixture, &lease, last).await?;
        fixture.client.evict_these(lease.targets(), Some("broken")).await?;
        remembered(fixture, last).await?;
        fixture.step_wall(WallStep::Back(fixture.ticks(100))).await?;
    }
    PASSED
}

async fn c07_tokens_grow_through_keep<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let mut last = None;
    for _ in 0..3 {
        let lease = fixture.exclusive("job");
        last = above(fixture, &lease, last).await?;
        fixture.client.keep(&lease, fixture.ticks(3)).await?;
        fixture.pass(3).await;
    }
    PASSED
}

async fn c07_tokens_grow_through_restart<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let (lease, released) = (fixture.exclusive("held"), fixture.exclusive("free"));
    let held = above(fixture, &lease, None).await?;
    let last = above(fixture, &released, None).await?;
    fixture.client.released(&released).await?;
    let before = fixture.observe().await?;
    match fixture.restart().await? {
        Restarted::CannotHere(why) => return Ok(Ended::CannotHere(why)),
        Restarted::NotTried => {
            return Ok(Ended::Ignored("nothing was done to restart the store".to_owned()));
        }
        Restarted::Forgot => {
            let seen = fixture.observe().await?;
            ensure!(
                seen.rows.is_empty() && seen.counters.is_empty() && seen.mark.unwrap_or(0) == 0,
                "a store that keeps nothing was opened with {seen:?}"
            );
            return Ok(Ended::NotApplicable(format!(
                "{} keeps nothing, and began empty",
                fixture.can.name
            )));
        }
        Restarted::Persisted => {}
    }
    fixture.unchanged(&before).await?;
    let client = fixture.another().await?;
    ensure_eq!(client.confirm(&lease).await?.token, held, "the token of the lease still held");
    fixture.step_wall(WallStep::Back(fixture.ticks(100))).await?;
    above(fixture, &fixture.exclusive("free"), last).await?;
    PASSED
}

async fn c07_tokens_grow_though_the_wall_clock_steps_back<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let mut last = None;
    for step in [
        WallStep::Forward(fixture.ticks(3_600)),
        WallStep::Back(fixture.ticks(7_200)),
        WallStep::Back(fixture.ticks(1)),
        WallStep::Forward(fixture.ticks(3_600)),
    ] {
        let lease = fixture.exclusive("job");
        last = above(fixture, &lease, last).await?;
        fixture.client.released(&lease).await?;
        if !fixture.step_wall(step).await? {
            return Ok(no_wall_step());
        }
    }
    above(fixture, &fixture.exclusive("job"), last).await?;
    PASSED
}

/// So that a store that lost its memory still continues above its earlier tokens.
async fn c07_tokens_are_no_less_than_the_wall_clock<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let unit = u64::try_from(fixture.reports.unit.as_micros())?;
    let mut last = None;
    for ticks in [0, 0, 3] {
        fixture.pass(ticks).await;
        let Some(wall) = fixture.wall_micros() else {
            let why = "the wall clock of this store is the machine's, which runs on";
            return Ok(Ended::CannotHere(why.to_owned()));
        };
        let lease = fixture.exclusive("job");
        last = above(fixture, &lease, last).await?;
        let token = last.map_or(0, FencingToken::get);
        ensure!(token >= wall - wall % unit, "the token {token} is below the wall clock, {wall}");
        fixture.client.released(&lease).await?;
    }
    PASSED
}

async fn c07_shared_grants_have_tokens_of_their_own<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let readers: Vec<_> = (0..5).map(|_| fixture.shared("job")).collect();
    let mut tokens = Vec::new();
    for reader in &readers {
        tokens.push(above(fixture, reader, tokens.last().copied().flatten()).await?);
    }
    for (reader, token) in readers.iter().zip(&tokens) {
        ensure_eq!(fixture.client.confirm(reader).await?.token, *token, "a reader's own token");
        fixture.client.released(reader).await?;
    }
    above(fixture, &fixture.exclusive("job"), tokens.last().copied().flatten()).await?;
    PASSED
}

async fn c07_one_token_above_every_earlier_token_of_each_key<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let mut highest = None;
    for (name, grants) in [("a", 1), ("b", 20), ("c", 3)] {
        for _ in 0..grants {
            let lease = fixture.exclusive(name);
            let granted = fixture.client.grant(&lease).await?;
            highest = highest.max(granted.token);
            fixture.client.released(&lease).await?;
        }
    }
    let wide = fixture.exclusive_all(&["a", "b", "c", "d"]);
    let token = above(fixture, &wide, highest).await?;
    for row in fixture.observe().await?.held(&wide.id) {
        ensure_eq!(row.token, token, "the one token on {:?}", row.key);
    }
    fixture.client.released(&wide).await?;
    for name in ["a", "d"] {
        above(fixture, &fixture.exclusive(name), token).await?;
    }
    PASSED
}

async fn c07_the_same_grant_keeps_its_token<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    let token = above(fixture, &lease, None).await?;
    for _ in 0..3 {
        fixture.pass(4).await;
        fixture.client.held(&lease, lease.term).await?;
        fixture.client.refuse(&fixture.exclusive("job")).await?;
        ensure_eq!(fixture.client.confirm(&lease).await?.token, token, "the token");
        ensure_eq!(fixture.client.only(lease.filter()).await?.token, token, "the token as listed");
    }
    PASSED
}

/// Renews with a raise.
pub(super) fn raise(lease: &Attempt, to: u64) -> Result<RenewRequest> {
    let token = FencingToken::new(to)?;
    Ok(RenewRequest::new(vec![lease.renewal(lease.term).with_token_raised_to(token)]))
}

async fn c07_a_raise_raises_every_later_token<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let keys: &[_] = if fixture.can.many_keys { &["a", "b"] } else { &["a"] };
    let lease = fixture.attempt(all_of(keys, Mode::Exclusive));
    let token = take!(Some(token) => token, fixture.client.grant(&lease).await?.token, "the token");
    let high = token.get() + 1_000_000_000;
    fixture.client.renew_all(raise(&lease, high)?).await?;
    let raised = Some(FencingToken::new(high)?);
    ensure_eq!(fixture.client.confirm(&lease).await?.token, raised, "the raised token");
    let seen = fixture.observe().await?;
    for row in seen.held(&lease.id) {
        ensure_eq!(row.token, raised, "the token on {:?}", row.key);
        ensure!(seen.remembers(&row.key, high), "of the raise to {high}: {seen:?}");
    }
    fixture.client.released(&lease).await?;
    above(fixture, &fixture.exclusive("a"), raised).await?;
    PASSED
}

async fn c07_a_raise_never_lowers<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    let token = fixture.client.grant(&lease).await?.token;
    let before = fixture.observe().await?;
    fixture.client.renew_all(raise(&lease, 1)?).await?;
    fixture.unchanged(&before).await?;
    ensure_eq!(fixture.client.confirm(&lease).await?.token, token, "the token");
    PASSED
}

async fn c07_a_raise_of_a_lost_lease_does_nothing<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    let token = take!(Some(token) => token, fixture.client.grant(&lease).await?.token, "the token");
    fixture.client.released(&lease).await?;
    let before = fixture.observe().await?;
    let renewed = fixture.client.renew_all(raise(&lease, token.get() + 1_000_000_000)?).await?;
    ensure!(
        matches!(renewed[0], RenewOutcome::Lost(_)),
        "a released lease was renewed: {renewed:?}"
    );
    fixture.unchanged(&before).await?;
    PASSED
}

async fn c07_counters_are_forgotten_after_a_while<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job").with_term(fixture.ticks(1));
    let token = above(fixture, &lease, None).await?;
    fixture.client.released(&lease).await?;
    fixture.pass_for(FORGET_AFTER / 2).await;
    let purge = || EvictRequest::expired(Filter::default().with_keys(lease.keys()));
    let evicted = fixture.client.evict(purge()).await?;
    ensure_eq!(evicted.counters_forgotten, 0, "counters forgotten too early");
    remembered(fixture, token).await?;
    fixture.pass_for(FORGET_AFTER).await;
    let evicted = fixture.client.evict(purge()).await?;
    ensure_eq!(
        evicted.counters_forgotten == 1,
        fixture.reports.forgotten,
        "whether a forgotten counter is reported"
    );
    ensure_eq!(fixture.observe().await?.highest(&key("job")), 0, "the counter after that");
    above(fixture, &fixture.exclusive("job"), token).await?;
    PASSED
}

async fn c07_counters_of_live_leases_are_not_forgotten<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let long = fixture.exclusive("job").with_term(FORGET_AFTER * 10);
    let token = above(fixture, &long, None).await?;
    fixture.pass_for(FORGET_AFTER * 2).await;
    let evicted = fixture.client.evict(EvictRequest::expired(Filter::default())).await?;
    ensure_eq!(evicted.counters_forgotten, 0, "counters of live leases that were forgotten");
    ensure_eq!(fixture.client.confirm(&long).await?.token, token, "the token of the live lease");
    PASSED
}

async fn c07_counters_ahead_of_the_clock_are_not_forgotten<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive("job").with_term(fixture.ticks(1));
    let token = above(fixture, &lease, None).await?;
    fixture.client.released(&lease).await?;
    if !fixture.step_wall(WallStep::Back(FORGET_AFTER * 10)).await? {
        return Ok(no_wall_step());
    }
    fixture.pass_for(FORGET_AFTER * 2).await;
    let evicted = fixture.client.evict(EvictRequest::expired(Filter::default())).await?;
    ensure_eq!(evicted.counters_forgotten, 0, "counters ahead of the clock that were forgotten");
    above(fixture, &fixture.exclusive("job"), token).await?;
    PASSED
}
