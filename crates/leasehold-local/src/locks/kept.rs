use std::collections::HashMap;

use super::holder::{Holder, LockId, State};
use super::lock::Lock;
use super::sync::Mutex;

/// The locks that are kept without a guard, by their ids, as long as one of their keys is held.
///
/// Its mutex is locked after those of gate and shards.
#[derive(Debug)]
pub(super) struct KeptLocks<K>(Mutex<HashMap<LockId, Kept<K>>>);

#[derive(Debug)]
struct Kept<K> {
    lock: Lock<K>,
    /// How many of its keys are held.
    records: usize,
}

impl<K> Default for KeptLocks<K> {
    fn default() -> Self {
        Self(Mutex::new(HashMap::new()))
    }
}

impl<K> KeptLocks<K> {
    pub(super) fn insert(&self, id: LockId, lock: Lock<K>, records: usize) {
        if records > 0 {
            self.0.lock().insert(id, Kept { lock, records });
        }
    }

    pub(super) fn take(&self, id: LockId) -> Option<Lock<K>> {
        self.0.lock().remove(&id).map(|kept| kept.lock)
    }

    /// Follows the end of one record.
    pub(super) fn forget(&self, holder: &Holder) {
        if holder.state == State::Kept {
            let mut locks = self.0.lock();
            if let Some(kept) = locks.get_mut(&holder.id) {
                kept.records -= 1;
                if kept.records == 0 {
                    locks.remove(&holder.id);
                }
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}
