use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Effect, Error, Lease, Level, LostReason, RenewOutcome, Result};

use super::spec::LockSpec;
use crate::guard::Guard;
use crate::lease::cleanup::Cleanup;
use crate::lease::ids::{IdReservation, Ownership};
use crate::lease::state::{HoldStatus, LeaseState, renewal};
use crate::locker::Inner;

/// Adopts a lease that another guard handed over.
pub(super) async fn adopt(inner: &Inner, lease: Lease) -> Result<Guard> {
    let spec = LockSpec::adopting(inner, &lease)?;
    let keeper = &inner.keeper;
    let limit = keeper.clock.now().saturating_add(keeper.limit);
    inner.ensure_running(std::process::id())?;
    if !inner.is_ready(Level::BestEffort, spec.policy.term) {
        inner.make_ready(Level::BestEffort, spec.policy.term, limit).await?;
    }
    // A renewal that its last guard had sent may not be answered yet.
    let reserve = keeper.ids.reserve(&lease.id, &lease.claims, spec.policy.caller, &*keeper.clock);
    let reservation = tokio::select! {
        biased;
        reservation = reserve => reservation,
        () = keeper.clock.sleep_until(limit) => return Err(id_in_use()),
    };
    resume(inner, lease, &spec, reservation, limit)
        .await?
        .map_err(|reason| Error::lease_lost(reason, None))
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
