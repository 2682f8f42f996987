use std::collections::HashMap;

use super::holder::{Holder, LockId, State};
use super::lock::Lock;
use super::room::has_spare_room;
use super::sync::{Hasher, Mutex, Padded};

/// The locks that are kept without a guard, by their ids, as long as one of their keys is held.
///
/// There is a part for each shard, with the ids that the shard minted. Its mutex is locked after those of gate and
/// shards.
#[derive(Debug)]
pub(super) struct KeptLocks<K>(Box<[Padded<Mutex<Part<K>>>]>);

type Part<K> = HashMap<LockId, Kept<K>, Hasher>;

#[derive(Debug)]
struct Kept<K> {
    lock: Lock<K>,
    /// How many of its keys are held.
    records: usize,
}

impl<K> KeptLocks<K> {
    pub(super) fn new(shards: usize) -> Self {
        Self((0..shards).map(|_| Padded(Mutex::default())).collect())
    }

    pub(super) fn insert(&self, id: LockId, lock: Lock<K>, records: usize) {
        if records > 0 {
            self.part(id).lock().insert(id, Kept { lock, records });
        }
    }

    pub(super) fn take(&self, id: LockId) -> Option<Lock<K>> {
        let mut part = self.part(id).lock();
        let kept = part.remove(&id);
        trim(&mut part);
        kept.map(|kept| kept.lock)
    }

    /// Follows the end of one record.
    pub(super) fn forget(&self, holder: &Holder) {
        if holder.state == State::Kept {
            let mut part = self.part(holder.id).lock();
            if let Some(kept) = part.get_mut(&holder.id) {
                kept.records -= 1;
                if kept.records == 0 {
                    part.remove(&holder.id);
                    trim(&mut part);
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|part| part.0.lock().is_empty())
    }

    fn part(&self, id: LockId) -> &Mutex<Part<K>> {
        &self.0[id.shard(self.0.len())].0
    }
}

/// Gives room back after a peak.
fn trim<K>(part: &mut Part<K>) {
    if has_spare_room(part.len(), part.capacity()) {
        part.shrink_to(2 * part.len());
    }
}
