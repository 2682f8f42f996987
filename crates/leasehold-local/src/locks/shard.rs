use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::task::Waker;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::holder::{Holder, Holders, LockId, State, Term};
use super::keys::Claim;
use super::leases::Leases;
use super::queue::{Alone, Place, Queue};
use super::request::Terms;
use super::room::trim;
use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

/// A shard, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Slot<K> {
    shard: Mutex<Shard<K>>,
    /// A hint: where somebody waits, who comes is mostly told to wait.
    has_queue: AtomicBool,
}

/// A part of the table: the keys whose hashes name it.
///
/// A key is in `held` only while somebody holds or reserves it, in `leases` only while a store has a record of it, and in
/// `queues` only while somebody waits for it.
#[derive(Debug)]
pub(super) struct Shard<K> {
    held: HashTable<Held<K>>,
    pub(super) leases: Leases<K>,
    queues: HashTable<Queue<K>>,
    next_id: NonZeroU64,
    id_step: u64,
}

/// A key that is held.
#[derive(Debug)]
pub(super) struct Held<K> {
    pub(super) key: K,
    pub(super) hash: u64,
    pub(super) holders: Holders,
}

/// How far a sweep of the shard is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cursor {
    next: usize,
    /// How many buckets the map had.
    buckets: usize,
}

impl<K> Slot<K> {
    pub(super) fn new(shard: Shard<K>) -> Self {
        Self { shard: Mutex::new(shard), has_queue: AtomicBool::new(false) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Shard<K>> {
        self.shard.lock()
    }

    #[inline]
    pub(super) fn seems_awaited(&self) -> bool {
        self.has_queue.load(Ordering::Relaxed)
    }

    pub(super) fn hint(&self, shard: &Shard<K>) {
        self.has_queue.store(!shard.queues.is_empty(), Ordering::Relaxed);
    }
}

impl<K: Eq + Clone> Shard<K> {
    /// The shard at `index` of so many; their ids are all different.
    pub(super) fn new(index: usize, shards: usize) -> Self {
        let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        Self {
            held: HashTable::new(),
            leases: Leases::default(),
            queues: HashTable::new(),
            next_id: NonZeroU64::MIN.saturating_add(number(index)),
            id_step: number(shards),
        }
    }

    /// An id for a new lock.
    pub(super) fn mint(&mut self) -> LockId {
        let id = self.next_id;
        self.next_id = id.saturating_add(self.id_step);
        LockId(id)
    }

    /// True if nobody waits for any key of the shard.
    pub(super) fn has_no_queue(&self) -> bool {
        self.queues.is_empty()
    }

    pub(super) fn holders(&self, claim: &Claim<K>) -> Option<&Holders> {
        let held = self.held.find(claim.hash, |held| held.key == claim.key);
        held.map(|held| &held.holders)
    }

    /// The term of a lock, if it holds the key.
    pub(super) fn term_of(&self, claim: &Claim<K>, id: LockId) -> Option<Term> {
        let lock = self.holders(claim)?.all().iter().find(|holder| holder.id == id)?;
        Some(lock.term)
    }

    pub(super) fn holders_mut(&mut self, claim: &Claim<K>) -> Option<&mut Holders> {
        let held = self.held.find_mut(claim.hash, |held| held.key == claim.key);
        held.map(|held| &mut held.holders)
    }

    /// C9: whether the holders admit one more in this mode, whoever waits.
    pub(super) fn admits(&self, claim: &Claim<K>) -> bool {
        self.holders(claim).is_none_or(|holders| holders.admit(claim.mode))
    }

    /// Adds the holder that `holder` makes if the present ones admit it; one look-up for both.
    pub(super) fn add_if_admitted(
        &mut self,
        claim: &Claim<K>,
        holder: impl FnOnce() -> Holder,
    ) -> bool {
        match self.entry(claim) {
            Entry::Occupied(mut held) => {
                let admitted = held.get().holders.admit(claim.mode);
                if admitted {
                    held.get_mut().holders.push(holder());
                }
                admitted
            }
            Entry::Vacant(free) => {
                let holders = Holders::One(holder());
                free.insert(Held { key: claim.key.clone(), hash: claim.hash, holders });
                true
            }
        }
    }

    /// Adds a holder that the present ones admit.
    pub(super) fn add(&mut self, claim: &Claim<K>, holder: Holder) {
        match self.entry(claim) {
            Entry::Occupied(mut held) => held.get_mut().holders.push(holder),
            Entry::Vacant(free) => {
                let holders = Holders::One(holder);
                free.insert(Held { key: claim.key.clone(), hash: claim.hash, holders });
            }
        }
    }

    fn entry(&mut self, claim: &Claim<K>) -> Entry<'_, Held<K>> {
        self.held.entry(claim.hash, |held| held.key == claim.key, |held| held.hash)
    }

    /// Keeps those holders of a key that `keep` selects.
    pub(super) fn retain(&mut self, hash: u64, key: &K, keep: impl FnMut(&Holder) -> bool) {
        if let Ok(mut held) = self.held.find_entry(hash, |held| held.key == *key) {
            if held.get_mut().holders.retain(keep) {
                held.remove();
                trim(&mut self.held, |held| held.hash);
            }
        }
    }

    /// Removes the holder of a lock, and says whether it was there.
    pub(super) fn remove(&mut self, claim: &Claim<K>, id: LockId) -> bool {
        let Ok(mut held) = self.held.find_entry(claim.hash, |held| held.key == claim.key) else {
            return false;
        };
        let mut found = false;
        let is_free = held.get_mut().holders.retain(|holder| {
            found |= holder.id == id;
            holder.id != id
        });
        if is_free {
            held.remove();
            trim(&mut self.held, |held| held.hash);
        }
        found
    }

    /// Puts the first waiter for a key in the place of the lock that alone holds it, if it waits for an exclusive lock of this key
    /// only; returns its waker and its term. `None` changes nothing.
    #[inline]
    pub(super) fn hand_over(
        &mut self,
        claim: &Claim<K>,
        id: LockId,
        term: impl FnOnce(&Terms) -> Term,
    ) -> Option<(Option<Waker>, Term)> {
        let held = self.held.find_mut(claim.hash, |held| held.key == claim.key)?;
        let Holders::One(holder) = &mut held.holders else { return None };
        let queue = self.queues.find_entry(claim.hash, |queue| queue.key == claim.key);
        let mut queue = queue.ok().filter(|_| holder.id == id)?;
        let Place::Alone(next) = queue.get().places.front()? else { return None };
        if next.claim.mode.is_shared() {
            return None;
        }
        let Some(Place::Alone(next)) = queue.get_mut().places.pop_front() else { return None };
        if queue.get().places.is_empty() {
            queue.remove();
            trim(&mut self.queues, |queue| queue.hash);
        }
        let term = term(&next.terms);
        *holder = next.terms.holder(next.id, &next.claim, State::Held, term);
        Some((next.waker, term))
    }

    /// Keeps those holders of all keys that `keep` selects.
    pub(super) fn retain_all(&mut self, mut keep: impl FnMut(&Holder) -> bool) {
        self.held.retain(|held| !held.holders.retain(&mut keep));
    }

    /// Drops those holders that `gone` selects among the next `batch` keys from `from` on. `changed` gets
    /// each key that lost one. Returns where to go on.
    pub(super) fn sweep(
        &mut self,
        from: Cursor,
        batch: usize,
        mut gone: impl FnMut(&Holder) -> bool,
        mut changed: impl FnMut(u64, &K),
    ) -> Option<Cursor> {
        let mut looked_at = 0;
        let buckets = self.held.num_buckets();
        // Keys are elsewhere once the map has grown or shrunk.
        let first = if from.buckets == buckets { from.next } else { 0 };
        for index in first..buckets {
            if looked_at == batch {
                return Some(Cursor { next: index, buckets });
            }
            let Ok(mut held) = self.held.get_bucket_entry(index) else { continue };
            looked_at += 1;
            let mut any = false;
            let is_free = held.get_mut().holders.retain(|holder| {
                let gone = gone(holder);
                any |= gone;
                !gone
            });
            if any {
                changed(held.get().hash, &held.get().key);
            }
            if is_free {
                held.remove();
            }
        }
        trim(&mut self.held, |held| held.hash);
        None
    }

    pub(super) fn queue(&self, hash: u64, key: &K) -> Option<&Queue<K>> {
        self.queues.find(hash, |queue| queue.key == *key)
    }

    pub(super) fn queue_mut(&mut self, hash: u64, key: &K) -> Option<&mut Queue<K>> {
        self.queues.find_mut(hash, |queue| queue.key == *key)
    }

    /// True if a waiter that came before `ticket` keeps others from the key.
    pub(super) fn is_awaited(&self, hash: u64, key: &K, ticket: u64) -> bool {
        !self.queues.is_empty()
            && self.queue(hash, key).is_some_and(|queue| {
                queue.places.iter().any(|place| place.is_active() && place.ticket() < ticket)
            })
    }

    #[inline]
    pub(super) fn enqueue(&mut self, claim: &Claim<K>, place: Place<K>) {
        let same = |queue: &Queue<K>| queue.key == claim.key;
        let new = || Queue {
            key: claim.key.clone(),
            hash: claim.hash,
            places: VecDeque::with_capacity(1),
        };
        let queue = self.queues.entry(claim.hash, same, |queue| queue.hash).or_insert_with(new);
        queue.into_mut().places.push_back(place);
    }

    /// Removes the place at `index` of the key's queue.
    pub(super) fn remove_place(&mut self, hash: u64, key: &K, index: usize) -> Option<Place<K>> {
        let mut queue = self.queues.find_entry(hash, |queue| queue.key == *key).ok()?;
        let place = queue.get_mut().places.remove(index);
        if queue.get().places.is_empty() {
            queue.remove();
            trim(&mut self.queues, |queue| queue.hash);
        }
        place
    }

    /// The place of a waiter for one key alone.
    pub(super) fn alone_mut(&mut self, claim: &Claim<K>, id: LockId) -> Option<&mut Alone<K>> {
        let places = &mut self.queue_mut(claim.hash, &claim.key)?.places;
        places.iter_mut().find_map(|place| match place {
            Place::Alone(alone) if alone.id == id => Some(alone),
            _ => None,
        })
    }

    /// Removes a waiter's place, if it has one. What is returned is not to be dropped under a mutex: its waker can own a task,
    /// whose end can call the table.
    #[must_use]
    pub(super) fn dequeue(&mut self, claim: &Claim<K>, id: LockId) -> Option<Place<K>> {
        let places = &self.queue(claim.hash, &claim.key)?.places;
        let index = places.iter().position(|place| place.id() == id)?;
        self.remove_place(claim.hash, &claim.key, index)
    }

    /// All keys that are held.
    pub(super) fn held(&self) -> impl Iterator<Item = &Held<K>> {
        self.held.iter()
    }

    /// All keys that somebody waits for.
    pub(super) fn queues(&self) -> impl Iterator<Item = &Queue<K>> {
        self.queues.iter()
    }
}
