//! C2: all claims or none; a refusal changes no live lease and no counter.

use futures_util::future::try_join_all;
use leasehold_core::{Acquired, FencingToken, Mode};

use crate::Backing;
use crate::attempt::{all_of, at_most, claims, key};
use crate::bench::Bench;
use crate::case::{PASSED, Verdict, cases};
use crate::failure::{ensure, ensure_eq};

cases! {
    c02_exclusive_excludes_exclusive,
    c02_other_keys_are_free,
    c02_job_and_job_x_coexist,
    c02_all_keys_are_granted_together [ManyKeys],
    c02_one_held_key_refuses_all [ManyKeys],
    c02_each_key_has_its_own_mode [ManyKeys, Shared],
    c02_overlapping_sets_exclude_each_other [ManyKeys],
    c02_a_limit_reached_on_one_key_refuses_all [ManyKeys, SharedLimit],
    c02_many_keys_are_granted_together [ManyKeys],
    c02_crossing_sets_never_wait_for_each_other [ManyKeys],
    c02_refusal_changes_no_lease,
    c02_refusal_changes_no_counter [Tokens],
    c02_refusal_of_many_keys_changes_no_counter [Tokens, ManyKeys],
}

async fn c02_exclusive_excludes_exclusive<B: Backing>(bench: &Bench<B>) -> Verdict {
    let (first, second) = (bench.exclusive("job"), bench.exclusive("job"));
    bench.client.grant(&first).await?;
    bench.another().await?.refuse(&second).await?;
    bench.holds("job", &[&first]).await?;
    bench.client.released(&first).await?;
    bench.holds("job", &[]).await?;
    bench.client.grant(&second).await?;
    bench.holds("job", &[&second]).await?;
    PASSED
}

async fn c02_other_keys_are_free<B: Backing>(bench: &Bench<B>) -> Verdict {
    let leases: Vec<_> = (0..20).map(|n| bench.exclusive(&format!("job:{n}"))).collect();
    for lease in &leases {
        bench.client.grant(lease).await?;
    }
    bench.client.released(&leases[7]).await?;
    for (n, lease) in leases.iter().enumerate() {
        let held: &[_] = if n == 7 { &[] } else { &[lease] };
        bench.holds(lease.key().as_str(), held).await?;
    }
    PASSED
}

/// Names that a store might join to a row of its own must not collide.
async fn c02_job_and_job_x_coexist<B: Backing>(bench: &Bench<B>) -> Verdict {
    let names = ["job", "job_", "job_x", "job:x", "job/x", "job.x", "x", "_x"];
    let leases: Vec<_> = names.iter().map(|name| bench.exclusive(name)).collect();
    for lease in &leases {
        bench.client.grant(lease).await?;
    }
    bench.client.released(&leases[0]).await?;
    bench.holds("job", &[]).await?;
    for lease in &leases[1..] {
        bench.client.held(lease, lease.term).await?;
        bench.holds(lease.key().as_str(), &[lease]).await?;
    }
    PASSED
}

async fn c02_all_keys_are_granted_together<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive_all(&["c", "a", "b"]);
    let granted = bench.client.grant(&lease).await?;
    let seen = bench.observe().await?;
    ensure_eq!(seen.held(&lease.id).count(), 3, "the rows of a lease of three keys in {seen:?}");
    for row in seen.held(&lease.id) {
        ensure_eq!(row.token, granted.token, "the token on {:?}", row.key);
    }
    for name in ["a", "b", "c"] {
        bench.client.refuse(&bench.exclusive(name)).await?;
    }
    bench.client.released(&lease).await?;
    ensure_eq!(bench.observe().await?.held(&lease.id).count(), 0, "the rows after the release");
    PASSED
}

async fn c02_one_held_key_refuses_all<B: Backing>(bench: &Bench<B>) -> Verdict {
    for held in ["a", "b", "c"] {
        let holder = bench.exclusive(held);
        bench.client.grant(&holder).await?;
        let before = bench.observe().await?;
        let refused = bench.client.refuse(&bench.exclusive_all(&["a", "b", "c"])).await?;
        ensure_eq!(refused.key, key(held), "the key that refused");
        bench.unchanged(&before).await?;
        bench.client.released(&holder).await?;
    }
    bench.client.grant(&bench.exclusive_all(&["a", "b", "c"])).await?;
    PASSED
}

async fn c02_each_key_has_its_own_mode<B: Backing>(bench: &Bench<B>) -> Verdict {
    let mixed = bench.attempt(claims(&[("w", Mode::Exclusive), ("r", Mode::SHARED)]));
    bench.client.grant(&mixed).await?;
    let reader = bench.shared("r");
    bench.client.grant(&reader).await?;
    bench.client.refuse(&bench.exclusive("r")).await?;
    bench.client.refuse(&bench.shared("w")).await?;
    bench.client.refuse(&bench.exclusive("w")).await?;
    bench.holds("r", &[&mixed, &reader]).await?;
    bench.holds("w", &[&mixed]).await?;
    PASSED
}

async fn c02_overlapping_sets_exclude_each_other<B: Backing>(bench: &Bench<B>) -> Verdict {
    let (left, right) = (bench.exclusive_all(&["a", "b"]), bench.exclusive_all(&["b", "c"]));
    let beside = bench.exclusive_all(&["c", "d"]);
    bench.client.grant(&left).await?;
    bench.client.refuse(&right).await?;
    bench.client.grant(&beside).await?;
    bench.client.released(&left).await?;
    bench.client.refuse(&right).await?;
    bench.client.released(&beside).await?;
    bench.client.grant(&right).await?;
    bench.holds("a", &[]).await?;
    bench.holds("b", &[&right]).await?;
    bench.holds("c", &[&right]).await?;
    PASSED
}

async fn c02_a_limit_reached_on_one_key_refuses_all<B: Backing>(bench: &Bench<B>) -> Verdict {
    let both = all_of(&["a", "b"], at_most(2));
    let first = bench.attempt(both.clone());
    bench.client.grant(&first).await?;
    bench.client.grant(&bench.one("b", at_most(2))).await?;
    let before = bench.observe().await?;
    let refused = bench.client.refuse(&bench.attempt(both)).await?;
    ensure_eq!(refused.key, key("b"), "the key that refused");
    bench.unchanged(&before).await?;
    bench.client.grant(&bench.one("a", at_most(2))).await?;
    PASSED
}

async fn c02_many_keys_are_granted_together<B: Backing>(bench: &Bench<B>) -> Verdict {
    let count = bench.can.max_claims.unwrap_or(usize::MAX).min(64);
    let names: Vec<_> = (0..count).map(|n| format!("job:{n}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let lease = bench.exclusive_all(&names);
    bench.client.grant(&lease).await?;
    ensure_eq!(bench.observe().await?.held(&lease.id).count(), count, "the rows of the lease");
    bench.client.held(&lease, lease.term).await?;
    bench.client.released(&lease).await?;
    ensure_eq!(bench.observe().await?.held(&lease.id).count(), 0, "the rows after the release");
    PASSED
}

async fn c02_crossing_sets_never_wait_for_each_other<B: Backing>(bench: &Bench<B>) -> Verdict {
    let sets = [["a", "b"], ["b", "c"], ["c", "a"]];
    for _ in 0..10 {
        let mut clients = Vec::new();
        for set in sets {
            clients.push((bench.another().await?, bench.exclusive_all(&set)));
        }
        let answers = clients.iter().map(|(client, lease)| client.acquire(lease));
        let answers = try_join_all(answers).await?;
        let winners: Vec<_> = clients
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| matches!(answer, Acquired::Granted(_)))
            .collect();
        ensure!(winners.len() <= 1, "crossing sets were all granted: {answers:?}");
        for ((client, lease), _) in winners {
            client.released(lease).await?;
        }
        ensure_eq!(bench.observe().await?.essence().0.len(), 0, "what losers left behind");
    }
    PASSED
}

async fn c02_refusal_changes_no_lease<B: Backing>(bench: &Bench<B>) -> Verdict {
    let holder = bench.exclusive("job").with_owner("first");
    bench.client.grant(&holder).await?;
    bench.pass(3).await;
    let before = bench.observe().await?;
    let intruder = bench.exclusive("job").with_owner("second").with_term(bench.ticks(40));
    bench.client.refuse(&intruder).await?;
    bench.client.refuse(&intruder).await?;
    bench.unchanged(&before).await?;
    let record = bench.client.only(holder.filter()).await?;
    bench.remains(record.remaining(), 7, "the holder's term after refusals")?;
    bench.pass(7).await;
    bench.client.grant(&intruder).await?;
    PASSED
}

async fn c02_refusal_changes_no_counter<B: Backing>(bench: &Bench<B>) -> Verdict {
    let holder = bench.exclusive("job");
    let first = bench.client.grant(&holder).await?;
    let before = bench.observe().await?;
    ensure_eq!(
        Some(before.counter(&key("job"))),
        first.token.map(FencingToken::get),
        "the counter after a grant"
    );
    for _ in 0..5 {
        bench.client.refuse(&bench.exclusive("job")).await?;
    }
    bench.unchanged(&before).await?;
    PASSED
}

async fn c02_refusal_of_many_keys_changes_no_counter<B: Backing>(bench: &Bench<B>) -> Verdict {
    let earlier = bench.exclusive("a");
    bench.client.grant(&earlier).await?;
    bench.client.released(&earlier).await?;
    bench.client.grant(&bench.exclusive("b")).await?;
    let before = bench.observe().await?;
    bench.client.refuse(&bench.exclusive_all(&["a", "b", "c"])).await?;
    bench.unchanged(&before).await?;
    ensure_eq!(before.counter(&key("c")), 0, "the counter of a key that was never granted");
    PASSED
}
