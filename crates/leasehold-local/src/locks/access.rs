use std::sync::Arc;
use std::task::Waker;

use leasehold_core::Mode;
use smallvec::SmallVec;

use super::after::{After, Step};
use super::error::LockError;
use super::gate::Gate;
use super::holder::{Holder, Instant, LockId, NEVER, State, Term};
use super::keys::{Claim, Claims};
use super::lock::{Grant, Lock};
use super::queue::{Alone, Place};
use super::request::{Terms, Waiting};
use super::shard::Shard;
use super::sync::{MutexGuard, Ordering};
use super::table::{LockKey, NEWCOMER, Table};
use super::waiter::Waiter;

/// How the table answers a request.
#[derive(Debug)]
pub(super) enum Entered<K> {
    Granted(Grant),
    Refused,
    /// With the time when it looks by itself, if it is woken from now on.
    Waiting(Waiter<K>, Option<Instant>),
}

/// The shards of some keys, locked in the order of their indices, behind the gate if there is anybody at it.
pub(super) struct Access<'a, K> {
    pub(super) table: &'a Table<K>,
    pub(super) gate: Option<MutexGuard<'a, Gate<K>>>,
    shards: Shards<'a, K>,
    after: After<K>,
}

/// Locked shards with their indices, in the order of these. A few need no allocation.
pub(super) type Shards<'a, K> = SmallVec<[(usize, MutexGuard<'a, Shard<K>>); 4]>;

impl<K: LockKey> Table<K> {
    pub(super) fn access(&self, claims: &[Claim<K>]) -> Access<'_, K> {
        let mut after = After::default();
        let mut shards = self.lock_shards(claims);
        let mut gate = None;
        if self.gated.load(Ordering::Relaxed) {
            drop(shards);
            gate = Some(self.lock_gate(&mut after));
            shards = self.lock_shards(claims);
        }
        Access { table: self, gate, shards, after }
    }

    pub(super) fn lock_shards(&self, claims: &[Claim<K>]) -> Shards<'_, K> {
        if let [claim] = claims {
            let index = self.index(claim.hash);
            return SmallVec::from_iter([(index, self.shards[index].lock())]);
        }
        let mut set: SmallVec<[u64; 1]> = SmallVec::from_elem(0, self.shards.len().div_ceil(64));
        for claim in claims {
            let index = self.index(claim.hash);
            set[index / 64] |= 1 << (index % 64);
        }
        let mut shards = Shards::new();
        for (word, mut bits) in set.into_iter().enumerate() {
            while bits != 0 {
                let index = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                shards.push((index, self.shards[index].lock()));
            }
        }
        shards
    }

    /// Asks for a lock: it is granted, or else refused without a trace, or waited for if there is a waker.
    pub(super) fn enter(
        &self,
        claims: &Claims<K>,
        terms: &Terms,
        waker: Option<Waker>,
    ) -> Entered<K> {
        match claims {
            Claims::Whole => return self.enter_whole(terms, waker.is_some()),
            Claims::One([claim]) if !self.barging => {
                let slot = self.slot(claim.hash);
                let shard = slot.lock();
                if !self.gated.load(Ordering::Relaxed) {
                    return self.enter_key(slot, shard, claim, terms, waker);
                }
            }
            _ => {}
        }
        let keyed = claims.keyed();
        let mut access = self.access(keyed);
        for claim in keyed {
            access.settle(claim);
        }
        let id = access.shard(&keyed[0]).mint();
        let Some(blocked) = access.blocked(keyed, NEWCOMER) else {
            let term = Term::start(terms.timeout, || self.now());
            for claim in keyed {
                access.add(claim, terms.holder(id, claim, State::Held, term));
            }
            access.finish();
            return Entered::Granted(Grant { id, term });
        };
        if waker.is_none() {
            access.finish();
            return Entered::Refused;
        }
        let waiting = Arc::new(Waiting::new(id, self.ticket(), claims.clone(), terms.clone()));
        access.join(&waiting, Some(blocked));
        access.finish();
        Entered::Waiting(Waiter::Shared(waiting), None)
    }

    /// Asks for a lock that is not to be waited for.
    pub(super) fn try_enter(&self, claims: &Claims<K>, terms: &Terms) -> Result<Grant, LockError> {
        match self.enter(claims, terms, None) {
            Entered::Granted(grant) => Ok(grant),
            _ => Err(LockError::Held),
        }
    }

    /// Removes the records of a lock; true if none was missing.
    #[inline]
    pub(super) fn release(&self, claims: &Claims<K>, id: LockId) -> bool {
        match claims {
            Claims::Whole => self.leave_gate(|holder| holder.id == id),
            claims => {
                let mut present = true;
                for claim in claims.keyed() {
                    present &= self.release_key(claim, id);
                }
                present
            }
        }
    }

    /// Removes those records that `gone` selects and lets others go on; returns how many they were.
    pub(super) fn remove(&self, claims: &Claims<K>, gone: impl FnMut(&Holder) -> bool) -> usize {
        match claims {
            Claims::Whole => usize::from(self.leave_gate(gone)),
            claims => self.remove_keys(claims.keyed(), gone),
        }
    }

    /// The same of some keys.
    pub(super) fn remove_keys(
        &self,
        claims: &[Claim<K>],
        mut gone: impl FnMut(&Holder) -> bool,
    ) -> usize {
        let mut removed = 0;
        let mut access = self.access(claims);
        for claim in claims {
            access.shard(claim).held.retain(claim.hash, &claim.key, |holder| {
                let goes = holder.state != State::Reserved && gone(holder);
                if goes {
                    self.kept.forget(holder);
                    removed += 1;
                }
                !goes
            });
            access.settle(claim);
        }
        access.finish();
        removed
    }

    /// Makes a lock known by its id, as far as it is still there.
    pub(super) fn keep(&self, id: LockId, lock: Lock<K>) {
        let mark = |holder: &mut Holder| {
            let same = holder.id == id;
            if same {
                holder.state = State::Kept;
            }
            usize::from(same)
        };
        if matches!(lock.claims, Claims::Whole) {
            let mut gate = self.gate.lock();
            let records = gate.holder.as_mut().map_or(0, mark);
            return self.kept.insert(id, lock, records);
        }
        let claims = lock.claims.keyed();
        let mut access = self.access(claims);
        let mut records = 0;
        for claim in claims {
            let holders = access.shard(claim).holders_mut(claim).into_iter();
            records += holders.flat_map(|holders| holders.all_mut()).map(mark).sum::<usize>();
        }
        self.kept.insert(id, lock, records);
        access.finish();
    }

    /// Removes a waiter; returns the term if its lock had been granted already.
    pub(super) fn cancel(&self, waiting: &Waiting<K>) -> Option<Term> {
        if matches!(waiting.claims, Claims::Whole) {
            return self.cancel_whole(waiting);
        }
        self.withdraw(waiting.claims.keyed(), waiting.id, |_| waiting.signal().granted)
    }

    /// The same of a waiter for one key alone.
    pub(super) fn cancel_alone(&self, claims: &[Claim<K>], id: LockId) -> Option<Term> {
        self.withdraw(claims, id, |access| access.shard(&claims[0]).term_of(&claims[0], id))
    }

    fn withdraw(
        &self,
        claims: &[Claim<K>],
        id: LockId,
        granted: impl FnOnce(&mut Access<'_, K>) -> Option<Term>,
    ) -> Option<Term> {
        let mut access = self.access(claims);
        let granted = granted(&mut access);
        let mut left: SmallVec<[Place<K>; 1]> = SmallVec::new();
        if granted.is_none() {
            for claim in claims {
                let shard = access.shard(claim);
                shard.held.retain(claim.hash, &claim.key, |holder| holder.id != id);
                left.extend(shard.dequeue(claim, id));
                access.settle(claim);
            }
        }
        access.finish();
        drop(left);
        granted
    }

    /// Gives a waiter its lock if that is free. Otherwise others may try, for it was chosen in their place.
    pub(super) fn try_again(&self, waiting: &Waiting<K>) {
        if matches!(waiting.claims, Claims::Whole) {
            return;
        }
        let claims = waiting.claims.keyed();
        let mut access = self.access(claims);
        if claims.iter().all(|claim| access.is_free(claim, waiting.ticket)) {
            let term = Term::start(waiting.terms.timeout, || self.now());
            for claim in claims {
                drop(access.shard(claim).dequeue(claim, waiting.id));
                access.add(claim, waiting.terms.holder(waiting.id, claim, State::Held, term));
            }
            access.after.wake(waiting.grant(term));
            // Those behind it learn when its lock goes stale.
            for claim in claims {
                access.settle(claim);
            }
        } else {
            waiting.miss();
            for claim in claims {
                access.settle_behind(claim, waiting.id);
                access.look_again(claim, waiting.id);
            }
        }
        access.finish();
    }

    /// Looks on behalf of a waiter whether what it waits for has gone stale.
    pub(super) fn look(&self, waiting: &Waiting<K>) {
        // What it finds now decides when it looks next.
        waiting.quiet();
        if matches!(waiting.claims, Claims::Whole) {
            return self.look_whole(waiting);
        }
        let mut access = self.access(waiting.claims.keyed());
        for claim in waiting.claims.keyed() {
            access.settle(claim);
            access.look_again(claim, waiting.id);
        }
        access.finish();
    }

    /// The same on behalf of a waiter for one key alone.
    pub(super) fn look_alone(&self, claims: &[Claim<K>], id: LockId) {
        let (mut access, claim) = (self.access(claims), &claims[0]);
        let waker = access.shard(claim).alone_mut(claim, id).and_then(Alone::quiet);
        access.settle(claim);
        access.look_again(claim, id);
        access.finish();
        drop(waker);
    }

    /// Lets the waiters of some keys go on.
    pub(super) fn settle_keys(&self, keys: Vec<(u64, K)>) {
        for (hash, key) in keys {
            let claim = Claim { key, hash, mode: Mode::Exclusive };
            let mut access = self.access(std::slice::from_ref(&claim));
            access.settle(&claim);
            access.finish();
        }
    }

    /// Does what was put off until the mutexes were unlocked.
    pub(super) fn follow_up(&self, mut after: After<K>) {
        loop {
            while let Some(step) = after.next() {
                after.extend(self.take_step(&step));
            }
            let Some(mover) = after.mover() else { return };
            self.move_on(mover, &mut after);
        }
    }

    /// Lets a waiter for several keys go on.
    fn take_step(&self, Step { waiting, position }: &Step<K>) -> After<K> {
        let claims = waiting.claims.keyed();
        match claims.get(*position) {
            Some(claim) => {
                let mut access = self.access(std::slice::from_ref(claim));
                access.activate(claim, waiting.id);
                access.settle(claim);
                access.close()
            }
            None => {
                let mut access = self.access(claims);
                access.complete(waiting);
                access.close()
            }
        }
    }
}

impl<'a, K: LockKey> Access<'a, K> {
    pub(super) fn shard(&mut self, claim: &Claim<K>) -> &mut Shard<K> {
        shard_at(&mut self.shards, self.table.index(claim.hash))
    }

    pub(super) fn settle(&mut self, claim: &Claim<K>) {
        let shard = shard_at(&mut self.shards, self.table.index(claim.hash));
        if !shard.has_no_queue() {
            let key = (claim.hash, &claim.key);
            self.table.settle(shard, self.gate.as_deref_mut(), key, &mut self.after);
        }
        self.forget(claim);
    }

    /// Has the first at the gate forget a key that nobody has or waits for.
    fn forget(&mut self, claim: &Claim<K>) {
        if self.gate.is_none() {
            return;
        }
        let shard = self.shard(claim);
        let is_free = shard.holders(claim).is_none()
            && shard.queue(claim.hash, &claim.key).is_none()
            && !shard.leases.has(claim);
        if let Some(gate) = self.gate.as_deref_mut().filter(|_| is_free) {
            gate.forget(&claim.key);
        }
    }

    /// Lets those go on who wait behind a waiter.
    fn settle_behind(&mut self, claim: &Claim<K>, id: LockId) {
        let shard = shard_at(&mut self.shards, self.table.index(claim.hash));
        let places = shard.queue(claim.hash, &claim.key).map(|queue| queue.places.iter());
        if let Some(at) = places.and_then(|mut places| places.position(|one| one.id() == id)) {
            let key = (claim.hash, &claim.key);
            let gate = self.gate.as_deref_mut();
            self.table.settle_from(at + 1, shard, gate, key, &mut self.after);
        }
    }

    /// Whether a request that came with this ticket may have the key.
    fn is_free(&mut self, claim: &Claim<K>, ticket: u64) -> bool {
        let table = self.table;
        !self.is_awaited(claim, ticket) && table.admits(self.shard(claim), claim)
    }

    /// Whether others keep a request that came with this ticket from a key: they wait for it, or have the whole table.
    pub(super) fn is_awaited(&mut self, claim: &Claim<K>, ticket: u64) -> bool {
        let shut = self.gate.as_ref().is_some_and(|gate| gate.excludes(&claim.key, ticket));
        shut || (!self.table.barging
            && self.shard(claim).is_awaited(claim.hash, &claim.key, ticket))
    }

    fn add(&mut self, claim: &Claim<K>, holder: Holder) {
        self.shard(claim).add(claim, holder);
        if let Some(gate) = self.gate.as_deref_mut() {
            gate.note(claim.hash, &claim.key);
        }
    }

    /// The position of the first key that is not free.
    pub(super) fn blocked(&mut self, claims: &[Claim<K>], ticket: u64) -> Option<usize> {
        claims.iter().position(|claim| !self.is_free(claim, ticket))
    }

    /// Joins the queues of a waiter's keys in one step: it reserves those before the one that blocks it, and waits for that.
    pub(super) fn join(&mut self, waiting: &Arc<Waiting<K>>, blocked: Option<usize>) {
        let (claims, barging) = (waiting.claims.keyed(), self.table.barging);
        let free = if barging { 0 } else { blocked.unwrap_or(claims.len()) };
        for claim in &claims[..free] {
            let holder = waiting.terms.holder(waiting.id, claim, State::Reserved, Term::NEVER);
            self.add(claim, holder);
        }
        for (position, claim) in claims.iter().enumerate().skip(free) {
            let active = barging || position == free;
            let place = Place::OneOf { waiting: waiting.clone(), position, active };
            self.shard(claim).enqueue(claim, place);
            self.look_again(claim, waiting.id);
        }
        if free == claims.len() {
            // What blocked it went stale since it was refused.
            self.after.step(waiting.clone(), free);
        }
    }

    /// Has a waiter look again when the first lock that blocks it at a key goes stale, if it waits for that key now.
    fn look_again(&mut self, claim: &Claim<K>, id: LockId) {
        let shut_until = self.gate.as_ref().map_or(NEVER, |gate| gate.held_until());
        let table = self.table;
        let shard = self.shard(claim);
        let held_until = table.first_end(shard, claim);
        let until = held_until.min(shut_until);
        if until == NEVER {
            return;
        }
        let queue = shard.queue_mut(claim.hash, &claim.key);
        let places = queue.into_iter().flat_map(|queue| &mut queue.places);
        // Who has just joined is the last.
        let place = places.rev().find(|place| place.is_active() && place.id() == id);
        let waker = place.and_then(|place| place.look_at(until));
        self.after.wake(waker);
    }

    /// Lets a waiter wait for a key, all smaller ones of which it has.
    fn activate(&mut self, claim: &Claim<K>, id: LockId) {
        // A waiter that was cancelled meanwhile has no place.
        if let Some(queue) = self.shard(claim).queue_mut(claim.hash, &claim.key) {
            queue.places.iter_mut().filter(|place| place.id() == id).for_each(Place::activate);
        }
    }

    /// Turns the reservations of all keys of a waiter into its lock, unless it was cancelled meanwhile.
    fn complete(&mut self, waiting: &Waiting<K>) {
        let claims = waiting.claims.keyed();
        let term = Term::start(waiting.terms.timeout, || self.table.now());
        let mut granted = false;
        for claim in claims {
            let holders = self.shard(claim).holders_mut(claim);
            for holder in holders.into_iter().flat_map(|holders| holders.all_mut()) {
                if holder.id == waiting.id {
                    (holder.state, holder.term) = (State::Held, term);
                    granted = true;
                }
            }
        }
        if granted {
            self.after.wake(waiting.grant(term));
            // Those behind it waited for a reservation, which does not go stale, and now wait for a lock.
            for claim in claims {
                self.settle(claim);
            }
        }
    }

    /// Unlocks, and hands over what is to be done then.
    fn close(self) -> After<K> {
        let Self { table, gate, shards, mut after } = self;
        drop(shards);
        if let Some(gate) = gate {
            table.unlock_gate(gate, &mut after);
        }
        after
    }

    pub(super) fn finish(self) {
        let table = self.table;
        table.follow_up(self.close());
    }
}

/// The locked shard at an index.
pub(super) fn shard_at<'s, K>(shards: &'s mut Shards<'_, K>, index: usize) -> &'s mut Shard<K> {
    let at = shards.partition_point(|(other, _)| *other < index);
    &mut shards[at].1
}
