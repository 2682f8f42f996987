//! C2: all claims or none; a refusal changes no live lease and mints no token.

use futures_util::future::try_join_all;
use leasehold_core::{AcquireReply, FencingToken, Mode};

use crate::Backing;
use crate::attempt::{all_of, at_most, claims, key};
use crate::case::{CaseResult, PASSED, cases};
use crate::failure::{ensure, ensure_eq};
use crate::fixture::Fixture;

cases! {
    c02_exclusive_excludes_exclusive,
    c02_other_keys_are_free,
    c02_job_and_job_x_coexist [AnyKey],
    c02_all_keys_are_granted_together [ManyKeys],
    c02_one_held_key_refuses_all [ManyKeys],
    c02_each_key_has_its_own_mode [ManyKeys, Shared],
    c02_overlapping_sets_exclude_each_other [ManyKeys],
    c02_a_limit_reached_on_one_key_refuses_all [ManyKeys, SharedLimit],
    c02_many_keys_are_granted_together [ManyKeys],
    c02_crossing_sets_never_wait_for_each_other [ManyKeys],
    c02_refusal_changes_no_lease,
    c02_refusal_mints_no_token [Tokens],
    c02_refusal_of_many_keys_mints_no_token [Tokens, ManyKeys],
}

async fn c02_exclusive_excludes_exclusive<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let (first, second) = (fixture.exclusive("job"), fixture.exclusive("job"));
    fixture.client.grant(&first).await?;
    fixture.another().await?.refuse(&second).await?;
    fixture.holds("job", &[&first]).await?;
    fixture.client.released(&first).await?;
    fixture.holds("job", &[]).await?;
    fixture.client.grant(&second).await?;
    fixture.holds("job", &[&second]).await?;
    PASSED
}

async fn c02_other_keys_are_free<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let leases: Vec<_> = (0..20).map(|n| fixture.exclusive(&format!("job:{n}"))).collect();
    for lease in &leases {
        fixture.client.grant(lease).await?;
    }
    fixture.client.released(&leases[7]).await?;
    for (n, lease) in leases.iter().enumerate() {
        let held: &[_] = if n == 7 { &[] } else { &[lease] };
        fixture.holds(lease.key().as_str(), held).await?;
    }
    PASSED
}

/// Names that a store might join with others into a row key must not collide.
async fn c02_job_and_job_x_coexist<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let names = ["job", "job_", "job_x", "job:x", "job/x", "job.x", "x", "_x"];
    let leases: Vec<_> = names.iter().map(|name| fixture.exclusive(name)).collect();
    for lease in &leases {
        fixture.client.grant(lease).await?;
    }
    fixture.client.released(&leases[0]).await?;
    fixture.holds("job", &[]).await?;
    for lease in &leases[1..] {
        fixture.client.held(lease, lease.term).await?;
        fixture.holds(lease.key().as_str(), &[lease]).await?;
    }
    PASSED
}

async fn c02_all_keys_are_granted_together<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive_all(&["c", "a", "b"]);
    let granted = fixture.client.grant(&lease).await?;
    let seen = fixture.observe().await?;
    ensure_eq!(seen.held(&lease.id).count(), 3, "the rows of a lease of three keys in {seen:?}");
    for row in seen.held(&lease.id) {
        ensure_eq!(row.token, granted.token, "the token on {:?}", row.key);
    }
    for name in ["a", "b", "c"] {
        fixture.client.refuse(&fixture.exclusive(name)).await?;
    }
    fixture.client.released(&lease).await?;
    ensure_eq!(fixture.observe().await?.held(&lease.id).count(), 0, "the rows after the release");
    PASSED
}

async fn c02_one_held_key_refuses_all<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for held in ["a", "b", "c"] {
        let holder = fixture.exclusive(held);
        fixture.client.grant(&holder).await?;
        let before = fixture.observe().await?;
        let refused = fixture.client.refuse(&fixture.exclusive_all(&["a", "b", "c"])).await?;
        ensure_eq!(refused.key, key(held), "the key that refused");
        fixture.unchanged(&before).await?;
        fixture.client.released(&holder).await?;
    }
    fixture.client.grant(&fixture.exclusive_all(&["a", "b", "c"])).await?;
    PASSED
}

async fn c02_each_key_has_its_own_mode<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let mixed = fixture.attempt(claims(&[("w", Mode::Exclusive), ("r", Mode::SHARED)]));
    fixture.client.grant(&mixed).await?;
    let reader = fixture.shared("r");
    fixture.client.grant(&reader).await?;
    fixture.client.refuse(&fixture.exclusive("r")).await?;
    fixture.client.refuse(&fixture.shared("w")).await?;
    fixture.client.refuse(&fixture.exclusive("w")).await?;
    fixture.holds("r", &[&mixed, &reader]).await?;
    fixture.holds("w", &[&mixed]).await?;
    PASSED
}

async fn c02_overlapping_sets_exclude_each_other<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let (left, right) = (fixture.exclusive_all(&["a", "b"]), fixture.exclusive_all(&["b", "c"]));
    let beside = fixture.exclusive_all(&["c", "d"]);
    fixture.client.grant(&left).await?;
    fixture.client.refuse(&right).await?;
    fixture.client.grant(&beside).await?;
    fixture.client.released(&left).await?;
    fixture.client.refuse(&right).await?;
    fixture.client.released(&beside).await?;
    fixture.client.grant(&right).await?;
    fixture.holds("a", &[]).await?;
    fixture.holds("b", &[&right]).await?;
    fixture.holds("c", &[&right]).await?;
    PASSED
}

async fn c02_a_limit_reached_on_one_key_refuses_all<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let both = all_of(&["a", "b"], at_most(2));
    let first = fixture.attempt(both.clone());
    fixture.client.grant(&first).await?;
    fixture.client.grant(&fixture.one("b", at_most(2))).await?;
    let before = fixture.observe().await?;
    let refused = fixture.client.refuse(&fixture.attempt(both)).await?;
    ensure_eq!(refused.key, key("b"), "the key that refused");
    fixture.unchanged(&before).await?;
    fixture.client.grant(&fixture.one("a", at_most(2))).await?;
    PASSED
}

async fn c02_many_keys_are_granted_together<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let count = fixture.can.max_claims.unwrap_or(usize::MAX).min(64);
    let names: Vec<_> = (0..count).map(|n| format!("job:{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let lease = fixture.exclusive_all(&names);
    fixture.client.grant(&lease).await?;
    ensure_eq!(fixture.observe().await?.held(&lease.id).count(), count, "the rows of the lease");
    fixture.client.held(&lease, lease.term).await?;
    fixture.client.released(&lease).await?;
    ensure_eq!(fixture.observe().await?.held(&lease.id).count(), 0, "the rows after the release");
    PASSED
}

async fn c02_crossing_sets_never_wait_for_each_other<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let sets = [["a", "b"], ["b", "c"], ["c", "a"]];
    for _ in 0..10 {
        let mut clients = Vec::new();
        for set in sets {
            clients.push((fixture.another().await?, fixture.exclusive_all(&set)));
        }
        let answers = clients.iter().map(|(client, lease)| client.acquire(lease));
        let answers = try_join_all(answers).await?;
        let winners: Vec<_> = clients
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| matches!(answer, AcquireReply::Granted(_)))
            .collect();
        ensure!(winners.len() <= 1, "crossing sets were all granted: {answers:?}");
        for ((client, lease), _) in winners {
            client.released(lease).await?;
        }
        ensure_eq!(fixture.observe().await?.essence().0.len(), 0, "what losers left behind");
    }
    PASSED
}

async fn c02_refusal_changes_no_lease<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let holder = fixture.exclusive("job").with_group("first");
    fixture.client.grant(&holder).await?;
    fixture.pass(3).await;
    let before = fixture.observe().await?;
    let intruder = fixture.exclusive("job").with_group("second").with_term(fixture.ticks(40));
    fixture.client.refuse(&intruder).await?;
    fixture.client.refuse(&intruder).await?;
    fixture.unchanged(&before).await?;
    let record = fixture.client.only(holder.filter()).await?;
    fixture.remains(record.remaining(), 7, "the holder's term after refusals")?;
    fixture.pass(7).await;
    fixture.client.grant(&intruder).await?;
    PASSED
}

async fn c02_refusal_mints_no_token<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let holder = fixture.exclusive("job");
    let first = fixture.client.grant(&holder).await?;
    let before = fixture.observe().await?;
    let token = first.token.map_or(0, FencingToken::get);
    ensure!(before.remembers(&key("job"), token), "of the token {token}: {before:?}");
    for _ in 0..5 {
        fixture.client.refuse(&fixture.exclusive("job")).await?;
    }
    fixture.unchanged(&before).await?;
    PASSED
}

async fn c02_refusal_of_many_keys_mints_no_token<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let earlier = fixture.exclusive("a");
    fixture.client.grant(&earlier).await?;
    fixture.client.released(&earlier).await?;
    fixture.client.grant(&fixture.exclusive("b")).await?;
    let before = fixture.observe().await?;
    fixture.client.refuse(&fixture.exclusive_all(&["a", "b", "c"])).await?;
    fixture.unchanged(&before).await?;
    PASSED
}
