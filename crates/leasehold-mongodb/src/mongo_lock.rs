//! What mongo-lock has and the [`Store`](leasehold_core::Store) trait has not: locks by their `lockId`, whoever holds them.

mod filter;
mod groups;
mod status;

use leasehold_core::{Error, LeaseId, Result, Store as _, Ttl};
use leasehold_driver::outliving;

pub use filter::StatusFilter;
pub use status::LockStatus;

use crate::MongodbStore;

/// What a call changed, and the error that ended it, if any.
#[derive(Debug)]
#[non_exhaustive]
#[must_use]
pub struct LockChanges {
    /// The locks, in the order in which they were changed.
    pub locks: Vec<LockStatus>,
    /// Why there may be more, or why one of them could not be changed.
    pub error: Option<Error>,
}

impl LockChanges {
    /// The locks, if nothing failed.
    ///
    /// # Errors
    /// The error, without what was changed before it.
    pub fn all(self) -> Result<Vec<LockStatus>> {
        self.error.map_or(Ok(self.locks), Err)
    }
}

impl MongodbStore {
    /// Lists locks, of Leasehold and of mongo-lock, as mongo-lock's `Status` does: newest first, and expired ones too.
    ///
    /// Terms are judged by the server's clock. It takes one exchange for each 1,000 documents that the filter's resource,
    /// lock id or owner finds.
    ///
    /// # Errors
    /// `Corrupt` if a document is none of a lock, else as any operation.
    ///
    /// # Cancel safety
    /// May be dropped; nothing is changed.
    pub async fn status(&self, filter: &StatusFilter) -> Result<Vec<LockStatus>> {
        let (inner, filter) = (self.inner(), filter.clone());
        let listed = outliving(async move { inner.status(&filter).await });
        self.capabilities().carry_out("status", &(), || listed).await
    }

    /// Removes all locks with this id, live or not, newest first, as mongo-lock's `Unlock` does.
    ///
    /// It removes the locks that it found when it began: not one that was granted since. Their holders learn of it at
    /// their next renewal. Returns each as it was before. If it fails, call it again.
    ///
    /// # Errors
    /// Those of [`LockChanges::error`]: as any operation. It then ends; what was removed stays removed.
    ///
    /// # Cancel safety
    /// May be dropped; it continues to its end.
    pub async fn unlock(&self, lock_id: &LeaseId) -> LockChanges {
        let (inner, filter) = (self.inner(), StatusFilter::default().lock_id(lock_id));
        self.changing("unlock", async move { inner.unlock(&filter).await }).await
    }

    /// Extends all locks with this id, newest first, so that each has at least `ttl` left; mongo-lock's `Renew`.
    ///
    /// It never shortens one. A lock without an end stays as it is. Returns each as it is now.
    ///
    /// # Errors
    /// Those of [`LockChanges::error`]: `Lost` if there is no such lock, or if one of them has ended, which changes none
    /// of the others; else as any operation. Without a lock there is nothing to extend, so `Lost`.
    ///
    /// # Cancel safety
    /// May be dropped; it continues to its end.
    pub async fn renew_all(&self, lock_id: &LeaseId, ttl: Ttl) -> LockChanges {
        let (leases, lock_id) = (self.leases(), lock_id.clone());
        self.changing("renew_all", async move { leases.renew_all(&lock_id, ttl).await }).await
    }

    /// Removes the locks that have ended, and with each all locks that have its lock id, live or not: mongo-lock's `Purge`.
    ///
    /// It removes a group only if it finds one that has ended among the group's locks in one look, and no lock that was
    /// granted since that look. Only use it where locks of one id belong together; `Locker::purge` removes what has ended
    /// and nothing else.
    ///
    /// # Errors
    /// Those of [`LockChanges::error`]: as any operation. It then ends; what was removed stays removed.
    ///
    /// # Cancel safety
    /// May be dropped; it continues to its end.
    pub async fn purge_groups(&self) -> LockChanges {
        let inner = self.inner();
        self.changing("purge_groups", async move { inner.purge_groups().await }).await
    }

    async fn changing(
        &self,
        operation: &'static str,
        change: impl Future<Output = LockChanges> + Send + 'static,
    ) -> LockChanges {
        let changed = outliving(async move { Ok(change.await) });
        match self.capabilities().carry_out(operation, &(), || changed).await {
            Ok(LockChanges { locks, error }) => {
                let name = self.capabilities().name;
                LockChanges { locks, error: error.map(|error| error.with_context(name, operation)) }
            }
            Err(error) => LockChanges { locks: Vec::new(), error: Some(error) },
        }
    }
}
