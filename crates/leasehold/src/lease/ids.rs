use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;

use leasehold_core::{Claims, Clock, Key, LeaseId, Record};
use tokio::sync::Notify;
use tokio::task;

/// A lease id on one of its keys.
type Name = (LeaseId, Key);

/// Who requested a lock: a task, or a thread outside tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    Task(task::Id),
    Thread(ThreadId),
}

impl Caller {
    pub(crate) fn current() -> Self {
        task::try_id().map_or_else(|| Self::Thread(thread::current().id()), Self::Task)
    }
}

/// The ids of every `Locker` of this process.
static LOCKERS: RwLock<Vec<Weak<Ids>>> = RwLock::new(Vec::new());

fn names(id: &LeaseId, claims: &Claims) -> impl Iterator<Item = Name> {
    claims.keys().map(|key| (id.clone(), key.clone()))
}

/// Who in this process holds the lease of a store's `record`, in whichever `Locker`.
pub(crate) fn held_here(record: &Record) -> Option<Caller> {
    let name = (record.id.clone()?, record.key.clone());
    // Not awaited, here and below: a fork may have copied it locked.
    let lockers = LOCKERS.try_read().ok()?;
    let is_here = |ids: &Arc<Ids>| ids.process == std::process::id();
    lockers.iter().filter_map(Weak::upgrade).filter(is_here).find_map(|ids| ids.held_by(&name))
}

/// The lease ids that a request of this `Locker` may still name, with the keys (C3). A try with a caller's own id, and
/// the adoption of a lease, start only when every earlier request that names the id for one of these keys has been
/// answered.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    /// The process of the `Locker`; 0 if it is not among those of its process.
    process: u32,
    state: Mutex<State>,
    /// Made by the first who waits for an id.
    freed: OnceLock<Notify>,
}

#[derive(Debug, Default)]
struct State {
    reserved: BTreeMap<Name, Weak<IdReservation>>,
    /// Until when a request that was never answered may still act.
    barred: BTreeMap<Name, Duration>,
    /// How many of them there may be before those that are over are removed.
    room: usize,
}

/// Held by everything that names the id: the try, the lease, its renewals, its release.
#[derive(Debug)]
pub(crate) struct IdReservation {
    id: LeaseId,
    claims: Claims,
    /// Who requests its lease.
    caller: Caller,
    is_held: AtomicBool,
    ids: Arc<Ids>,
}

impl IdReservation {
    /// Notes whether the lease is held.
    pub(crate) fn set_held(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::Release);
    }

    /// Keeps the id from later requests until then.
    pub(crate) fn bar(&self, until: Duration, now: Duration) {
        let mut state = self.ids.state();
        if state.barred.len() >= state.room {
            state.barred.retain(|_, until| *until > now);
            state.room = 16 + 2 * state.barred.len();
        }
        for name in names(&self.id, &self.claims) {
            let barred = state.barred.entry(name).or_insert(until);
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
        let ids = &self.reservation.ids;
        ids.notify(ids.state());
    }
}

impl Ids {
    /// Those of a `Locker` of this process.
    pub(crate) fn of_this_process() -> Arc<Self> {
        let ids = Arc::new(Self { process: std::process::id(), ..Self::default() });
        for _ in 0..1_000 {
            if let Ok(mut lockers) = LOCKERS.try_write() {
                lockers.retain(|known| known.strong_count() > 0);
                lockers.push(Arc::downgrade(&ids));
                break;
            }
            thread::yield_now();
        }
        ids
    }

    fn held_by(&self, name: &Name) -> Option<Caller> {
        let reservation = self.state().reserved.get(name).and_then(Weak::upgrade)?;
        reservation.is_held.load(Ordering::Acquire).then_some(reservation.caller)
    }

    /// Reserves the id for these keys, unless a request still names it for one of them. `Err` states when to try again, if
    /// only time is awaited.
    pub(crate) fn try_reserve(
        self: &Arc<Self>,
        id: &LeaseId,
        claims: &Claims,
        caller: Caller,
        now: Duration,
    ) -> Result<Arc<IdReservation>, Option<Duration>> {
        let mut state = self.state();
        if names(id, claims).any(|name| state.reserved.contains_key(&name)) {
            return Err(None);
        }
        if !state.barred.is_empty() {
            let barred =
                names(id, claims).filter_map(|name| state.barred.get(&name).copied()).max();
            if barred.is_some_and(|until| until > now) {
                return Err(barred);
            }
        }
        Ok(self.reserve_in(&mut state, id, claims, caller))
    }

    /// Reserves an id that was just minted, so that nothing else can name it.
    pub(crate) fn reserve_minted(
        self: &Arc<Self>,
        id: &LeaseId,
        claims: &Claims,
        caller: Caller,
    ) -> Arc<IdReservation> {
        self.reserve_in(&mut self.state(), id, claims, caller)
    }

    fn reserve_in(
        self: &Arc<Self>,
        state: &mut State,
        id: &LeaseId,
        claims: &Claims,
        caller: Caller,
    ) -> Arc<IdReservation> {
        let reservation = Arc::new(IdReservation {
            id: id.clone(),
            claims: claims.clone(),
            caller,
            is_held: AtomicBool::new(false),
            ids: Arc::clone(self),
        });
        let reserved = names(id, claims).map(|name| (name, Arc::downgrade(&reservation)));
        state.reserved.extend(reserved);
        reservation
    }

    /// Reserves the id for these keys when nothing names it any more.
    pub(crate) async fn reserve(
        self: &Arc<Self>,
        id: &LeaseId,
        claims: &Claims,
        caller: Caller,
        clock: &dyn Clock,
    ) -> Arc<IdReservation> {
        loop {
            let freed = self.freed().notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            match self.try_reserve(id, claims, caller, clock.now()) {
                Ok(reservation) => return reservation,
                Err(None) => freed.await,
                Err(Some(until)) => clock.sleep_until(until).await,
            }
        }
    }

    /// Ends when everything in `taken` is released.
    pub(crate) async fn given_back(&self, taken: &[Weak<Ownership>]) {
        loop {
            let freed = self.freed().notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            drop(self.state());
            if taken.iter().all(|ownership| ownership.strong_count() == 0) {
                return;
            }
            freed.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn freed(&self) -> &Notify {
        self.freed.get_or_init(Notify::new)
    }

    /// Wakes those who wait for an id, after a change that they may wait for. Whoever asks for `freed` and then locks the
    /// state, to see whether it must wait, is woken or sees the change.
    fn notify(&self, state: MutexGuard<'_, State>) {
        drop(state);
        if let Some(freed) = self.freed.get() {
            freed.notify_waiters();
        }
    }
}

impl Drop for IdReservation {
    fn drop(&mut self) {
        let mut state = self.ids.state();
        for name in names(&self.id, &self.claims) {
            state.reserved.remove(&name);
        }
        self.ids.notify(state);
    }
}
