use super::holder::{LockId, NEVER};
use super::lock::Lock;
use super::table::{LockKey, Table};

/// What a release found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a wildcard arm would hide whether the lock was held")]
pub enum ReleaseOutcome {
    /// The lock was held until now.
    Released,
    /// The lock had gone stale before: somebody else may have held its keys meanwhile.
    Expired,
    /// The lock was not there: it had been released, or ended by force.
    NotHeld,
}

impl<K: LockKey> Lock<K> {
    pub(super) fn is_stale(&self, table: &Table<K>) -> bool {
        let dead = self.owner.as_ref().is_some_and(|owner| !owner.is_alive());
        dead || (self.ends != NEVER && self.ends <= table.now())
    }

    pub(super) fn release(&self, table: &Table<K>, id: LockId) -> ReleaseOutcome {
        let was_whole = table.release(&self.claims, id);
        if self.is_stale(table) {
            return ReleaseOutcome::Expired;
        }
        if was_whole { ReleaseOutcome::Released } else { ReleaseOutcome::NotHeld }
    }
}
