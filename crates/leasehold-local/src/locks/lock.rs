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
#[derive(Debug)]
pub(super) struct Grant<K> {
    pub(super) id: LockId,
    pub(super) claims: Claims<K>,
    pub(super) term: Term,
    pub(super) owner: Option<Owner>,
}

impl<K> From<Grant<K>> for Lock<K> {
    fn from(grant: Grant<K>) -> Self {
        Self { claims: grant.claims, ends: grant.term.ends, owner: grant.owner }
    }
}
