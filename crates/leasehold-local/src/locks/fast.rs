//! The usual case: nobody waits.

use std::task::Waker;

use super::access::{Entered, shard_at};
use super::after::After;
use super::holder::{LockId, NEVER, State, Term};
use super::keys::{Claim, Claims};
use super::lock::Grant;
use super::queue::{Alone, Place};
use super::request::{News, Terms};
use super::shard::{Shard, Slot};
use super::sync::{MutexGuard, Ordering, wake};
use super::table::{LockKey, NEWCOMER, Table};
use super::waiter::Waiter;

impl<K: LockKey> Table<K> {
    /// Acquires keys at once, if nobody waits for a key of their shards or for the whole table. `None` decides nothing.
    #[inline]
    pub(super) fn acquire_fast(&self, claims: &Claims<K>, terms: &Terms) -> Option<Grant> {
        match claims {
            Claims::One([claim]) => self.acquire_key(claim, terms),
            Claims::Many(claims) => self.acquire_keys(claims, terms),
            Claims::Whole => None,
        }
    }

    #[inline]
    fn acquire_key(&self, claim: &Claim<K>, terms: &Terms) -> Option<Grant> {
        let slot = self.slot(claim.hash);
        if !self.barging && slot.seems_awaited() {
            return None;
        }
        let term = Term::start(terms.timeout, || self.now());
        let mut shard = slot.lock();
        if !self.admits_newcomers(&shard) || shard.leases.has(claim) {
            return None;
        }
        let id = shard.mint();
        let holder = || terms.holder(id, claim, State::Held, term);
        shard.add_if_admitted(claim, holder).then_some(Grant { id, term })
    }

    /// Asks for one key, of which and of no other the shard is locked, where newcomers do not overtake. Nobody is at the gate.
    pub(super) fn enter_key(
        &self,
        slot: &Slot<K>,
        mut shard: MutexGuard<'_, Shard<K>>,
        claim: &Claim<K>,
        terms: &Terms,
        waker: Option<Waker>,
    ) -> Entered<K> {
        let id = shard.mint();
        let mut after = None;
        let has_queue = !shard.has_no_queue();
        if has_queue
            && (self.drop_stale(&mut shard, (claim.hash, &claim.key)) || shard.leases.has(claim))
        {
            let after = after.get_or_insert_default();
            self.settle(&mut shard, None, (claim.hash, &claim.key), after);
        }
        let is_awaited = shard.is_awaited(claim.hash, &claim.key, NEWCOMER);
        let entered = if !is_awaited && self.admits(&mut shard, claim) {
            let term = Term::start(terms.timeout, || self.now());
            shard.add(claim, terms.holder(id, claim, State::Held, term));
            Entered::Granted(Grant { id, term })
        } else if let Some(waker) = waker {
            let looks_at = self.first_end(&shard, claim);
            let place = Alone {
                id,
                ticket: self.ticket_alone(),
                claim: claim.clone(),
                terms: terms.clone(),
                waker: Some(waker),
                looks_at,
            };
            shard.enqueue(claim, Place::Alone(place));
            Entered::Waiting(Waiter::Alone(id), Some(looks_at))
        } else {
            Entered::Refused
        };
        slot.hint(&shard);
        drop(shard);
        if let Some(after) = after {
            self.follow_up(after);
        }
        entered
    }

    fn acquire_keys(&self, claims: &[Claim<K>], terms: &Terms) -> Option<Grant> {
        let term = Term::start(terms.timeout, || self.now());
        let mut shards = self.lock_shards(claims);
        if !shards.iter().all(|(_, shard)| self.admits_newcomers(shard)) {
            return None;
        }
        let id = shards[0].1.mint();
        for (at, claim) in claims.iter().enumerate() {
            let shard = shard_at(&mut shards, self.index(claim.hash));
            let holder = || terms.holder(id, claim, State::Held, term);
            if shard.leases.has(claim) || !shard.add_if_admitted(claim, holder) {
                for claim in &claims[..at] {
                    let shard = shard_at(&mut shards, self.index(claim.hash));
                    shard.held.retain(claim.hash, &claim.key, |holder| holder.id != id);
                }
                return None;
            }
        }
        Some(Grant { id, term })
    }

    /// Releases one key and lets others go on; true if it was held.
    #[inline(never)]
    pub(super) fn release_key(&self, claim: &Claim<K>, id: LockId) -> bool {
        let mut shard = self.shard(claim.hash);
        if self.gated.load(Ordering::Relaxed) {
            drop(shard);
            return self.remove_keys(std::slice::from_ref(claim), |holder| holder.id == id) > 0;
        }
        if !shard.has_no_queue() && shard.leases.is_empty() {
            let start = |terms: &Terms| Term::start(terms.timeout, || self.now());
            if let Some((waker, term)) = shard.hand_over(claim, id, start) {
                self.pass_on(shard, claim, waker, term);
                return true;
            }
        }
        let was_held = shard.remove(claim, id);
        if !shard.has_no_queue() {
            let mut after = After::default();
            self.settle(&mut shard, None, (claim.hash, &claim.key), &mut after);
            drop(shard);
            self.follow_up(after);
        }
        was_held
    }

    /// Wakes the waiter that has got a key, and has the one behind it look when that lock goes stale.
    fn pass_on(
        &self,
        mut shard: MutexGuard<'_, Shard<K>>,
        claim: &Claim<K>,
        waker: Option<Waker>,
        term: Term,
    ) {
        let mut after = None;
        if term.ends() != NEVER {
            let after = after.get_or_insert_default();
            self.settle(&mut shard, None, (claim.hash, &claim.key), after);
        }
        drop(shard);
        waker.into_iter().for_each(wake);
        if let Some(after) = after {
            self.follow_up(after);
        }
    }

    /// What happened to a waiter for one key alone. From then on `waker` is woken when something does.
    pub(super) fn check_alone(&self, claims: &[Claim<K>], id: LockId, waker: &Waker) -> News {
        let claim = &claims[0];
        let mut shard = self.shard(claim.hash);
        if shard.term_of(claim, id).is_some() {
            return News::Granted;
        }
        let Some(alone) = shard.alone_mut(claim, id) else { return News::Ended };
        let (looks_at, old) = (alone.looks_at, alone.replace_waker(waker));
        drop(shard);
        // A waker can own a task, whose end can call the table.
        drop(old);
        News::LooksAt(looks_at)
    }

    fn admits_newcomers(&self, shard: &Shard<K>) -> bool {
        !self.gated.load(Ordering::Relaxed) && (shard.has_no_queue() || self.barging)
    }
}
