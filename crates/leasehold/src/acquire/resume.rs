use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Effect, Error, Feature, Lease, Level, LostReason, ReleaseOutcome, RenewOutcome, Result, Ttl,
};

use super::spec::LockSpec;
use crate::guard::Guard;
use crate::lease::cleanup::Cleanup;
use crate::lease::ids::{Caller, IdReservation, Ownership};
use crate::lease::release_report::ReleaseReport;
use crate::lease::state::{HoldStatus, LeaseState, renewal};
use crate::locker::Inner;

/// Adopts a lease that another guard handed over.
pub(super) async fn adopt(inner: &Inner, lease: Lease) -> Result<Guard> {
    let spec = LockSpec::adopting(inner, &lease)?;
    let limit = inner.keeper.clock.now().saturating_add(inner.keeper.limit);
    let reservation = reserved(inner, &lease, spec.policy.term, spec.policy.caller, limit).await?;
    resume(inner, lease, &spec, reservation, limit)
        .await?
        .map_err(|reason| Error::lease_lost(reason, None))
}

/// Releases a lease that another guard handed over, or whose holder is dead; its keys stay taken for `keep`.
pub(super) async fn release(inner: &Inner, lease: &Lease, keep: Duration) -> Result<ReleaseReport> {
    let keeper = &inner.keeper;
    keeper.can.admit(&lease.claims)?;
    if !keep.is_zero() && !keeper.can.keep {
        return Err(keeper.can.lacks(Feature::Keep));
    }
    let limit = keeper.clock.now().saturating_add(keeper.limit);
    let reservation = reserved(inner, lease, lease.ttl, Caller::current(), limit).await?;
    let cleanup = Cleanup::of_lease(lease, keep, Ownership::of(reservation), keeper.clock.now());
    let mut reports = keeper.release_for(vec![cleanup]).await;
    let report = reports.pop().expect("one report for each lease");
    match report.outcome {
        ReleaseOutcome::Failed(error) => Err(error),
        _ => Ok(report),
    }
}

/// Reserves the id of a lease that this `Locker` does not hold, by `limit`.
async fn reserved(
    inner: &Inner,
    lease: &Lease,
    term: Ttl,
    caller: Caller,
    limit: Duration,
) -> Result<Arc<IdReservation>> {
    let keeper = &inner.keeper;
    inner.ensure_running(std::process::id())?;
    if !inner.is_ready(Level::BestEffort, term) {
        inner.make_ready(Level::BestEffort, term, limit).await?;
    }
    // A renewal that its last guard had sent may not be answered yet.
    let reserve = keeper.ids.reserve(&lease.id, &lease.claims, caller, &*keeper.clock);
    tokio::select! {
        biased;
        reservation = reserve => Ok(reservation),
        () = keeper.clock.sleep_until(limit) => Err(id_in_use()),
    }
}

/// Renews once, by `limit`, a lease that this `Locker` does not hold, and counts its term from that; states why if
/// it has ended.
pub(super) async fn resume(
    inner: &Inner,
    mut lease: Lease,
    spec: &LockSpec,
    reservation: Arc<IdReservation>,
    limit: Duration,
) -> Result<Result<Guard, LostReason>> {
    let keeper = &inner.keeper;
    let sent = keeper.clock.now();
    let policy = spec.policy_from(sent);
    let ask = renewal(&lease, &policy.note, policy.term_at(sent));
    let (remaining, nodes) = match keeper.renew_stranger(ask, limit).await? {
        (RenewOutcome::Held(remaining), nodes) => (remaining, nodes),
        (RenewOutcome::Lost(reason), _) => return Ok(Err(reason.unwrap_or(LostReason::Gone))),
        (RenewOutcome::Failed(error), _) => return Err(error),
    };
    lease.ttl = spec.ttl;
    let now = keeper.clock.now();
    let held = LeaseState::new(
        lease,
        false,
        policy,
        Ownership::of(reservation),
        (sent, now),
        remaining,
        nodes,
    );
    if let HoldStatus::Lost { reason, .. } = held.status(now) {
        keeper.release([Cleanup::of_lost(&held)]);
        return Ok(Err(reason));
    }
    Ok(Ok(Guard::new(held, keeper, false)))
}

/// The error for an id that something else still uses.
pub(super) fn id_in_use() -> Error {
    Error::unavailable(
        Effect::NotApplied,
        "an earlier request or lease of this Locker with the same lease id is not finished; release it, wait, or use \
         another id",
    )
}
