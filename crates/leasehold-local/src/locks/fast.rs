//! The usual case: nobody waits.

use super::access::shard_at;
use super::holder::{LockId, State, Term};
use super::keys::{Claim, Claims};
use super::request::Terms;
use super::shard::Shard;
use super::sync::Ordering;
use super::table::{LockKey, Table};

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
        if !self.gated.load(Ordering::Relaxed) && shard.has_no_queue() {
            return shard.remove(claim, id);
        }
        drop(shard);
        self.remove_keys(std::slice::from_ref(claim), |holder| holder.id == id) > 0
    }

    fn admits_newcomers(&self, shard: &Shard<K>) -> bool {
        !self.gated.load(Ordering::Relaxed) && (shard.has_no_queue() || self.barging)
    }
}
