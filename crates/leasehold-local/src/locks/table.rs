use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use leasehold_core::Clock;

use super::after::After;
use super::config::LocksConfig;
use super::forgetting::Forgetting;
use super::gate::{Gate, GateMutex};
use super::holder::{Holder, Instant, NEVER, State, Term, nanos};
use super::kept::KeptLocks;
use super::keys::Claim;
use super::owner::OwnersTable;
use super::queue::{Alone, Place};
use super::registry::TableName;
use super::request::Terms;
use super::shard::{Shard, Slot};
use super::sweeps::Sweeps;
use super::sync::{AtomicBool, AtomicU64, Hasher, MutexGuard, Ordering};

/// What a key of a table must be.
pub trait LockKey: Ord + Hash + Clone + Send + Sync + 'static {}

impl<K: Ord + Hash + Clone + Send + Sync + 'static> LockKey for K {}

/// The table: who holds and who waits.
///
/// Order of the mutexes: the gate, then shards by index, then the index of kept locks or a waiter's signal.
/// Nothing is woken before all are unlocked.
pub(super) struct Table<K> {
    pub(super) shards: Box<[Slot<K>]>,
    pub(super) hasher: Hasher,
    /// The lock of the whole table.
    pub(super) gate: GateMutex<K>,
    /// False only if nobody holds or awaits the whole table. Set before the shards are looked at, and read under a
    /// shard's mutex, which orders it.
    pub(super) gated: AtomicBool,
    /// Counts waiters for several keys or for the whole table.
    tickets: AtomicU64,
    /// The locks that are known by their ids.
    pub(super) kept: KeptLocks<K>,
    pub(super) sweeps: Sweeps,
    /// The highest token of all leases (C7).
    pub(super) mark: AtomicU64,
    pub(super) forgetting: Forgetting,
    pub(super) clock: Arc<dyn Clock>,
    /// Newcomers overtake waiters.
    pub(super) barging: bool,
    /// The name by which it is found.
    pub(super) name: Option<TableName>,
}

/// The ticket of a request that did not wait: behind all others.
pub(super) const NEWCOMER: u64 = u64::MAX;

impl<K: LockKey> Table<K> {
    pub(super) fn new(config: &LocksConfig, name: Option<TableName>) -> Self {
        let shards = config.shards;
        let shard = |index| Slot::new(Shard::new(index, shards));
        Self {
            shards: (0..shards).map(shard).collect(),
            hasher: Hasher::default(),
            gate: GateMutex::default(),
            gated: AtomicBool::new(false),
            tickets: AtomicU64::new(0),
            kept: KeptLocks::new(shards),
            sweeps: Sweeps::new(config),
            mark: AtomicU64::new(0),
            forgetting: Forgetting::default(),
            clock: config.clock.clone(),
            barging: config.barging,
            name,
        }
    }

    pub(super) fn now(&self) -> Instant {
        nanos(self.clock.now())
    }

    /// A ticket for a waiter for several keys or for the whole table.
    pub(super) fn ticket(&self) -> u64 {
        2 * self.tickets.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A ticket for a waiter for one key alone. Those that get none in between have the same one: the queue of the key is their
    /// order, and so they write nothing that other keys' waiters read.
    pub(super) fn ticket_alone(&self) -> u64 {
        2 * self.tickets.load(Ordering::Relaxed)
    }

    /// The index of the shard of a hash. The map inside the shard uses the bits at both ends.
    pub(super) fn index(&self, hash: u64) -> usize {
        usize::try_from((hash >> 32) & 0xffff).unwrap_or(0) & (self.shards.len() - 1)
    }

    pub(super) fn slot(&self, hash: u64) -> &Slot<K> {
        &self.shards[self.index(hash)]
    }

    pub(super) fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<K>> {
        self.slot(hash).lock()
    }

    /// Drops the stale holders of a key, and says whether there were any.
    pub(super) fn drop_stale(&self, shard: &mut Shard<K>, (hash, key): (u64, &K)) -> bool {
        let mut any = false;
        shard.held.retain(hash, key, |holder| {
            let ends = self.ends(holder, || self.now());
            any |= ends;
            !ends
        });
        any
    }

    /// Whether a holder is stale and goes; one that does is no longer known by its id.
    pub(super) fn ends(&self, holder: &Holder, now: impl FnOnce() -> Instant) -> bool {
        let stale = holder.is_stale(now);
        if stale {
            self.kept.forget(holder);
        }
        stale
    }

    /// Drops stale holders only if the key does not admit the claim with them.
    pub(super) fn admits(&self, shard: &mut Shard<K>, claim: &Claim<K>) -> bool {
        let key = (claim.hash, &claim.key);
        self.fits(shard, claim) || self.drop_stale(shard, key) && self.fits(shard, claim)
    }

    fn fits(&self, shard: &Shard<K>, claim: &Claim<K>) -> bool {
        let locks = || shard.holders(claim).map_or(0, |holders| holders.all().len());
        shard.admits(claim) && shard.leases.admit(claim, locks, || self.now())
    }

    /// When the first that holds a key goes stale by its term.
    pub(super) fn first_end(&self, shard: &Shard<K>, claim: &Claim<K>) -> Instant {
        let locks = shard.holders(claim).map_or(NEVER, |holders| holders.first_end());
        locks.min(shard.leases.first_end(claim, || self.now()))
    }

    /// Lets the waiters of a key go on in their order, until one is blocked. That one looks again when a lock that
    /// blocks it goes stale.
    pub(super) fn settle(
        &self,
        shard: &mut Shard<K>,
        gate: Option<&mut Gate<K>>,
        key: (u64, &K),
        after: &mut After<K>,
    ) {
        self.settle_from(0, shard, gate, key, after);
    }

    /// The same for the waiters from a place on.
    pub(super) fn settle_from(
        &self,
        mut index: usize,
        shard: &mut Shard<K>,
        mut gate: Option<&mut Gate<K>>,
        (hash, key): (u64, &K),
        after: &mut After<K>,
    ) {
        loop {
            let place = shard.queue(hash, key).and_then(|queue| queue.places.get(index));
            let Some(place) = place else { return };
            if !place.is_active() {
                index += 1;
                continue;
            }
            let claim = place.claim();
            let shut = gate.as_ref().is_some_and(|gate| gate.excludes(key, place.ticket()));
            if shut || !self.fits(shard, claim) {
                let holders = shard.holders(claim);
                let is_stale = |holder: &Holder| holder.is_stale(|| self.now());
                if !shut && holders.is_some_and(|holders| holders.all().iter().any(is_stale)) {
                    self.drop_stale(shard, (hash, key));
                    continue;
                }
                let held_until = self.first_end(shard, claim);
                let shut_until = gate.map_or(NEVER, |gate| gate.held_until());
                let queue = shard.queue_mut(hash, key);
                let place = queue.and_then(|queue| queue.places.get_mut(index));
                after.wake(place.and_then(|place| place.look_at(held_until.min(shut_until))));
                return;
            }
            if self.barging && !place.is_next() {
                after.wake(place.let_try());
                if !claim.mode.is_shared() {
                    return;
                }
                index += 1;
                continue;
            }
            let Some(place) = shard.remove_place(hash, key, index) else { return };
            if let Some(gate) = gate.as_deref_mut() {
                gate.note(hash, key);
            }
            if self.take(shard, place, after) {
                return;
            }
        }
    }

    /// Gives a key to a waiter: its lock, if it is the only key, or else a reservation. True if nobody behind it can go on, and
    /// none of them has to look when this goes stale.
    fn take(&self, shard: &mut Shard<K>, place: Place<K>, after: &mut After<K>) -> bool {
        let start = |terms: &Terms| Term::start(terms.timeout, || self.now());
        let (id, claim) = (place.id(), place.claim());
        let (is_exclusive, mut term) = (!claim.mode.is_shared(), Term::NEVER);
        match place {
            Place::Alone(Alone { ref claim, ref terms, waker, .. }) => {
                term = start(terms);
                shard.add(claim, terms.holder(id, claim, State::Held, term));
                after.wake(waker);
            }
            Place::OneOf { ref waiting, .. } if waiting.claims.keyed().len() == 1 => {
                term = start(&waiting.terms);
                shard.add(claim, waiting.terms.holder(id, claim, State::Held, term));
                after.wake(waiting.grant(term));
            }
            Place::OneOf { ref waiting, position, .. } => {
                shard.add(claim, waiting.terms.holder(id, claim, State::Reserved, Term::NEVER));
                after.step(waiting.clone(), position + 1);
            }
        }
        is_exclusive && term.ends() == NEVER
    }
}

impl<K: LockKey> OwnersTable for Table<K> {
    fn owner_died(&self) {
        self.settle_whole();
    }
}

impl<K> fmt::Debug for Table<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}
