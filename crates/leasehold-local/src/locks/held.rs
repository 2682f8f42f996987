//! Which keys of a shard are held.

use hashbrown::HashTable;

use super::holder::{Holder, Holders};
use super::room::trim;

/// A key that is held.
#[derive(Debug)]
pub(super) struct Held<K> {
    pub(super) key: K,
    pub(super) holders: Holders,
}

/// A key that is held, with its hash.
#[derive(Debug)]
struct Hashed<K> {
    hash: u64,
    held: Held<K>,
}

/// The keys of a shard that are held.
///
/// One of them has its place beside the mutex of the shard. Mostly there is no other, and then a lock does not touch the memory of
/// the map: what two processors pass to each other is the shard itself, and of that one cache line if a key is as small as a number.
#[derive(Debug)]
#[repr(C)]
pub(super) struct HeldKeys<K> {
    one: Option<Held<K>>,
    others: HashTable<Hashed<K>>,
}

/// How far a sweep of the keys is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    /// 0 is the place beside the mutex; the buckets of the map follow.
    next: usize,
    /// How many buckets the map had.
    buckets: usize,
}

impl<K> Default for HeldKeys<K> {
    fn default() -> Self {
        Self { one: None, others: HashTable::new() }
    }
}

impl<K: Eq> HeldKeys<K> {
    #[inline]
    pub(super) fn holders(&self, hash: u64, key: &K) -> Option<&Holders> {
        if let Some(one) = &self.one {
            if one.key == *key {
                return Some(&one.holders);
            }
        }
        if self.others.is_empty() {
            return None;
        }
        self.others.find(hash, |one| one.held.key == *key).map(|one| &one.held.holders)
    }

    #[inline]
    pub(super) fn holders_mut(&mut self, hash: u64, key: &K) -> Option<&mut Holders> {
        if let Some(one) = &mut self.one {
            if one.key == *key {
                return Some(&mut one.holders);
            }
        }
        if self.others.is_empty() {
            return None;
        }
        self.others.find_mut(hash, |one| one.held.key == *key).map(|one| &mut one.held.holders)
    }

    /// Adds a key that is not held.
    #[inline]
    pub(super) fn insert(&mut self, key: K, hash: u64, holder: Holder) {
        let held = Held { key, holders: Holders::One(holder) };
        if self.one.is_none() {
            self.one = Some(held);
        } else {
            self.others.insert_unique(hash, Hashed { hash, held }, |one| one.hash);
        }
    }

    /// Keeps those holders of a key that `keep` selects.
    #[inline]
    pub(super) fn retain(&mut self, hash: u64, key: &K, keep: impl FnMut(&Holder) -> bool) {
        if let Some(one) = &mut self.one {
            if one.key == *key {
                if one.holders.retain(keep) {
                    self.one = None;
                }
                return;
            }
        }
        if let Ok(mut found) = self.others.find_entry(hash, |one| one.held.key == *key) {
            if found.get_mut().held.holders.retain(keep) {
                found.remove();
                trim(&mut self.others, |one| one.hash);
            }
        }
    }

    /// Keeps those holders of all keys that `keep` selects.
    pub(super) fn retain_all(&mut self, mut keep: impl FnMut(&Holder) -> bool) {
        self.one.take_if(|held| held.holders.retain(&mut keep));
        self.others.retain(|one| !one.held.holders.retain(&mut keep));
    }

    /// Drops those holders that `gone` selects among the next `batch` keys from `from` on. `changed` gets
    /// each key that lost one. Returns where to go on.
    pub(super) fn sweep(
        &mut self,
        from: Cursor,
        batch: usize,
        mut gone: impl FnMut(&Holder) -> bool,
        mut changed: impl FnMut(&K),
    ) -> Option<Cursor> {
        let mut is_free = |held: &mut Held<K>| {
            let mut any = false;
            let is_free = held.holders.retain(|holder| {
                let gone = gone(holder);
                any |= gone;
                !gone
            });
            if any {
                changed(&held.key);
            }
            is_free
        };
        let mut looked_at = 0;
        let buckets = self.others.num_buckets();
        // Keys are elsewhere once the map has grown or shrunk.
        let first = if from.buckets == buckets { from.next } else { 0 };
        for place in first..=buckets {
            if looked_at == batch {
                return Some(Cursor { next: place, buckets });
            }
            let Some(bucket) = place.checked_sub(1) else {
                looked_at += usize::from(self.one.is_some());
                self.one.take_if(&mut is_free);
                continue;
            };
            let Ok(mut found) = self.others.get_bucket_entry(bucket) else { continue };
            looked_at += 1;
            if is_free(&mut found.get_mut().held) {
                found.remove();
            }
        }
        trim(&mut self.others, |one| one.hash);
        None
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Held<K>> {
        self.one.iter().chain(self.others.iter().map(|one| &one.held))
    }
}
