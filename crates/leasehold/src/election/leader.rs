use leasehold_core::{FencingToken, Key, LeaseId, Mode, Record, Result};

use crate::locker::Locker;

/// The live record of the leader.
pub(super) async fn leader_of(locks: &Locker, name: &Key) -> Result<Option<Record>> {
    Ok(locks.status(name.clone()).await?.into_iter().find(leads))
}

/// True for an exclusive holder; a key that a released lease keeps taken has no leader.
pub(super) fn leads(record: &Record) -> bool {
    record.mode == Mode::Exclusive && !record.kept
}

/// Identifies one grant, so that two sights of a leader can be compared.
pub(super) type Identity = (Option<LeaseId>, Option<FencingToken>);

pub(super) fn identity(leader: &Record) -> Identity {
    (leader.id.clone(), leader.token)
}
