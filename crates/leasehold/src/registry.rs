use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use leasehold_core::{Error, Key, Result};

use crate::keeper::Keeper;
use crate::lease::state::{HoldStatus, LeaseState};

/// The names for which a `Locker` has a candidate. A second one for a name would wait for the first for ever.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<HashMap<Key, Arc<Elected>>>);

/// The lease it was elected with; empty while it campaigns, and for a spawned candidate.
type Elected = OnceLock<Arc<LeaseState>>;

/// One candidate, registered until this is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Arc<Registry>,
    name: Key,
    elected: Arc<Elected>,
}

impl Registry {
    /// Registers a candidate for `name`, unless this `Locker` has one already.
    pub(crate) fn register(
        self: &Arc<Self>,
        keeper: &Arc<Keeper>,
        name: &Key,
    ) -> Result<Registration> {
        let mut names = self.names();
        let occupied = names.get(name).is_some_and(|elected| match elected.get() {
            Some(held) => matches!(keeper.status(held), HoldStatus::Held(_)),
            None => true,
        });
        if occupied {
            return Err(Error::invalid_input(format!(
                "this Locker already has a candidate for {name:?}; use that one, end it first, or use another Locker"
            )));
        }
        let elected = Arc::default();
        names.insert(name.clone(), Arc::clone(&elected));
        Ok(Registration { registry: Arc::clone(self), name: name.clone(), elected })
    }

    fn names(&self) -> MutexGuard<'_, HashMap<Key, Arc<Elected>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registration {
    /// Keeps it registered only as long as the lease is held.
    pub(crate) fn is_elected(&self, held: &Arc<LeaseState>) {
        self.elected.get_or_init(|| Arc::clone(held));
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut names = self.registry.names();
        if names.get(&self.name).is_some_and(|elected| Arc::ptr_eq(elected, &self.elected)) {
            names.remove(&self.name);
        }
    }
}
