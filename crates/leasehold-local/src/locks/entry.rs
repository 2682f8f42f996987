use std::hash::BuildHasher;
use std::time::Duration;

use leasehold_core::Mode;

use super::holder::{Holder, LockId, State, nanos};
use super::owner::Owner;
use super::shard::Slot;
use super::table::{LockKey, Table};

/// One lock on one key, or on the whole table.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Entry<K> {
    /// The key; `None` for the whole table.
    pub key: Option<K>,
    /// How it is held.
    pub mode: Mode,
    /// The lock.
    pub id: LockId,
    /// Its owner, if it has one.
    pub owner: Option<Owner>,
    /// How long it has been held. `None` if it has no time-out, for then no clock was read, unless the table is to know
    /// the [ages](super::LocksConfig::ages) of all locks.
    pub age: Option<Duration>,
    /// Its time-out.
    pub lock_timeout: Option<Duration>,
    /// Its time-out has passed or its owner has died, and nobody has taken it yet.
    pub is_stale: bool,
    /// How many requests wait for the key.
    pub waiters: usize,
}

impl<K: LockKey> Entry<K> {
    fn new(table: &Table<K>, key: Option<K>, holder: &Holder, waiters: usize) -> Self {
        let now = nanos(table.clock.now());
        Self {
            key,
            mode: holder.mode(),
            id: holder.id,
            owner: holder.owner.clone(),
            age: holder.term.began().map(|began| Duration::from_nanos(now.saturating_sub(began))),
            lock_timeout: holder.term.length(),
            is_stale: holder.is_stale(|| now),
            waiters,
        }
    }
}

impl<K: LockKey> Table<K> {
    /// All locks, in key order, the whole table's first.
    pub(super) fn entries(&self) -> Vec<Entry<K>> {
        let mut entries = Vec::new();
        {
            let gate = self.gate.lock();
            entries.extend(
                gate.holder.iter().map(|holder| Entry::new(self, None, holder, gate.queue.len())),
            );
        }
        for shard in &self.shards {
            let shard = shard.lock();
            for held in shard.held.iter() {
                let queue = shard.queue(self.hasher.hash_one(&held.key), &held.key);
                let waiters = queue.map_or(0, |queue| queue.places.len());
                let holders = held.holders.all().iter().filter(|one| one.state != State::Reserved);
                entries.extend(
                    holders.map(|one| Entry::new(self, Some(held.key.clone()), one, waiters)),
                );
            }
        }
        entries.sort_by(|a, b| (&a.key, a.id).cmp(&(&b.key, b.id)));
        entries
    }

    /// True if it keeps nothing: nobody holds or waits for a lock.
    pub(super) fn is_empty(&self) -> bool {
        let idle = self.gate.lock().is_idle();
        let is_free = |shard: &Slot<K>| {
            let shard = shard.lock();
            shard.held.iter().next().is_none() && shard.leases.is_empty() && shard.has_no_queue()
        };
        idle && self.shards.iter().all(is_free) && self.kept.is_empty()
    }
}
