use leasehold_core::Key;
use leasehold_core::table::TELL_EXPIRED_FOR;

use super::forgetting::Forgetting;
use super::holder::{Instant, nanos};
use super::keys::Claim;
use super::sync::Ordering;
use super::table::Table;

/// In what time all shards are looked through, in nanoseconds.
const ROUND: u64 = 60_000_000_000;

/// How many keys are looked at before others get at them.
const BATCH: usize = 100;

impl Table<Key> {
    /// Forgets now and then what is no longer told of ended leases. A table in use looks through one shard at a time, and
    /// needs no thread for it.
    pub(super) fn forget_some(&self, now: Instant) {
        let Forgetting { due, looked_at } = &self.forgetting;
        let was_due = due.load(Ordering::Relaxed);
        if now < was_due {
            return;
        }
        let shards = u64::try_from(self.shards.len()).unwrap_or(1);
        let pause = ROUND / shards;
        let next = now.saturating_add(pause);
        if due.compare_exchange(was_due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let missed = (now - was_due) / pause;
            for _ in 0..shards.min(1 + missed) {
                let index = looked_at.fetch_add(1, Ordering::Relaxed) % shards;
                self.forget_of_shard(usize::try_from(index).unwrap_or(0), now);
            }
        }
    }

    fn forget_of_shard(&self, index: usize, now: Instant) {
        let told_until = now.saturating_sub(nanos(TELL_EXPIRED_FOR));
        loop {
            let mut claims: Vec<Claim<Key>> = {
                let shard = self.shards[index].lock();
                let ended = shard.leases.iter().filter(|leased| leased.has_ended(told_until));
                ended.take(BATCH).map(|leased| leased.claim()).collect()
            };
            claims.sort_unstable_by(|one, other| one.key.cmp(&other.key));
            self.decide(&claims, |rules, now| rules.forget(now));
            if claims.len() < BATCH {
                return;
            }
        }
    }
}
