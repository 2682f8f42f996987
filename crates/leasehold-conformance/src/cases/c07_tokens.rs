//! C7: tokens strictly grow per key in grant order, and the same grant keeps its token.

use leasehold_core::{Evict, FencingToken, Filter, LeaseRenewed, Mode, Renew};

use crate::attempt::{Attempt, all_of, key};
use crate::bench::Bench;
use crate::case::{Ended, PASSED, Verdict, cases, no_wall_step};
use crate::cases::FORGET_AFTER;
use crate::failure::{ensure, ensure_eq, take};
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
    c07_one_token_above_every_earlier_of_each_key [Tokens, ManyKeys],
    c07_other_keys_do_not_count [Tokens],
    c07_the_same_grant_keeps_its_token [Tokens],
    c07_a_raise_lifts_lease_and_counter [Tokens],
    c07_a_raise_never_lowers [Tokens],
    c07_a_raise_of_a_lost_lease_does_nothing [Tokens],
    c07_counters_are_forgotten_after_a_while [Tokens, Forgetting],
    c07_counters_of_live_leases_are_not_forgotten [Tokens, Forgetting],
    c07_counters_ahead_of_the_clock_are_not_forgotten [Tokens, Forgetting],
}

/// Takes the key anew, and checks that the token is above `last` and that the state remembers it.
async fn above<B: Backing>(
    bench: &Bench<B>,
    lease: &Attempt,
    last: Option<FencingToken>,
) -> Result<Option<FencingToken>> {
    let client = bench.another().await?;
    let granted = client.grant(lease).await?;
    let token = take!(Some(token) => token, granted.token, "the token of a grant");
    ensure!(Some(token) > last, "the token {token} is not above {last:?}");
    let seen = bench.observe().await?;
    for name in lease.claims.keys() {
        ensure_eq!(seen.counter(name), token.get(), "the counter of {name:?}");
    }
    Ok(Some(token))
}

async fn c07_tokens_grow_through_release<B: Backing>(bench: &Bench<B>) -> Verdict {
    let mut last = None;
    for _ in 0..10 {
        let lease = bench.exclusive("job");
        last = above(bench, &lease, last).await?;
        bench.client.released(&lease).await?;
        let counter = bench.observe().await?.counter(&key("job"));
        ensure_eq!(Some(counter), last.map(FencingToken::get), "the counter after the release");
    }
    PASSED
}

async fn c07_tokens_grow_through_expiry<B: Backing>(bench: &Bench<B>) -> Verdict {
    let mut last = None;
    for _ in 0..4 {
        last = above(bench, &bench.exclusive("job"), last).await?;
        bench.pass(10).await;
    }
    PASSED
}

async fn c07_tokens_grow_through_purge<B: Backing>(bench: &Bench<B>) -> Verdict {
    let mut last = None;
    for _ in 0..3 {
        last = above(bench, &bench.exclusive("job"), last).await?;
        bench.pass(10).await;
        bench.client.evict(Evict::expired(Filter::default())).await?;
        let counter = bench.observe().await?.counter(&key("job"));
        ensure_eq!(Some(counter), last.map(FencingToken::get), "the counter after the purge");
        // A clock that stands further back than the purged lease must not be what is left to go by.
        bench.step_wall(WallStep::Back(bench.ticks(100))).await?;
    }
    PASSED
}

async fn c07_tokens_grow_through_eviction<B: Backing>(bench: &Bench<B>) -> Verdict {
    let mut last = None;
    for _ in 0..4 {
        let lease = bench.exclusive("job");
        last = above(bench, &lease, last).await?;
        bench.client.evict_these(lease.targets(), Some("broken")).await?;
        let counter = bench.observe().await?.counter(&key("job"));
        ensure_eq!(Some(counter), last.map(FencingToken::get), "the counter after the eviction");
        bench.step_wall(WallStep::Back(bench.ticks(100))).await?;
    }
    PASSED
}

async fn c07_tokens_grow_through_keep<B: Backing>(bench: &Bench<B>) -> Verdict {
    let mut last = None;
    for _ in 0..3 {
        let lease = bench.exclusive("job");
        last = above(bench, &lease, last).await?;
        bench.client.keep(&lease, bench.ticks(3)).await?;
        bench.pass(3).await;
    }
    PASSED
}

async fn c07_tokens_grow_through_restart<B: Backing>(bench: &Bench<B>) -> Verdict {
    let (lease, released) = (bench.exclusive("held"), bench.exclusive("free"));
    let held = above(bench, &lease, None).await?;
    let last = above(bench, &released, None).await?;
    bench.client.released(&released).await?;
    let before = bench.observe().await?;
    match bench.restart().await? {
        Restarted::CannotHere(why) => return Ok(Ended::CannotHere(why)),
        Restarted::NotTried => {
            return Ok(Ended::Ignored("nothing was done to restart the store".to_owned()));
        }
        Restarted::Forgot => {
            let seen = bench.observe().await?;
            ensure!(
                seen.rows.is_empty() && seen.counters.is_empty(),
                "a store that keeps nothing was opened with {seen:?}"
            );
            return Ok(Ended::NotApplicable(format!(
                "{} keeps nothing, and was seen to begin empty",
                bench.can.name
            )));
        }
        Restarted::Persisted => {}
    }
    bench.unchanged(&before).await?;
    let client = bench.another().await?;
    ensure_eq!(client.confirm(&lease).await?.token, held, "the token of the lease still held");
    bench.step_wall(WallStep::Back(bench.ticks(100))).await?;
    above(bench, &bench.exclusive("free"), last).await?;
    PASSED
}

async fn c07_tokens_grow_though_the_wall_clock_steps_back<B: Backing>(bench: &Bench<B>) -> Verdict {
    let mut last = None;
    for step in [
        WallStep::Forward(bench.ticks(3_600)),
        WallStep::Back(bench.ticks(7_200)),
        WallStep::Back(bench.ticks(1)),
        WallStep::Forward(bench.ticks(3_600)),
    ] {
        let lease = bench.exclusive("job");
        last = above(bench, &lease, last).await?;
        bench.client.released(&lease).await?;
        if !bench.step_wall(step).await? {
            return Ok(no_wall_step());
        }
    }
    above(bench, &bench.exclusive("job"), last).await?;
    PASSED
}

/// So that a store that lost its memory still goes on above what it gave before.
async fn c07_tokens_are_no_less_than_the_wall_clock<B: Backing>(bench: &Bench<B>) -> Verdict {
    let Some(before) = bench.wall_micros() else {
        let why = "the wall clock of this store is the machine's, which goes on meanwhile";
        return Ok(Ended::CannotHere(why.to_owned()));
    };
    let lease = bench.exclusive("job");
    let first = above(bench, &lease, None).await?;
    ensure_eq!(first.map(FencingToken::get), Some(before), "the first token of a key");
    bench.client.released(&lease).await?;
    let lease = bench.exclusive("job");
    let second = above(bench, &lease, first).await?;
    ensure_eq!(second.map(FencingToken::get), Some(before + 1), "a token of the same instant");
    bench.client.released(&lease).await?;
    bench.pass(3).await;
    let third = above(bench, &bench.exclusive("job"), second).await?;
    ensure_eq!(third.map(FencingToken::get), bench.wall_micros(), "a token of a later instant");
    PASSED
}

async fn c07_shared_grants_have_tokens_of_their_own<B: Backing>(bench: &Bench<B>) -> Verdict {
    let readers: Vec<_> = (0..5).map(|_| bench.shared("job")).collect();
    let mut tokens = Vec::new();
    for reader in &readers {
        tokens.push(above(bench, reader, tokens.last().copied().flatten()).await?);
    }
    for (reader, token) in readers.iter().zip(&tokens) {
        ensure_eq!(bench.client.confirm(reader).await?.token, *token, "a reader's own token");
        bench.client.released(reader).await?;
    }
    above(bench, &bench.exclusive("job"), tokens.last().copied().flatten()).await?;
    PASSED
}

async fn c07_one_token_above_every_earlier_of_each_key<B: Backing>(bench: &Bench<B>) -> Verdict {
    let mut highest = None;
    for (name, grants) in [("a", 1), ("b", 20), ("c", 3)] {
        for _ in 0..grants {
            let lease = bench.exclusive(name);
            let granted = bench.client.grant(&lease).await?;
            highest = highest.max(granted.token);
            bench.client.released(&lease).await?;
        }
    }
    let wide = bench.exclusive_all(&["a", "b", "c", "d"]);
    let token = above(bench, &wide, highest).await?;
    for row in bench.observe().await?.held(&wide.id) {
        ensure_eq!(row.token, token, "the one token on {:?}", row.key);
    }
    bench.client.released(&wide).await?;
    for name in ["a", "d"] {
        above(bench, &bench.exclusive(name), token).await?;
    }
    PASSED
}

async fn c07_other_keys_do_not_count<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let before = bench.observe().await?.counter(&key("job"));
    for _ in 0..5 {
        let other = bench.exclusive("other");
        bench.client.grant(&other).await?;
        bench.client.released(&other).await?;
    }
    let after = bench.observe().await?.counter(&key("job"));
    ensure_eq!(after, before, "the counter of a key that was not granted meanwhile");
    PASSED
}

async fn c07_the_same_grant_keeps_its_token<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    let token = above(bench, &lease, None).await?;
    for _ in 0..3 {
        bench.pass(4).await;
        bench.client.held(&lease, lease.term).await?;
        bench.client.refuse(&bench.exclusive("job")).await?;
        ensure_eq!(bench.client.confirm(&lease).await?.token, token, "the token");
        ensure_eq!(bench.client.only(lease.filter()).await?.token, token, "the token as listed");
    }
    PASSED
}

/// Renews with a raise.
fn raise(lease: &Attempt, to: u64) -> Result<Renew> {
    let token = FencingToken::new(to)?;
    Ok(Renew::new(vec![lease.renewal(lease.term).with_token_raised_to(token)]))
}

async fn c07_a_raise_lifts_lease_and_counter<B: Backing>(bench: &Bench<B>) -> Verdict {
    let keys: &[_] = if bench.can.many_keys { &["a", "b"] } else { &["a"] };
    let lease = bench.attempt(all_of(keys, Mode::Exclusive));
    let token = take!(Some(token) => token, bench.client.grant(&lease).await?.token, "the token");
    let high = token.get() + 1_000_000_000;
    bench.client.renew_all(raise(&lease, high)?).await?;
    let raised = Some(FencingToken::new(high)?);
    ensure_eq!(bench.client.confirm(&lease).await?.token, raised, "the raised token");
    let seen = bench.observe().await?;
    for row in seen.held(&lease.id) {
        ensure_eq!(row.token, raised, "the token on {:?}", row.key);
        ensure_eq!(seen.counter(&row.key), high, "the counter of {:?}", row.key);
    }
    bench.client.released(&lease).await?;
    above(bench, &bench.exclusive("a"), raised).await?;
    PASSED
}

async fn c07_a_raise_never_lowers<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    let token = bench.client.grant(&lease).await?.token;
    let before = bench.observe().await?;
    bench.client.renew_all(raise(&lease, 1)?).await?;
    bench.unchanged(&before).await?;
    ensure_eq!(bench.client.confirm(&lease).await?.token, token, "the token");
    PASSED
}

async fn c07_a_raise_of_a_lost_lease_does_nothing<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    let token = take!(Some(token) => token, bench.client.grant(&lease).await?.token, "the token");
    bench.client.released(&lease).await?;
    let before = bench.observe().await?;
    let renewed = bench.client.renew_all(raise(&lease, token.get() + 1_000_000_000)?).await?;
    ensure!(
        matches!(renewed[0], LeaseRenewed::Lost(_)),
        "a released lease was renewed: {renewed:?}"
    );
    bench.unchanged(&before).await?;
    PASSED
}

async fn c07_counters_are_forgotten_after_a_while<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job").with_term(bench.ticks(1));
    let token = above(bench, &lease, None).await?;
    bench.client.released(&lease).await?;
    bench.pass_for(FORGET_AFTER / 2).await;
    let purge = || Evict::expired(Filter::default().with_keys(lease.keys()));
    let evicted = bench.client.evict(purge()).await?;
    ensure_eq!(evicted.forgotten, 0, "counters forgotten too early");
    let counter = bench.observe().await?.counter(&key("job"));
    ensure_eq!(Some(counter), token.map(FencingToken::get), "the counter kept so far");
    bench.pass_for(FORGET_AFTER).await;
    let evicted = bench.client.evict(purge()).await?;
    ensure_eq!(
        evicted.forgotten == 1,
        bench.tells.forgotten,
        "whether a forgotten counter is told"
    );
    ensure_eq!(bench.observe().await?.counter(&key("job")), 0, "the counter after that");
    above(bench, &bench.exclusive("job"), token).await?;
    PASSED
}

async fn c07_counters_of_live_leases_are_not_forgotten<B: Backing>(bench: &Bench<B>) -> Verdict {
    let long = bench.exclusive("job").with_term(FORGET_AFTER * 10);
    let token = above(bench, &long, None).await?;
    bench.pass_for(FORGET_AFTER * 2).await;
    let evicted = bench.client.evict(Evict::expired(Filter::default())).await?;
    ensure_eq!(evicted.forgotten, 0, "counters of live leases that were forgotten");
    ensure_eq!(bench.client.confirm(&long).await?.token, token, "the token of the live lease");
    PASSED
}

async fn c07_counters_ahead_of_the_clock_are_not_forgotten<B: Backing>(
    bench: &Bench<B>,
) -> Verdict {
    let lease = bench.exclusive("job").with_term(bench.ticks(1));
    let token = above(bench, &lease, None).await?;
    bench.client.released(&lease).await?;
    if !bench.step_wall(WallStep::Back(FORGET_AFTER * 10)).await? {
        return Ok(no_wall_step());
    }
    bench.pass_for(FORGET_AFTER * 2).await;
    let evicted = bench.client.evict(Evict::expired(Filter::default())).await?;
    ensure_eq!(evicted.forgotten, 0, "counters ahead of the clock that were forgotten");
    above(bench, &bench.exclusive("job"), token).await?;
    PASSED
}
