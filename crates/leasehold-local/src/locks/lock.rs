use super::holder::{NEVER, Term};
use super::keys::Claims;
use super::owner::Owner;

/// What is needed to release a lock.
#[derive(Debug, Clone)]
pub(super) struct Lock<K> {
    pub(super) claims: Claims<K>,
    pub(super) term: Term,
    pub(super) owner: Option<Owner>,
}

impl<K> Lock<K> {
    pub(super) fn can_go_stale(&self) -> bool {
        self.term.ends != NEVER || self.owner.is_some()
    }
}
