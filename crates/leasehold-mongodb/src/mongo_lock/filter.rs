use std::time::SystemTime;

use leasehold_core::LeaseId;
use mongodb::bson::{Document, doc};

use super::LockStatus;
use crate::record::id_text;

/// Selects locks: mongo-lock's `Filter`. A lock matches if it meets every condition, whatever its mode.
///
/// ```
/// use leasehold_mongodb::StatusFilter;
///
/// // Less than a minute left, or none; but not without an end.
/// let ending = StatusFilter::default().owner("jobs").ttl_below(60);
/// ```
#[derive(Debug, Clone, Default)]
pub struct StatusFilter {
    created_before: Option<SystemTime>,
    created_after: Option<SystemTime>,
    ttl_below: Option<u64>,
    ttl_from: Option<u64>,
    resource: Option<String>,
    lock_id: Option<String>,
    owner: Option<String>,
}

impl StatusFilter {
    /// Only locks that were granted before this time.
    #[must_use]
    pub fn created_before(mut self, time: SystemTime) -> Self {
        self.created_before = Some(time);
        self
    }

    /// Only locks that were granted after this time.
    #[must_use]
    pub fn created_after(mut self, time: SystemTime) -> Self {
        self.created_after = Some(time);
        self
    }

    /// Only locks whose [`ttl`](LockStatus::ttl) is below this, in seconds; no lock without an end.
    #[must_use]
    pub fn ttl_below(mut self, seconds: u64) -> Self {
        self.ttl_below = Some(seconds);
        self
    }

    /// Only locks whose [`ttl`](LockStatus::ttl) is this or more, in seconds; no lock without an end.
    #[must_use]
    pub fn ttl_from(mut self, seconds: u64) -> Self {
        self.ttl_from = Some(seconds);
        self
    }

    /// Only locks of this resource.
    #[must_use]
    pub fn resource(mut self, resource: impl Into<String>) -> Self {
        self.resource = Some(resource.into());
        self
    }

    /// Only locks with this id.
    #[must_use]
    pub fn lock_id(self, id: &LeaseId) -> Self {
        self.lock_id_text(id_text(id))
    }

    /// Only locks of this owner, which is the group of a lease.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// An id of mongo-lock may be no lease id.
    pub(super) fn lock_id_text(mut self, id: String) -> Self {
        self.lock_id = Some(id);
        self
    }

    /// What the server can find by its indexes, or at least need not send. [`matches`](Self::matches) decides.
    pub(super) fn query(&self) -> Document {
        let (mut exclusive, mut shared) =
            (doc! { "exclusive.acquired": true }, doc! { "shared.locks": { "$ne": [] } });
        for (field, text) in [("lockId", &self.lock_id), ("owner", &self.owner)] {
            if let Some(text) = text {
                exclusive.insert(format!("exclusive.{field}"), text);
                shared.insert(format!("shared.locks.{field}"), text);
            }
        }
        let mut query = doc! { "$or": [exclusive, shared] };
        if let Some(resource) = &self.resource {
            query.insert("resource", resource);
        }
        query
    }

    pub(super) fn matches(&self, lock: &LockStatus) -> bool {
        let is = |wanted: &Option<String>, text: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == text
        };
        let ttl = lock.ttl();
        let below = |most: u64| ttl.is_some_and(|ttl| ttl < most);
        let from = |least: u64| ttl.is_some_and(|ttl| ttl >= least);
        self.created_before.is_none_or(|time| lock.created_at.is_some_and(|at| at < time))
            && self.created_after.is_none_or(|time| lock.created_at.is_some_and(|at| at > time))
            && self.ttl_below.is_none_or(below)
            && self.ttl_from.is_none_or(from)
            && is(&self.resource, Some(&lock.resource))
            && is(&self.lock_id, Some(&lock.lock_id))
            && is(&self.owner, lock.owner.as_deref())
    }
}
