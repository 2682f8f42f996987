//! The usual case: nobody waits.

use std::sync::Arc;
use std::task::Waker;

use super::access::{Entered, shard_at};
use super::after::After;
use super::holder::{LockId, NEVER, State, Term};
use super::keys::{Claim, Claims};
use super::lock::Grant;
use super::request::{Terms, Waiting};
use super::shard::{Place, Shard};
use super::sync::{MutexGuard, Ordering, wake};
use super::table::{LockKey, NEWCOMER, Table};

impl<K: LockKey> Table<K> {
    /// Acquires keys at once, if nobody waits for a key of their shards or for the whole table. `None` decides nothing.
    #[inline]
    pub(super) fn acquire_fast(&self, claims: &Claims<K>, terms: &Terms) -> Option<(LockId, Term)> {
        match claims {
            Claims::One([claim]) => self.acquire_key(claim, terms),
            Claims::Many(claims) => self.acquire_keys(claims, terms),
            Claims::Whole => None,
        }
    }

    #[inline]
    fn acquire_key(&self, claim: &Claim<K>, terms: &Terms) -> Option<(LockId, Term)> {
        let term = Term::start(terms.timeout, || self.now());
        let mut shard = self.shard(claim.hash);
        if !self.admits_newcomers(&shard) || shard.leases.has(claim) {
            return None;
        }
        let id = shard.mint();
        let holder = || terms.holder(id, claim, State::Held, term);
        shard.add_if_admitted(claim, holder).then_some((id, term))
    }

    /// Asks for one key, of which and of no other the shard is locked. Nobody is at the gate.
    pub(super) fn enter_key(
        &self,
        mut shard: MutexGuard<'_, Shard<K>>,
        claim: Claim<K>,
        terms: Terms,
        waker: Option<Waker>,
    ) -> Entered<K> {
        let id = shard.mint();
        let mut after = None;
        let has_queue = !shard.has_no_queue();
        if has_queue && (self.drop_stale(&mut shard, &claim) || shard.leases.has(&claim)) {
            let after = after.get_or_insert_default();
            self.settle(&mut shard, None, (claim.hash, &claim.key), after);
        }
        let is_awaited = !self.barging && shard.is_awaited(claim.hash, &claim.key, NEWCOMER);
        let entered = if !is_awaited && self.admits(&mut shard, &claim) {
            let term = Term::start(terms.timeout, || self.now());
            shard.add(&claim, terms.holder(id, &claim, State::Held, term));
            Entered::Granted(Grant { id, claims: Claims::One([claim]), term, owner: terms.owner })
        } else if let Some(waker) = waker {
            let looks_at = self.first_end(&shard, &claim);
            let claims = Claims::One([claim.clone()]);
            let waiting = Waiting::new(id, self.ticket(), claims, terms).woken_by(waker, looks_at);
            let waiting = Arc::new(waiting);
            shard.enqueue(&claim, Place { waiting: waiting.clone(), position: 0, active: true });
            Entered::Waiting(waiting, Some(looks_at))
        } else {
            Entered::Refused(Claims::One([claim]), terms)
        };
        drop(shard);
        if let Some(after) = after {
            self.follow_up(after);
        }
        entered
    }

    fn acquire_keys(&self, claims: &[Claim<K>], terms: &Terms) -> Option<(LockId, Term)> {
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
                    shard.retain(claim.hash, &claim.key, |holder| holder.id != id);
                }
                return None;
            }
        }
        Some((id, term))
    }

    /// Releases one key and lets others go on; true if it was held.
    pub(super) fn release_key(&self, claim: &Claim<K>, id: LockId) -> bool {
        let mut shard = self.shard(claim.hash);
        if self.gated.load(Ordering::Relaxed) {
            drop(shard);
            return self.remove_keys(std::slice::from_ref(claim), |holder| holder.id == id) > 0;
        }
        if !shard.has_no_queue() && !self.barging && shard.leases.is_empty() {
            let start = |terms: &Terms| Term::start(terms.timeout, || self.now());
            if let Some((next, term)) = shard.hand_over(claim, id, start) {
                self.pass_on(shard, claim, &next, term);
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
        next: &Waiting<K>,
        term: Term,
    ) {
        let waker = next.grant(term);
        let mut after = After::default();
        if term.ends != NEVER {
            self.settle(&mut shard, None, (claim.hash, &claim.key), &mut after);
        }
        drop(shard);
        waker.into_iter().for_each(wake);
        self.follow_up(after);
    }

    fn admits_newcomers(&self, shard: &Shard<K>) -> bool {
        !self.gated.load(Ordering::Relaxed) && (shard.has_no_queue() || self.barging)
    }
}
