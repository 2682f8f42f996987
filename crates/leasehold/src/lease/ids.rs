use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold_core::LeaseId;
use tokio::sync::Notify;

/// The lease ids that a request of this `Locker` may still name (C3). A try with a caller's own id, and the
/// adoption of a lease, start only when every earlier request that names the id has been answered.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    reserved: Mutex<BTreeSet<LeaseId>>,
    freed: Notify,
}

/// Held by everything that names the id: the try, the lease, its renewals, its release.
#[derive(Debug)]
pub(crate) struct IdReservation {
    id: LeaseId,
    ids: Arc<Ids>,
}

/// Held by the owner of a lease: its try, the lease until it ends, its release until that is answered. Without an
/// owner nothing is held or requested. What only names the lease, such as a late renewal or the guard of an ended
/// lease, holds only its reservation.
#[derive(Debug)]
pub(crate) struct Ownership {
    pub(crate) reservation: Arc<IdReservation>,
}

impl Ownership {
    pub(crate) fn of(reservation: Arc<IdReservation>) -> Arc<Self> {
        Arc::new(Self { reservation })
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        self.reservation.ids.freed.notify_waiters();
    }
}

impl Ids {
    /// Reserves the id, unless a request still names it.
    pub(crate) fn try_reserve(self: &Arc<Self>, id: &LeaseId) -> Option<Arc<IdReservation>> {
        let new = self.reserved().insert(id.clone());
        new.then(|| Arc::new(IdReservation { id: id.clone(), ids: Arc::clone(self) }))
    }

    /// Reserves the id when nothing names it any more.
    pub(crate) async fn reserve(self: &Arc<Self>, id: &LeaseId) -> Arc<IdReservation> {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(reservation) = self.try_reserve(id) {
                return reservation;
            }
            freed.await;
        }
    }

    /// Ends when everything in `taken` is released.
    pub(crate) async fn given_back(&self, taken: &[Weak<Ownership>]) {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if taken.iter().all(|ownership| ownership.strong_count() == 0) {
                return;
            }
            freed.await;
        }
    }

    fn reserved(&self) -> MutexGuard<'_, BTreeSet<LeaseId>> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for IdReservation {
    fn drop(&mut self) {
        self.ids.reserved().remove(&self.id);
        self.ids.freed.notify_waiters();
    }
}
