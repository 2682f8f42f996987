use std::hash::BuildHasher;
use std::sync::{Arc, Weak};

use leasehold_core::Clock;

use super::held::Cursor;
use super::holder::Instant;
use super::sweeper::{Sweeper, Timed};
use super::sweeps::Swept;
use super::sync::{Ordering, isolate};
use super::table::{LockKey, Table};

impl<K: LockKey> Table<K> {
    /// Has the table swept from now on, for it has a lock that can go stale. `granted_at` is when that was granted, if
    /// the clock was read for it: then a sweeper is looked for only if it is late.
    pub(super) fn ensure_sweeps(self: &Arc<Self>, granted_at: Option<Instant>) {
        if granted_at.is_none_or(|now| now >= self.sweeps.due.load(Ordering::Relaxed)) {
            self.find_sweeper();
        }
    }

    /// Tells the sweeper of the table, unless it knows it. After a fork it does not: the thread is the parent's.
    #[cold]
    fn find_sweeper(self: &Arc<Self>) {
        let (sweeps, process) = (&self.sweeps, u64::from(std::process::id()));
        let is_known = || sweeps.swept_by.load(Ordering::Relaxed) == process;
        if sweeps.interval.is_none()
            || is_known()
            || sweeps.swept_by.swap(process, Ordering::Relaxed) == process
        {
            return;
        }
        sweeps.due.store(sweeps.next(self.now()), Ordering::Relaxed);
        let table: Weak<Self> = Arc::downgrade(self);
        if !Sweeper::watch(table) {
            // Without a thread the next such lock tries again.
            sweeps.due.store(0, Ordering::Relaxed);
            sweeps.swept_by.store(0, Ordering::Relaxed);
        }
    }

    /// Removes stale locks, in batches. Whether a lock is stale is decided and it is removed under one mutex, so a
    /// lock that was taken anew meanwhile stays.
    pub(super) fn sweep(&self) -> Swept {
        let mut swept = Swept { sweeps: 1, ..Swept::default() };
        for shard in &self.shards {
            let mut from = Some(Cursor::default());
            while let Some(start) = from {
                let mut awaited = Vec::new();
                let mut shard = shard.lock();
                let has_queue = !shard.has_no_queue();
                let now = self.now();
                let gone = |holder: &_| {
                    let ends = self.ends(holder, || now);
                    swept.removed += u64::from(ends);
                    ends
                };
                from = shard.held.sweep(start, self.sweeps.batch, gone, |key: &K| {
                    if has_queue {
                        awaited.push((self.hasher.hash_one(key), key.clone()));
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

impl<K: LockKey> Timed for Table<K> {
    fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    fn run_if_due(&self) -> Instant {
        let sweeps = &self.sweeps;
        if sweeps.due.load(Ordering::Relaxed) <= self.now() {
            isolate(|| _ = self.sweep());
            // From its end on, so that long sweeps do not follow each other without a pause.
            sweeps.due.store(sweeps.next(self.now()), Ordering::Relaxed);
        }
        sweeps.due.load(Ordering::Relaxed)
    }
}
