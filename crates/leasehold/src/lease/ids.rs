use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::{Claims, Clock, Key, LeaseId};
use tokio::sync::Notify;

/// A lease id on one of its keys.
type Name = (LeaseId, Key);

/// The lease ids that a request of this `Locker` may still name, with the keys (C3). A try with a caller's own id, and
/// the adoption of a lease, start only when every earlier request that names the id for one of these keys has been
/// answered.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    reserved: BTreeSet<Name>,
    /// Until when a request that was never answered may still act.
    barred: BTreeMap<Name, Duration>,
    /// How many of them there may be before those that are over are removed.
    room: usize,
}

/// Held by everything that names the id: the try, the lease, its renewals, its release.
#[derive(Debug)]
pub(crate) struct IdReservation {
    names: Vec<Name>,
    ids: Arc<Ids>,
}

impl IdReservation {
    /// Keeps the id from later requests until then.
    pub(crate) fn bar(&self, until: Duration, now: Duration) {
        let mut state = self.ids.state();
        if state.barred.len() >= state.room {
            state.barred.retain(|_, until| *until > now);
            state.room = 16 + 2 * state.barred.len();
        }
        for name in &self.names {
            let barred = state.barred.entry(name.clone()).or_insert(until);
            *barred = until.max(*barred);
        }
    }
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
    /// Reserves the id for these keys, unless a request still names it for one of them. `Err` says when to try again, if
    /// only time is awaited.
    pub(crate) fn try_reserve(
        self: &Arc<Self>,
        id: &LeaseId,
        claims: &Claims,
        now: Duration,
    ) -> Result<Arc<IdReservation>, Option<Duration>> {
        let names: Vec<_> = claims.keys().map(|key| (id.clone(), key.clone())).collect();
        let mut state = self.state();
        if names.iter().any(|name| state.reserved.contains(name)) {
            return Err(None);
        }
        let barred = names.iter().filter_map(|name| state.barred.get(name).copied()).max();
        if barred.is_some_and(|until| until > now) {
            return Err(barred);
        }
        state.reserved.extend(names.iter().cloned());
        Ok(Arc::new(IdReservation { names, ids: Arc::clone(self) }))
    }

    /// Reserves the id for these keys when nothing names it any more.
    pub(crate) async fn reserve(
        self: &Arc<Self>,
        id: &LeaseId,
        claims: &Claims,
        clock: &dyn Clock,
    ) -> Arc<IdReservation> {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            match self.try_reserve(id, claims, clock.now()) {
                Ok(reservation) => return reservation,
                Err(None) => freed.await,
                Err(Some(until)) => clock.sleep_until(until).await,
            }
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for IdReservation {
    fn drop(&mut self) {
        let mut state = self.ids.state();
        for name in &self.names {
            state.reserved.remove(name);
        }
        drop(state);
        self.ids.freed.notify_waiters();
    }
}
