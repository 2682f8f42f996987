use std::sync::{Arc, Weak};

use leasehold_core::Clock;

use super::holder::Instant;
use super::sweeper::{Sweepable, Sweeper};
use super::sweeps::Swept;
use super::sync::Ordering;
use super::table::{LockKey, Table};

impl<K: LockKey> Table<K> {
    /// Has the table swept from now on: it has a lock that can go stale.
    pub(super) fn start_sweeps(self: &Arc<Self>) {
        let sweeps = &self.sweeps;
        if sweeps.interval.is_none() || sweeps.known.load(Ordering::Relaxed) {
            return;
        }
        if !sweeps.known.swap(true, Ordering::Relaxed) {
            sweeps.due.store(sweeps.next(self.now()), Ordering::Relaxed);
            let table: Weak<Self> = Arc::downgrade(self);
            // Without a thread the next such lock tries again.
            sweeps.known.store(Sweeper::watch(table), Ordering::Relaxed);
        }
    }

    /// Removes stale locks, in batches. Whether a lock is stale is decided and it is removed under one mutex, so a
    /// lock that was taken anew meanwhile stays.
    pub(super) fn sweep(&self) -> Swept {
        let mut swept = Swept { sweeps: 1, ..Swept::default() };
        for shard in &self.shards {
            let mut from = Some(0);
            while let Some(start) = from {
                let mut awaited = Vec::new();
                let mut shard = shard.0.lock();
                let has_queue = !shard.has_no_queue();
                let gone = |holder: &_| {
                    let ends = self.ends(holder);
                    swept.removed += u64::from(ends);
                    ends
                };
                from = shard.sweep(start, self.sweeps.batch, gone, |hash, key: &K| {
                    if has_queue {
                        awaited.push((hash, key.clone()));
                    }
                });
                drop(shard);
                swept.batches += 1;
                self.settle_keys(awaited);
            }
        }
        if self.gated.load(Ordering::Relaxed) {
            self.settle_whole();
        }
        self.sweeps.count(swept);
        swept
    }
}

impl<K: LockKey> Sweepable for Table<K> {
    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn sweep_if_due(&self) -> Instant {
        let sweeps = &self.sweeps;
        if sweeps.due.load(Ordering::Relaxed) <= self.now() {
            self.sweep();
            // From its end on, so that long sweeps do not follow each other without a pause.
            sweeps.due.store(sweeps.next(self.now()), Ordering::Relaxed);
        }
        sweeps.due.load(Ordering::Relaxed)
    }
}
