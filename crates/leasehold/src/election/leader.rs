use leasehold_core::{FencingToken, Key, LeaseId, Mode, Record, Result};

use crate::locker::Locker;

/// The live record of who leads.
pub(super) async fn leader_of(locks: &Locker, name: &Key) -> Result<Option<Record>> {
    Ok(locks.status(name.clone()).await?.into_iter().find(leads))
}

/// True of a holder in exclusive mode; what a lease left taken behind it leads nobody.
pub(super) fn leads(record: &Record) -> bool {
    record.mode == Mode::Exclusive && !record.kept
}

/// What makes two sights of a leader the same: one grant.
pub(super) type Identity = (Option<LeaseId>, Option<FencingToken>);

pub(super) fn identity(leader: &Record) -> Identity {
    (leader.id.clone(), leader.token)
}
