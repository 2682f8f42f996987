use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use leasehold_core::{Error, Key, Result};

use crate::held::{Held, Verdict};
use crate::locker::Locker;

/// The names for which a `Locker` has a candidate. A second one of a name would wait for the first for ever.
#[derive(Debug, Default)]
pub(crate) struct Seats(Mutex<HashMap<Key, Arc<Taken>>>);

/// What its candidate was elected with; empty while it campaigns, and for one that campaigns for ever.
type Taken = OnceLock<Arc<Held>>;

/// Taken by one candidate until it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    name: Key,
    taken: Arc<Taken>,
}

impl Seats {
    /// Takes the seat of `name`, unless a candidate of this `Locker` stands or leads.
    pub(super) fn take(self: &Arc<Self>, locks: &Locker, name: &Key) -> Result<Seat> {
        let mut names = self.names();
        let occupied = names.get(name).is_some_and(|taken| match taken.get() {
            Some(held) => matches!(locks.0.keeper.verdict(held), Verdict::Held(_)),
            None => true,
        });
        if occupied {
            return Err(Error::invalid_input(format!(
                "this Locker already has a candidate for {name:?}; use that one, end it first, or stand \
                 with a Locker of its own"
            )));
        }
        let taken = Arc::default();
        names.insert(name.clone(), Arc::clone(&taken));
        Ok(Seat { seats: Arc::clone(self), name: name.clone(), taken })
    }

    fn names(&self) -> MutexGuard<'_, HashMap<Key, Arc<Taken>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// From now on it is taken only as long as the lease is held.
    pub(super) fn elected(&self, held: &Arc<Held>) {
        self.taken.get_or_init(|| Arc::clone(held));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut names = self.seats.names();
        if names.get(&self.name).is_some_and(|taken| Arc::ptr_eq(taken, &self.taken)) {
            names.remove(&self.name);
        }
    }
}
