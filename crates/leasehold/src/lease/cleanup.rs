use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Claims, Clock, Lease, LeaseId, ReleaseEntry, Ttl};

use super::ids::{IdReservation, Ownership};
use super::state::LeaseState;

/// How long the id of a lease without end stays reserved.
const LONGEST_BAR: Duration = Duration::from_secs(60);

/// One lease to release, or what an acquire may have left at the store.
#[derive(Debug, Clone)]
pub(crate) struct Cleanup {
    entry: ReleaseEntry,
    /// Until when its keys must stay taken.
    keep_until: Duration,
    /// The term of a request that may still act.
    asked: Option<Ttl>,
    /// Until when the store may count it; `None` for ever.
    until: Option<Duration>,
    /// Reserves the id until the release is answered.
    ownership: Arc<Ownership>,
    /// It was sent and not released.
    failed: bool,
    /// A request that names it was never answered, and may still act.
    doubtful: bool,
}

impl Cleanup {
    /// What an acquire that is sent from now on may leave.
    pub(crate) fn of_request(
        id: &LeaseId,
        claims: &Claims,
        term: Ttl,
        ownership: &Arc<Ownership>,
        now: Duration,
    ) -> Self {
        let cleanup = Self {
            entry: ReleaseEntry::new(id.clone(), claims.keys().cloned()),
            keep_until: Duration::ZERO,
            asked: Some(term),
            until: Some(now),
            ownership: Arc::clone(ownership),
            failed: false,
            doubtful: false,
        };
        cleanup.acted_by(now)
    }

    /// A lease that its holder releases: its keys stay taken for the rest of `min_hold`.
    pub(crate) fn of_held(held: &LeaseState) -> Self {
        let entry = ReleaseEntry::new(held.lease.id.clone(), held.lease.claims.keys().cloned());
        let (ownership, until, doubtful) = held.hand_over();
        Self {
            entry: held.lease.token.into_iter().fold(entry, ReleaseEntry::with_token),
            keep_until: held.policy.min_hold_until.unwrap_or_default(),
            asked: None,
            until,
            ownership,
            failed: false,
            doubtful,
        }
    }

    /// A lease that its holder has left; its keys stay taken for `keep`. It is released once.
    pub(crate) fn of_lease(
        lease: &Lease,
        keep: Duration,
        ownership: Arc<Ownership>,
        now: Duration,
    ) -> Self {
        let entry = ReleaseEntry::new(lease.id.clone(), lease.claims.keys().cloned());
        Self {
            entry: lease.token.into_iter().fold(entry, ReleaseEntry::with_token),
            keep_until: if keep.is_zero() { keep } else { now.saturating_add(keep) },
            asked: None,
            until: Some(now),
            ownership,
            failed: false,
            doubtful: false,
        }
    }

    /// A lost lease: its keys stay taken for the lock delay too, counted from the loss.
    pub(crate) fn of_lost(held: &LeaseState) -> Self {
        let mut cleanup = Self::of_held(held);
        if !held.policy.lock_delay.is_zero() {
            let delayed = held.ended_at().saturating_add(held.policy.lock_delay);
            cleanup.keep_until = cleanup.keep_until.max(delayed);
        }
        cleanup
    }

    /// Its keys stay taken until this instant at least.
    pub(crate) fn kept_until(mut self, until: Duration) -> Self {
        self.keep_until = self.keep_until.max(until);
        self
    }

    /// A request for it may have acted as late as `now`.
    pub(crate) fn acted_by(mut self, now: Duration) -> Self {
        if let Some(term) = self.asked {
            let end = term.duration().map(|term| now.saturating_add(term));
            self.until = end.zip(self.until).map(|(end, until)| end.max(until));
        }
        self
    }

    /// A request may act after this was sent.
    pub(crate) fn may_be_needed_again(&self) -> bool {
        self.asked.is_some()
    }

    /// The entry to send now.
    pub(crate) fn entry(&self, clock: &dyn Clock) -> ReleaseEntry {
        if self.keep_until.is_zero() {
            return self.entry.clone();
        }
        self.entry.clone().with_keep(self.keep_until.saturating_sub(clock.now()))
    }

    pub(crate) fn keep_until(&self) -> Duration {
        self.keep_until
    }

    /// True while the store may count it.
    pub(crate) fn matters(&self, now: Duration) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    pub(crate) fn is_endless(&self) -> bool {
        self.until.is_none()
    }

    /// Marks it as sent. A request that may still act has its own copy.
    pub(crate) fn sent(mut self) -> Self {
        self.asked = None;
        self
    }

    /// Marks it as sent and not released.
    pub(crate) fn fail(&mut self) {
        self.failed = true;
    }

    /// Notes that a request that names it was not answered.
    pub(crate) fn doubt(&mut self) {
        self.doubtful = true;
    }

    /// Its release is answered. If an earlier request may still act, and would reach the next lease of the id, the id
    /// stays reserved until the term is over (C3).
    pub(crate) fn answered(&self, compares_tokens: bool, clock: &dyn Clock) {
        let is_told_apart = compares_tokens && self.entry.token().is_some();
        if !self.doubtful || is_told_apart {
            return;
        }
        let now = clock.now();
        if self.matters(now) {
            let until = self.until.unwrap_or_else(|| now.saturating_add(LONGEST_BAR));
            self.ownership.reservation.bar(until, now);
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    pub(crate) fn reservation(&self) -> Arc<IdReservation> {
        Arc::clone(&self.ownership.reservation)
    }
}
