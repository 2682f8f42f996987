use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::{
    Error, Filter, GroupName, Key, Lease, LeaseId, ListReply, MAX_ENTRIES, Remaining, RenewOutcome,
    Result,
};

use crate::acquire::request::LockRequest;
use crate::guard::Guard;
use crate::lease::cleanup::Cleanup;
use crate::lease::release_report::ReleaseReport;
use crate::lease::state::{HoldStatus, LeaseState, left};
use crate::locker::Locker;

/// The leases of one group that this [`Locker`] acquired or adopted ([F9](crate::contract)).
///
/// The group is not an identity: two leases of one group exclude each other like any others. To end leases that
/// other processes hold in the group, [`list`](Group::list) and [`Locker::evict`] them.
#[derive(Debug, Clone)]
pub struct Group {
    pub(crate) locks: Locker,
    group: GroupName,
}

impl Locker {
    /// Acts on the leases in `group` that this `Locker` acquired or adopted ([F9](crate::contract)).
    ///
    /// # Errors
    /// `InvalidInput` for an invalid group name.
    pub fn group<O: TryInto<GroupName, Error: Into<Error>>>(&self, group: O) -> Result<Group> {
        Ok(Group { locks: self.clone(), group: group.try_into().map_err(Into::into)? })
    }
}

impl Group {
    /// Locks `key` in this group.
    pub fn lock<K: TryInto<Key, Error: Into<Error>>>(&self, key: K) -> LockRequest<Guard> {
        self.locks.lock(key).group(&self.group)
    }

    /// Tries once to lock `key` in this group.
    pub fn try_lock<K: TryInto<Key, Error: Into<Error>>>(
        &self,
        key: K,
    ) -> LockRequest<Option<Guard>> {
        self.locks.try_lock(key).group(&self.group)
    }

    /// Locks all `keys` or none in this group.
    pub fn lock_all<K: TryInto<Key, Error: Into<Error>>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> LockRequest<Guard> {
        self.locks.lock_all(keys).group(&self.group)
    }

    /// The leases held here, oldest first.
    pub fn leases(&self) -> Vec<Lease> {
        self.held().iter().map(|held| held.lease.clone()).collect()
    }

    /// All live records of this group in the store, from every process.
    ///
    /// # Errors
    /// As any operation.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn list(&self) -> Result<ListReply> {
        self.locks.list(Filter::default().with_group(self.group.clone())).await
    }

    /// Renews every lease held here, oldest first; each has its own outcome.
    ///
    /// # Cancel safety
    /// May be dropped; the leases may have been renewed.
    pub async fn renew(&self) -> Vec<(LeaseId, Result<Remaining>)> {
        let keeper = &self.locks.0.keeper;
        let mut outcomes = Vec::new();
        for batch in self.held().chunks(MAX_ENTRIES) {
            let until = keeper.clock.now().saturating_add(keeper.limit);
            let answers = keeper.renew_for(batch, until).await;
            for (held, (status, answer)) in batch.iter().zip(answers) {
                let outcome = match (status, answer) {
                    (HoldStatus::Released, _) => continue,
                    (HoldStatus::Lost { reason, .. }, _) => Err(held.lost_error(reason)),
                    (HoldStatus::Held(_), RenewOutcome::Failed(error)) => Err(error),
                    (HoldStatus::Held(deadline), _) => Ok(left(deadline, keeper.clock.now())),
                };
                outcomes.push((held.lease.id.clone(), outcome));
            }
        }
        outcomes
    }

    /// Releases every lease held here, newest first; their guards then hold nothing. A release that failed continues in
    /// the background.
    ///
    /// A lease that was lost already is released in the background and is not in the result.
    ///
    /// # Cancel safety
    /// Releases that were begun are completed in the background.
    pub async fn release(&self) -> Vec<(LeaseId, ReleaseReport)> {
        let keeper = &self.locks.0.keeper;
        let mut held = self.held();
        held.reverse();
        held.retain(|held| matches!(keeper.finish(held), HoldStatus::Held(_)));
        // All are sent at once: none is left out if this future is dropped.
        let cleanups =
            |batch: &[Arc<LeaseState>]| batch.iter().map(|h| Cleanup::of_held(h)).collect();
        let requests = held.chunks(MAX_ENTRIES).map(|batch| keeper.release_for(cleanups(batch)));
        let answers = join_all(requests).await;
        let ids = held.iter().map(|held| held.lease.id.clone());
        ids.zip(answers.into_iter().flatten()).collect()
    }

    fn held(&self) -> Vec<Arc<LeaseState>> {
        let mut held = self.locks.0.keeper.leases();
        held.retain(|held| held.lease.group.as_ref() == Some(&self.group));
        held
    }
}
