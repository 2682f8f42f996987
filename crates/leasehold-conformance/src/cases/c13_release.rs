//! C13: a release tells what it ended; `keep` leaves the keys taken.

use leasehold_core::{LeaseReleased, Release, Remaining, Ttl};

use crate::Backing;
use crate::attempt::at_most;
use crate::bench::Bench;
use crate::case::{PASSED, Verdict, cases};
use crate::failure::{ensure, ensure_eq};

cases! {
    c13_a_held_lease_is_released_once,
    c13_an_unknown_lease_is_not_held,
    c13_an_expired_lease_is_told [TellsExpired],
    c13_an_expired_lease_of_many_keys_is_told [TellsExpired, ManyKeys],
    c13_an_overrun_lease_with_a_successor_is_not_held,
    c13_an_evicted_lease_is_not_held,
    c13_a_lease_without_end_is_released [Never],
    c13_each_lease_of_a_release_has_its_own_fate,
    c13_a_kept_key_stays_taken_until_it_is_over [Keep],
    c13_a_keep_may_be_shorter_or_longer_than_the_term [Keep],
    c13_a_resent_keep_is_answered_alike [Keep],
    c13_a_release_after_a_keep_frees_nothing [Keep],
    c13_a_keep_of_an_expired_lease_keeps_nothing [Keep],
    c13_many_keys_are_kept_together [Keep, ManyKeys],
    c13_a_kept_reader_keeps_writers_out [Keep, Shared],
    c13_a_kept_lease_is_not_acquired_with_its_id [Keep],
    c13_a_kept_reader_is_not_acquired_with_its_id [Keep, Shared],
}

async fn c13_a_held_lease_is_released_once<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.released(&lease).await?;
    bench.holds("job", &[]).await?;
    bench.client.not_held(&lease).await?;
    bench.another().await?.not_held(&lease).await?;
    PASSED
}

async fn c13_an_unknown_lease_is_not_held<B: Backing>(bench: &Bench<B>) -> Verdict {
    let before = bench.observe().await?;
    bench.client.not_held(&bench.exclusive("job")).await?;
    bench.unchanged(&before).await?;
    PASSED
}

/// Whoever overran its term must learn it.
async fn c13_an_expired_lease_is_told<B: Backing>(bench: &Bench<B>) -> Verdict {
    for ticks in [10, 25] {
        let lease = bench.exclusive("job");
        bench.client.grant(&lease).await?;
        bench.pass(ticks).await;
        let ended = bench.client.release(&lease).await?;
        ensure!(matches!(ended, LeaseReleased::Expired), "an expired lease: {ended:?}");
        bench.client.not_held(&lease).await?;
    }
    PASSED
}

async fn c13_an_expired_lease_of_many_keys_is_told<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive_all(&["a", "b"]);
    bench.client.grant(&lease).await?;
    bench.pass(10).await;
    let ended = bench.client.release(&lease).await?;
    ensure!(matches!(ended, LeaseReleased::Expired), "an expired lease: {ended:?}");
    bench.client.not_held(&lease).await?;
    PASSED
}

async fn c13_an_overrun_lease_with_a_successor_is_not_held<B: Backing>(
    bench: &Bench<B>,
) -> Verdict {
    let (old, new) = (bench.exclusive("job"), bench.exclusive("job"));
    bench.client.grant(&old).await?;
    bench.pass(10).await;
    bench.client.grant(&new).await?;
    bench.client.not_held(&old).await?;
    bench.holds("job", &[&new]).await?;
    PASSED
}

async fn c13_an_evicted_lease_is_not_held<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.evict_these(lease.targets(), Some("maintenance")).await?;
    bench.client.not_held(&lease).await?;
    PASSED
}

async fn c13_a_lease_without_end_is_released<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    ensure_eq!(bench.client.held(&lease, Ttl::NEVER).await?, Remaining::Never, "what remains");
    bench.client.released(&lease).await?;
    bench.holds("job", &[]).await?;
    PASSED
}

async fn c13_each_lease_of_a_release_has_its_own_fate<B: Backing>(bench: &Bench<B>) -> Verdict {
    let short = bench.exclusive("short").with_term(bench.ticks(2));
    let (first, last) = (bench.exclusive("first"), bench.exclusive("last"));
    for lease in [&short, &first, &last] {
        bench.client.grant(lease).await?;
    }
    bench.pass(3).await;
    let unknown = bench.exclusive("last");
    let all = [&last, &unknown, &short, &first, &first];
    let release = Release::new(all.into_iter().map(|lease| lease.ending()).collect());
    let ended = bench.client.release_all(release).await?;
    let is_released: Vec<_> =
        ended.iter().map(|one| matches!(one, LeaseReleased::Released)).collect();
    ensure_eq!(is_released, [true, false, false, true, false], "what was released: {ended:?}");
    ensure!(matches!(ended[1], LeaseReleased::NotHeld), "another's lease: {ended:?}");
    ensure!(matches!(ended[4], LeaseReleased::NotHeld), "named twice: {ended:?}");
    ensure_eq!(
        matches!(ended[2], LeaseReleased::Expired),
        bench.can.tells_expired,
        "whether an expired lease is told: {ended:?}"
    );
    PASSED
}

async fn c13_a_kept_key_stays_taken_until_it_is_over<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    let kept = bench.client.keep(&lease, bench.ticks(5)).await?;
    bench.about(kept, bench.ticks(5), "for how long it is kept")?;
    bench.pass_almost(5).await;
    bench.client.refuse(&bench.exclusive("job")).await?;
    bench.holds("job", &[&lease]).await?;
    bench.pass(1).await;
    bench.holds("job", &[]).await?;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}

async fn c13_a_keep_may_be_shorter_or_longer_than_the_term<B: Backing>(
    bench: &Bench<B>,
) -> Verdict {
    for (name, ticks) in [("shorter", 3), ("longer", 20)] {
        let lease = bench.exclusive(name);
        bench.client.grant(&lease).await?;
        bench.client.keep(&lease, bench.ticks(ticks)).await?;
        bench.pass(ticks - 2).await;
        bench.client.refuse(&bench.exclusive(name)).await?;
        bench.pass(2).await;
        bench.client.grant(&bench.exclusive(name)).await?;
    }
    PASSED
}

/// The reply may have been lost; and what was kept is not kept anew.
async fn c13_a_resent_keep_is_answered_alike<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.keep(&lease, bench.ticks(8)).await?;
    let before = bench.observe().await?;
    for rest in [6, 4] {
        bench.pass(2).await;
        let kept = bench.client.keep(&lease, bench.ticks(8)).await?;
        bench.about(kept, bench.ticks(rest), "for how long it is still kept")?;
    }
    bench.unchanged(&before).await?;
    bench.pass(4).await;
    let release = Release::new(vec![lease.ending().with_keep(bench.ticks(8))]);
    let ended = bench.client.release_all(release).await?;
    ensure!(matches!(ended[0], LeaseReleased::NotHeld), "what was kept and is over: {ended:?}");
    bench.holds("job", &[]).await?;
    PASSED
}

async fn c13_a_release_after_a_keep_frees_nothing<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.keep(&lease, bench.ticks(5)).await?;
    bench.client.not_held(&lease).await?;
    bench.holds("job", &[&lease]).await?;
    bench.client.refuse(&bench.exclusive("job")).await?;
    PASSED
}

async fn c13_a_keep_of_an_expired_lease_keeps_nothing<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.pass(10).await;
    let release = Release::new(vec![lease.ending().with_keep(bench.ticks(8))]);
    let ended = bench.client.release_all(release).await?;
    ensure!(!matches!(ended[0], LeaseReleased::Kept(_)), "an expired lease was kept: {ended:?}");
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}

async fn c13_many_keys_are_kept_together<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive_all(&["a", "b"]);
    bench.client.grant(&lease).await?;
    bench.client.keep(&lease, bench.ticks(4)).await?;
    for name in ["a", "b"] {
        bench.client.refuse(&bench.exclusive(name)).await?;
    }
    bench.pass(4).await;
    bench.client.grant(&bench.exclusive_all(&["a", "b"])).await?;
    PASSED
}

async fn c13_a_kept_reader_keeps_writers_out<B: Backing>(bench: &Bench<B>) -> Verdict {
    let (kept, other) = (bench.shared("job"), bench.shared("job"));
    bench.client.grant(&kept).await?;
    bench.client.grant(&other).await?;
    bench.client.keep(&kept, bench.ticks(4)).await?;
    bench.client.released(&other).await?;
    bench.client.grant(&bench.shared("job").with_term(bench.ticks(1))).await?;
    if bench.can.shared_limit {
        bench.client.refuse(&bench.one("job", at_most(2))).await?;
    }
    bench.pass(1).await;
    bench.client.refuse(&bench.exclusive("job")).await?;
    bench.pass(3).await;
    bench.client.grant(&bench.exclusive("job")).await?;
    PASSED
}

/// A lease that was released is over, for its own id too; its key stays taken.
async fn c13_a_kept_lease_is_not_acquired_with_its_id<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.exclusive("job");
    bench.client.grant(&lease).await?;
    bench.client.keep(&lease, bench.ticks(5)).await?;
    let before = bench.observe().await?;
    bench.client.refuse(&lease).await?;
    bench.unchanged(&before).await?;
    bench.pass(5).await;
    bench.client.grant(&lease).await?;
    PASSED
}

async fn c13_a_kept_reader_is_not_acquired_with_its_id<B: Backing>(bench: &Bench<B>) -> Verdict {
    let lease = bench.shared("job");
    bench.client.grant(&lease).await?;
    bench.client.keep(&lease, bench.ticks(5)).await?;
    let before = bench.observe().await?;
    bench.client.refuse(&lease.clone().with_term(bench.ticks(1))).await?;
    bench.unchanged(&before).await?;
    bench.pass(4).await;
    bench.client.refuse(&bench.exclusive("job")).await?;
    bench.pass(1).await;
    bench.client.grant(&lease).await?;
    PASSED
}
