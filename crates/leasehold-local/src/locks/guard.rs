use std::fmt;
use std::time::Duration;

use leasehold_core::Mode;

use super::anchor::Anchor;
use super::holder::{LockId, NEVER};
use super::keys::{Claim, Claims};
use super::lock::Lock;
use super::release::ReleaseOutcome;
use super::table::LockKey;

/// A lock that is released when this is dropped.
///
/// It borrows nothing: it can be stored, sent to another thread and held across an `.await`.
#[must_use = "the lock is released when its guard is dropped"]
#[repr(C)]
pub struct Guard<K: LockKey> {
    held: Option<Lock<K>>,
    id: LockId,
    /// Last in memory: a guard is moved as soon as this is written, and a processor waits where one move reads what several writes
    /// have just written.
    anchor: Anchor<K>,
}

impl<K: LockKey> Guard<K> {
    #[inline]
    pub(super) fn new(anchor: &Anchor<K>, id: LockId, lock: Lock<K>) -> Self {
        Self { held: Some(lock), id, anchor: anchor.clone() }
    }

    /// The number of the lock.
    pub fn id(&self) -> LockId {
        self.id
    }

    /// The locked keys in key order; none if it is the whole table.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        let claims = self.held.as_ref().map_or(&[][..], |lock| lock.claims.keyed());
        claims.iter().map(|claim| &claim.key)
    }

    /// True once the lock's time-out has passed or its owner has died: others may take it.
    pub fn is_stale(&self) -> bool {
        self.held.as_ref().is_some_and(|lock| lock.is_stale(&self.anchor))
    }

    /// How long it is until the lock goes stale; `None` if it has no time-out.
    pub fn remaining(&self) -> Option<Duration> {
        let ends = self.held.as_ref().map_or(0, |lock| lock.ends);
        (ends != NEVER).then(|| Duration::from_nanos(ends.saturating_sub(self.anchor.now())))
    }

    /// Releases the lock and says whether it was held until now.
    pub fn release(mut self) -> ReleaseOutcome {
        self.held.take().map_or(ReleaseOutcome::NotHeld, |lock| lock.release(&self.anchor, self.id))
    }

    /// Keeps the lock without its guard, for [`LocalLocks::release`](super::LocalLocks::release).
    pub fn keep(mut self) -> LockId {
        if let Some(lock) = self.held.take() {
            if lock.can_go_stale() {
                self.anchor.table().ensure_sweeps(None);
            }
            self.anchor.keep(self.id, lock);
        }
        self.id
    }

    /// How it holds a key; the whole table holds each exclusively.
    pub(super) fn mode_of(&self, key: &K) -> Option<Mode> {
        match &self.held.as_ref()?.claims {
            Claims::Whole => Some(Mode::Exclusive),
            claims => {
                let claim = claims.keyed().iter().find(|claim| claim.key == *key)?;
                Some(claim.mode)
            }
        }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.held.as_ref().is_some_and(|lock| matches!(lock.claims, Claims::Whole))
    }

    pub(super) fn anchor(&self) -> &Anchor<K> {
        &self.anchor
    }

    pub(super) fn claims(&self) -> &[Claim<K>] {
        self.held.as_ref().map_or(&[], |lock| lock.claims.keyed())
    }
}

impl<K: LockKey> Drop for Guard<K> {
    fn drop(&mut self) {
        if let Some(lock) = &self.held {
            self.anchor.release(&lock.claims, self.id);
        }
    }
}

impl<K: LockKey> fmt::Debug for Guard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("id", &self.id).finish_non_exhaustive()
    }
}
