//! C13: a release reports what it ended; `keep` leaves the keys taken.

use leasehold_core::{ReleaseOutcome, ReleaseRequest, Remaining, Ttl};

use crate::Backing;
use crate::attempt::at_most;
use crate::case::{CaseResult, PASSED, cases};
use crate::failure::{ensure, ensure_eq};
use crate::fixture::Fixture;

cases! {
    c13_a_held_lease_is_released_once,
    c13_an_unknown_lease_is_not_held,
    c13_an_expired_lease_is_reported [ReportsExpired],
    c13_an_expired_lease_of_many_keys_is_reported [ReportsExpired, ManyKeys],
    c13_an_overrun_lease_with_a_successor_is_not_held,
    c13_an_evicted_lease_is_not_held,
    c13_a_lease_without_end_is_released [Never],
    c13_each_lease_of_a_release_has_its_own_outcome,
    c13_a_kept_key_stays_taken_until_the_keep_ends [Keep],
    c13_a_keep_may_be_shorter_or_longer_than_the_term [Keep],
    c13_a_resent_keep_has_the_same_answer [Keep],
    c13_a_release_after_a_keep_frees_nothing [Keep],
    c13_a_keep_of_an_expired_lease_keeps_nothing [Keep],
    c13_many_keys_are_kept_together [Keep, ManyKeys],
    c13_a_kept_reader_keeps_writers_out [Keep, Shared],
    c13_a_kept_lease_is_not_acquired_with_its_id [Keep],
    c13_a_kept_reader_is_not_acquired_with_its_id [Keep, Shared],
}

async fn c13_a_held_lease_is_released_once<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.released(&lease).await?;
    fixture.holds("job", &[]).await?;
    fixture.client.not_held(&lease).await?;
    fixture.another().await?.not_held(&lease).await?;
    PASSED
}

async fn c13_an_unknown_lease_is_not_held<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let before = fixture.observe().await?;
    fixture.client.not_held(&fixture.exclusive("job")).await?;
    fixture.unchanged(&before).await?;
    PASSED
}

/// A holder that overran its term must find out.
async fn c13_an_expired_lease_is_reported<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    for ticks in [10, 25] {
        let lease = fixture.exclusive("job");
        fixture.client.grant(&lease).await?;
        fixture.pass(ticks).await;
        let ended = fixture.client.release(&lease).await?;
        ensure!(matches!(ended, ReleaseOutcome::Expired), "an expired lease: {ended:?}");
        fixture.client.not_held(&lease).await?;
    }
    PASSED
}

async fn c13_an_expired_lease_of_many_keys_is_reported<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive_all(&["a", "b"]);
    fixture.client.grant(&lease).await?;
    fixture.pass(10).await;
    let ended = fixture.client.release(&lease).await?;
    ensure!(matches!(ended, ReleaseOutcome::Expired), "an expired lease: {ended:?}");
    fixture.client.not_held(&lease).await?;
    PASSED
}

async fn c13_an_overrun_lease_with_a_successor_is_not_held<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let (old, new) = (fixture.exclusive("job"), fixture.exclusive("job"));
    fixture.client.grant(&old).await?;
    fixture.pass(10).await;
    fixture.client.grant(&new).await?;
    fixture.client.not_held(&old).await?;
    fixture.holds("job", &[&new]).await?;
    PASSED
}

async fn c13_an_evicted_lease_is_not_held<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.evict_these(lease.targets(), Some("maintenance")).await?;
    fixture.client.not_held(&lease).await?;
    PASSED
}

async fn c13_a_lease_without_end_is_released<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    ensure_eq!(fixture.client.held(&lease, Ttl::NEVER).await?, Remaining::Never, "what remains");
    fixture.client.released(&lease).await?;
    fixture.holds("job", &[]).await?;
    PASSED
}

async fn c13_each_lease_of_a_release_has_its_own_outcome<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let short = fixture.exclusive("short").with_term(fixture.ticks(2));
    let (first, last) = (fixture.exclusive("first"), fixture.exclusive("last"));
    for lease in [&short, &first, &last] {
        fixture.client.grant(lease).await?;
    }
    fixture.pass(3).await;
    let unknown = fixture.exclusive("last");
    let all = [&last, &unknown, &short, &first, &first];
    let release = ReleaseRequest::new(all.into_iter().map(|lease| lease.ending()).collect());
    let ended = fixture.client.release_all(release).await?;
    let is_released: Vec<_> =
        ended.iter().map(|one| matches!(one, ReleaseOutcome::Released)).collect();
    ensure_eq!(is_released, [true, false, false, true, false], "what was released: {ended:?}");
    ensure!(matches!(ended[1], ReleaseOutcome::NotHeld), "another's lease: {ended:?}");
    ensure!(matches!(ended[4], ReleaseOutcome::NotHeld), "named twice: {ended:?}");
    ensure_eq!(
        matches!(ended[2], ReleaseOutcome::Expired),
        fixture.can.reports_expired,
        "whether an expired lease is reported: {ended:?}"
    );
    PASSED
}

async fn c13_a_kept_key_stays_taken_until_the_keep_ends<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    let kept = fixture.client.keep(&lease, fixture.ticks(5)).await?;
    fixture.about(kept, fixture.ticks(5), "for how long it is kept")?;
    fixture.pass_almost(5).await;
    fixture.client.refuse(&fixture.exclusive("job")).await?;
    fixture.holds("job", &[&lease]).await?;
    fixture.pass(1).await;
    fixture.holds("job", &[]).await?;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c13_a_keep_may_be_shorter_or_longer_than_the_term<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    for (name, ticks) in [("shorter", 3), ("longer", 20)] {
        let lease = fixture.exclusive(name);
        fixture.client.grant(&lease).await?;
        fixture.client.keep(&lease, fixture.ticks(ticks)).await?;
        fixture.pass(ticks - 2).await;
        fixture.client.refuse(&fixture.exclusive(name)).await?;
        fixture.pass(2).await;
        fixture.client.grant(&fixture.exclusive(name)).await?;
    }
    PASSED
}

/// The reply may have been lost; and a kept key is not kept for longer.
async fn c13_a_resent_keep_has_the_same_answer<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.keep(&lease, fixture.ticks(8)).await?;
    let before = fixture.observe().await?;
    for rest in [6, 4] {
        fixture.pass(2).await;
        let kept = fixture.client.keep(&lease, fixture.ticks(8)).await?;
        fixture.about(kept, fixture.ticks(rest), "for how long it is still kept")?;
    }
    fixture.unchanged(&before).await?;
    fixture.pass(4).await;
    let release = ReleaseRequest::new(vec![lease.ending().with_keep(fixture.ticks(8))]);
    let ended = fixture.client.release_all(release).await?;
    ensure!(matches!(ended[0], ReleaseOutcome::NotHeld), "what was kept and is over: {ended:?}");
    fixture.holds("job", &[]).await?;
    PASSED
}

async fn c13_a_release_after_a_keep_frees_nothing<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.keep(&lease, fixture.ticks(5)).await?;
    fixture.client.not_held(&lease).await?;
    fixture.holds("job", &[&lease]).await?;
    fixture.client.refuse(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c13_a_keep_of_an_expired_lease_keeps_nothing<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.pass(10).await;
    let release = ReleaseRequest::new(vec![lease.ending().with_keep(fixture.ticks(8))]);
    let ended = fixture.client.release_all(release).await?;
    ensure!(!matches!(ended[0], ReleaseOutcome::Kept(_)), "an expired lease was kept: {ended:?}");
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

async fn c13_many_keys_are_kept_together<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let lease = fixture.exclusive_all(&["a", "b"]);
    fixture.client.grant(&lease).await?;
    fixture.client.keep(&lease, fixture.ticks(4)).await?;
    for name in ["a", "b"] {
        fixture.client.refuse(&fixture.exclusive(name)).await?;
    }
    fixture.pass(4).await;
    fixture.client.grant(&fixture.exclusive_all(&["a", "b"])).await?;
    PASSED
}

async fn c13_a_kept_reader_keeps_writers_out<B: Backing>(fixture: &Fixture<B>) -> CaseResult {
    let (kept, other) = (fixture.shared("job"), fixture.shared("job"));
    fixture.client.grant(&kept).await?;
    fixture.client.grant(&other).await?;
    fixture.client.keep(&kept, fixture.ticks(4)).await?;
    fixture.client.released(&other).await?;
    fixture.client.grant(&fixture.shared("job").with_term(fixture.ticks(1))).await?;
    if fixture.can.shared_limit {
        fixture.client.refuse(&fixture.one("job", at_most(2))).await?;
    }
    fixture.pass(1).await;
    fixture.client.refuse(&fixture.exclusive("job")).await?;
    fixture.pass(3).await;
    fixture.client.grant(&fixture.exclusive("job")).await?;
    PASSED
}

/// A released lease has ended, for its own id too; its key stays taken.
async fn c13_a_kept_lease_is_not_acquired_with_its_id<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.exclusive("job");
    fixture.client.grant(&lease).await?;
    fixture.client.keep(&lease, fixture.ticks(5)).await?;
    let before = fixture.observe().await?;
    fixture.client.refuse(&lease).await?;
    fixture.unchanged(&before).await?;
    fixture.pass(5).await;
    fixture.client.grant(&lease).await?;
    PASSED
}

async fn c13_a_kept_reader_is_not_acquired_with_its_id<B: Backing>(
    fixture: &Fixture<B>,
) -> CaseResult {
    let lease = fixture.shared("job");
    fixture.client.grant(&lease).await?;
    fixture.client.keep(&lease, fixture.ticks(5)).await?;
    let before = fixture.observe().await?;
    fixture.client.refuse(&lease.clone().with_term(fixture.ticks(1))).await?;
    fixture.unchanged(&before).await?;
    fixture.pass(4).await;
    fixture.client.refuse(&fixture.exclusive("job")).await?;
    fixture.pass(1).await;
    fixture.client.grant(&lease).await?;
    PASSED
}
