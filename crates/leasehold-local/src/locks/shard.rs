use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::task::Waker;

use hashbrown::HashTable;

use super::held::HeldKeys;
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
///
/// The order of the fields is that of the memory: what each lock changes is beside the mutex.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Shard<K> {
    next_id: NonZeroU64,
    pub(super) held: HeldKeys<K>,
    pub(super) leases: Leases<K>,
    queues: HashTable<Queue<K>>,
    id_step: u64,
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
            held: HeldKeys::default(),
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
        self.held.holders(claim.hash, &claim.key)
    }

    /// The term of a lock, if it holds the key.
    pub(super) fn term_of(&self, claim: &Claim<K>, id: LockId) -> Option<Term> {
        let lock = self.holders(claim)?.all().iter().find(|holder| holder.id == id)?;
        Some(lock.term)
    }

    pub(super) fn holders_mut(&mut self, claim: &Claim<K>) -> Option<&mut Holders> {
        self.held.holders_mut(claim.hash, &claim.key)
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
        if let Some(holders) = self.held.holders_mut(claim.hash, &claim.key) {
            let admitted = holders.admit(claim.mode);
            if admitted {
                holders.push(holder());
            }
            return admitted;
        }
        self.held.insert(claim.key.clone(), claim.hash, holder());
        true
    }

    /// Adds a holder that the present ones admit.
    pub(super) fn add(&mut self, claim: &Claim<K>, holder: Holder) {
        match self.held.holders_mut(claim.hash, &claim.key) {
            Some(holders) => holders.push(holder),
            None => self.held.insert(claim.key.clone(), claim.hash, holder),
        }
    }

    /// Removes the holder of a lock, and says whether it was there.
    pub(super) fn remove(&mut self, claim: &Claim<K>, id: LockId) -> bool {
        let mut found = false;
        self.held.retain(claim.hash, &claim.key, |holder| {
            found |= holder.id == id;
            holder.id != id
        });
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
        let holders = self.held.holders_mut(claim.hash, &claim.key)?;
        let Holders::One(holder) = holders else { return None };
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

    /// All keys that somebody waits for.
    pub(super) fn queues(&self) -> impl Iterator<Item = &Queue<K>> {
        self.queues.iter()
    }
}
