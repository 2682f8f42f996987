//! C6: an ended lease is never revived; renewal never shortens; at exactly its term a lease is over.

use leasehold_core::{
    LeaseReleased, LeaseRenewed, LostReason, MAX_ENTRIES, Mode, Remaining, Renew, Ttl,
};

use crate::Backing;
use crate::attempt::{Attempt, all_of};
use crate::bench::Bench;
use crate::case::{PASSED, Verdict, cases, invalid_input};
use crate::failure::{ensure, ensure_eq, take};

cases! {
    c06_just_before_its_term_it_lives,
    c06_at_exactly_its_term_it_is_over,
    c06_an_expired_lease_is_not_revived_though_nobody_took_it,
    c06_a_released_lease_is_not_revived,
    c06_an_evicted_lease_is_not_revived,
    c06_a_kept_lease_is_not_revived [Keep],
    c06_an_unknown_lease_is_lost,
    c06_renewal_extends,
    c06_renewal_extends_every_key [ManyKeys],
    c06_renewal_never_shortens,
    c06_renewal_keeps_token_and_holder,
    c06_renewal_to_never [Never],
    c06_never_is_not_shortened [Never],
    c06_each_lease_of_a_renewal_has_its_own_fate,
    c06_renewal_in_another_mode_fails_alone [Shared],
    c06_a_thousand_leases_are_renewed_at_once,
}

async fn c06_just_before_its_term_it_lives<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.pass_almost(10).await;
    bench.holds("job", &[&lease]).await?;
    bench.client.refuse(&bench.exclusive("job")).await?;
    bench.client.held(&lease, lease.term).await?;
    PASSED
}

async fn c06_at_exactly_its_term_it_is_over<B: Backing>(bench: &Bench<B>) -> Verdict {
    let (renewed, released) = (bench.exclusive("a"), bench.exclusive("b"));
    let (listed, followed) = (bench.exclusive("c"), bench.exclusive("d"));
    for lease in [&renewed, &released, &listed, &followed] {
        bench.client.grant(lease).await?;
    }
    bench.pass(10).await;
    bench.client.lost(&renewed).await?;
    let ended = bench.client.release(&released).await?;
    ensure!(
        !matches!(ended, LeaseReleased::Released),
        "a lease was still held at exactly its term"
    );
    let records = bench.client.list(listed.filter()).await?;
    ensure!(records.is_empty(), "a lease was listed as live at exactly its term: {records:?}");
    bench.client.grant(&bench.exclusive("d")).await?;
    PASSED
}

async fn c06_an_expired_lease_is_not_revived_though_nobody_took_it<B: Backing>(
    bench: &Bench<B>,
) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.pass(12).await;
    let reason = bench.client.lost(&lease).await?;
    if bench.can.tells_expired {
        ensure_eq!(reason, Some(LostReason::Expired), "why it was lost");
    }
    bench.holds("job", &[]).await?;
    bench.client.lost(&lease).await?;
    bench.client.grant(&bench.exclusive("job")).await?;
    bench.client.lost(&lease).await?;
    PASSED
}

async fn c06_a_released_lease_is_not_revived<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.released(&lease).await?;
    bench.client.lost(&lease).await?;
    bench.holds("job", &[]).await?;
    PASSED
}

async fn c06_an_evicted_lease_is_not_revived<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.evict_these(lease.targets(), None).await?;
    bench.client.lost(&lease).await?;
    bench.client.lost(&lease).await?;
    bench.holds("job", &[]).await?;
    PASSED
}

async fn c06_a_kept_lease_is_not_revived<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.keep(&lease, bench.ticks(5)).await?;
    bench.client.lost(&lease).await?;
    bench.pass(5).await;
    bench.holds("job", &[]).await?;
    PASSED
}

async fn c06_an_unknown_lease_is_lost<B: Backing>(bench: &Bench<B>) -> Verdict {
    let before = bench.observe().await?;
    bench.client.lost(&bench.exclusive("job")).await?;
    bench.unchanged(&before).await?;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}

async fn c06_renewal_extends<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    for _ in 0..4 {
        bench.pass(6).await;
        bench.remains(bench.client.held(&lease, lease.term).await?, 10, "the renewed term")?;
    }
    bench.client.refuse(&bench.exclusive("job")).await?;
    bench.remains(bench.client.held(&lease, bench.ttl(25)).await?, 25, "a longer term")?;
    bench.pass(25).await;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}

async fn c06_renewal_extends_every_key<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive_all(&["a", "b", "c"]);
    bench.client.grant(&lease).await?;
    bench.pass(6).await;
    bench.client.held(&lease, lease.term).await?;
    bench.pass(6).await;
    for name in ["a", "b", "c"] {
        bench.holds(name, &[&lease]).await?;
    }
    bench.pass(4).await;
    ensure_eq!(bench.observe().await?.held(&lease.id).count(), 0, "the rows after the term");
    PASSED
}

async fn c06_renewal_never_shortens<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.pass(2).await;
    bench.remains(bench.client.held(&lease, bench.ttl(1)).await?, 8, "what remains")?;
    let record = bench.client.only(lease.filter()).await?;
    bench.remains(record.remaining(), 8, "what remains as listed")?;
    bench.pass(5).await;
    bench.holds("job", &[&lease]).await?;
    PASSED
}

async fn c06_renewal_keeps_token_and_holder<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job").with_owner("worker");
    let granted = bench.client.grant(&lease).await?;
    let before = bench.observe().await?;
    bench.pass(4).await;
    bench.client.held(&lease, lease.term).await?;
    bench.unchanged(&before).await?;
    ensure_eq!(bench.client.confirm(&lease).await?.token, granted.token, "the token");
    PASSED
}

async fn c06_renewal_to_never<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let remaining = bench.client.held(&lease, Ttl::NEVER).await?;
    ensure_eq!(remaining, Remaining::Never, "what remains");
    bench.pass(15).await;
    bench.holds("job", &[&lease]).await?;
    let record = bench.client.only(lease.filter()).await?;
    ensure_eq!(record.remaining(), Remaining::Never, "what remains as listed");
    bench.client.released(&lease).await?;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}

async fn c06_never_is_not_shortened<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.held(&lease, Ttl::NEVER).await?;
    let remaining = bench.client.held(&lease, bench.ttl(2)).await?;
    ensure_eq!(remaining, Remaining::Never, "what remains after a renewal with an end");
    bench.pass(11).await;
    bench.holds("job", &[&lease]).await?;
    PASSED
}

async fn c06_each_lease_of_a_renewal_has_its_own_fate<B: Backing>(bench: &Bench<B>) -> Verdict {
    let short = bench.exclusive("short").with_term(bench.ticks(2));
    let (live, long) = (bench.exclusive("live"), bench.exclusive("long"));
    for lease in [&short, &live, &long] {
        bench.client.grant(lease).await?;
    }
    bench.pass(3).await;
    let unknown = bench.exclusive("unknown");
    let request = Renew::new(vec![
        long.renewal(bench.ttl(20)),
        short.renewal(short.term),
        unknown.renewal(unknown.term),
        live.renewal(bench.ttl(1)),
    ]);
    let renewed = bench.client.renew_all(request).await?;
    let held = |at: usize| match &renewed[at] {
        LeaseRenewed::Held(remaining) => Some(*remaining),
        LeaseRenewed::Lost(_) | LeaseRenewed::Failed(_) => None,
    };
    ensure!(held(1).is_none() && held(2).is_none(), "ended leases were renewed: {renewed:?}");
    let long_rest = take!(Some(rest) => rest, held(0), "the first of {renewed:?}");
    bench.remains(long_rest, 20, "the first")?;
    let live_rest = take!(Some(rest) => rest, held(3), "the last of {renewed:?}");
    bench.remains(live_rest, 7, "the last")?;
    PASSED
}

async fn c06_renewal_in_another_mode_fails_alone<B: Backing>(bench: &Bench<B>) -> Verdict {
    let (lease, beside) = (bench.exclusive("job"), bench.exclusive("beside"));
    bench.client.grant(&lease).await?;
    bench.client.grant(&beside).await?;
    let before = bench.observe().await?;
    let other = lease.clone().with_claims(all_of(&["job"], Mode::SHARED));
    let request = Renew::new(vec![other.renewal(other.term), beside.renewal(beside.term)]);
    let mut renewed = bench.client.renew_all(request).await?;
    ensure!(matches!(renewed[1], LeaseRenewed::Held(_)), "the other lease: {renewed:?}");
    let error = take!(LeaseRenewed::Failed(error) => error, renewed.remove(0), "the wrong mode");
    invalid_input(&error)?;
    bench.unchanged(&before).await?;
    PASSED
}

async fn c06_a_thousand_leases_are_renewed_at_once<B: Backing>(bench: &Bench<B>) -> Verdict {
    let count = MAX_ENTRIES;
    let held: Vec<Attempt> =
        (0..20).map(|n| bench.exclusive(&format!("job:{n}")).with_term(bench.ticks(20))).collect();
    for lease in &held {
        bench.client.grant(lease).await?;
    }
    let unknown = (held.len()..count).map(|n| bench.exclusive(&format!("job:{n}")));
    let all: Vec<_> = held.iter().cloned().chain(unknown).collect();
    let request = Renew::new(all.iter().map(|lease| lease.renewal(bench.ttl(40))).collect());
    let renewed = bench.client.renew_all(request).await?;
    for (n, outcome) in renewed.iter().enumerate() {
        let expected = n < held.len();
        ensure_eq!(matches!(outcome, LeaseRenewed::Held(_)), expected, "lease {n}: {outcome:?}");
        ensure_eq!(matches!(outcome, LeaseRenewed::Lost(_)), !expected, "lease {n}: {outcome:?}");
    }
    bench.pass(25).await;
    ensure_eq!(bench.observe().await?.essence().0.len(), held.len(), "what was renewed");
    PASSED
}
