use super::holder::{Instant, LockId, NEVER, Term};
use super::keys::Claims;
use super::owner::Owner;

/// What is needed to release a lock.
#[derive(Debug, Clone)]
pub(super) struct Lock<K> {
    pub(super) claims: Claims<K>,
    pub(super) ends: Instant,
    pub(super) owner: Option<Owner>,
}

impl<K> Lock<K> {
    pub(super) fn can_go_stale(&self) -> bool {
        self.ends != NEVER || self.owner.is_some()
    }
}

/// A lock that was granted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grant {
    pub(super) id: LockId,
    pub(super) term: Term,
}
