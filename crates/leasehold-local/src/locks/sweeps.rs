use std::time::Duration;

use super::config::LocksConfig;
use super::holder::{Instant, NEVER, nanos};
use super::sweeper::Sweeper;
use super::sync::{AtomicU64, Ordering};

/// What a sweep, or all sweeps so far, did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Swept {
    /// How many sweeps were made.
    pub sweeps: u64,
    /// How many batches they had.
    pub batches: u64,
    /// How many stale locks they removed, counted once for each key.
    pub removed: u64,
}

/// When a table is swept, and what that did.
#[derive(Debug)]
pub(super) struct Sweeps {
    pub(super) interval: Option<Duration>,
    pub(super) batch: usize,
    /// The process whose sweeper knows the table; 0 if there is none.
    pub(super) swept_by: AtomicU64,
    /// When the next sweep is due; at once as long as no sweeper knows the table.
    pub(super) due: AtomicU64,
    sweeps: AtomicU64,
    batches: AtomicU64,
    removed: AtomicU64,
}

impl Sweeps {
    pub(super) fn new(config: &LocksConfig) -> Self {
        Self {
            interval: config.sweep_interval,
            batch: config.sweep_batch,
            swept_by: AtomicU64::new(0),
            due: AtomicU64::new(if config.sweep_interval.is_some() { 0 } else { NEVER }),
            sweeps: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            removed: AtomicU64::new(0),
        }
    }

    pub(super) fn next(&self, now: Instant) -> Instant {
        self.interval.map_or(NEVER, |interval| now.saturating_add(nanos(interval)))
    }

    pub(super) fn totals(&self) -> Swept {
        Swept {
            sweeps: self.sweeps.load(Ordering::Relaxed),
            batches: self.batches.load(Ordering::Relaxed),
            removed: self.removed.load(Ordering::Relaxed),
        }
    }

    pub(super) fn count(&self, swept: Swept) {
        self.batches.fetch_add(swept.batches, Ordering::Relaxed);
        self.removed.fetch_add(swept.removed, Ordering::Relaxed);
        self.sweeps.fetch_add(swept.sweeps, Ordering::Release);
    }
}

impl Drop for Sweeps {
    fn drop(&mut self) {
        if self.swept_by.load(Ordering::Relaxed) == u64::from(std::process::id()) {
            Sweeper::look();
        }
    }
}
