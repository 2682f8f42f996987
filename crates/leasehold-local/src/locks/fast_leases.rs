//! The usual case of a store: a lease on one key, which nobody else has or waits for.

use std::hash::BuildHasher;

use leasehold_core::table::grant_unheld;
use leasehold_core::{
    AcquireReply, AcquireRequest, Key, Now, ReleaseOutcome, ReleaseRequest, Result,
};

use super::holder::nanos;
use super::keys::Claim;
use super::shard::Shard;
use super::sync::{MutexGuard, Ordering};
use super::table::Table;

impl Table<Key> {
    /// Grants a lease on a key that nobody has. `None` decides nothing.
    pub(super) fn acquire_unheld(&self, request: &AcquireRequest) -> Option<Result<AcquireReply>> {
        let (1, first) = (request.claims().len(), request.claims().first()) else { return None };
        let term = request.term().duration()?;
        let hash = self.hasher.hash_one(&first.key);
        let mut shard = self.quiet_shard(hash)?;
        let claim = Claim { hash, key: first.key.clone(), mode: first.mode };
        if shard.leases.has(&claim) || shard.holders(&claim).is_some() {
            return None;
        }
        let now = Now::read(&*self.clock);
        let granted = grant_unheld(request, term, self.mark.load(Ordering::Relaxed), now);
        let reply = granted.map(|(record, granted)| {
            self.mark.fetch_max(record.token.get(), Ordering::Relaxed);
            shard.leases.put(claim.key, hash, vec![record]);
            AcquireReply::Granted(granted)
        });
        drop(shard);
        self.forget_some(nanos(now.boot));
        Some(reply)
    }

    /// Ends a live lease that alone has its only key. `None` decides nothing.
    pub(super) fn release_only(&self, request: &ReleaseRequest) -> Option<ReleaseOutcome> {
        let [ending] = request.leases() else { return None };
        let [key] = ending.keys() else { return None };
        let hash = self.hasher.hash_one(key);
        let mut shard = self.quiet_shard(hash)?;
        let now = Now { boot: self.clock.now(), wall_micros: 0 };
        let ended = shard.leases.take_only(hash, key, |record| record.is_ended_by(ending, now));
        drop(shard);
        self.forget_some(nanos(now.boot));
        ended.then_some(ReleaseOutcome::Released)
    }

    /// The shard of a hash, if nobody waits for a key of it or for the whole table.
    fn quiet_shard(&self, hash: u64) -> Option<MutexGuard<'_, Shard<Key>>> {
        let shard = self.shard(hash);
        (!self.gated.load(Ordering::Relaxed) && shard.has_no_queue()).then_some(shard)
    }
}
