use super::admission::{Request, Sealed, check_limit};
use crate::{Capabilities, Error, FencingToken, Filter, Key, LeaseId, Reason, Record, Result};

/// A request to remove expired records, or exactly the named ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictRequest {
    scope: EvictScope,
    limit: usize,
}

/// What an [`EvictRequest`] removes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "stores must handle every kind")]
pub enum EvictScope {
    /// Expired records that match, and counters that may be forgotten ([C7](crate::contract)). Never a live lease.
    Expired(Filter),
    /// The named records, live or not ([C8](crate::contract)).
    Exactly {
        /// The records.
        targets: Vec<EvictTarget>,
        /// The reason, for the holders to read.
        reason: Option<Reason>,
    },
}

/// Names exactly one record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct EvictTarget {
    /// The key.
    pub key: Key,
    /// The lease; `None` means a holder without an id.
    pub id: Option<LeaseId>,
    /// The token of the grant, compared if given.
    pub token: Option<FencingToken>,
}

impl EvictTarget {
    /// The record of `id` on `key`.
    pub fn new(key: Key, id: Option<LeaseId>) -> Self {
        Self { key, id, token: None }
    }

    /// Exactly the listed record.
    pub fn of(record: &Record) -> Self {
        Self { key: record.key.clone(), id: record.id.clone(), token: record.token }
    }
}

impl EvictRequest {
    /// Removes expired records that match, at most 100.
    pub fn expired(filter: Filter) -> Self {
        Self { scope: EvictScope::Expired(filter), limit: 100 }
    }

    /// Removes the named records.
    pub fn exactly(targets: Vec<EvictTarget>, reason: Option<Reason>) -> Self {
        let limit = targets.len();
        Self { scope: EvictScope::Exactly { targets, reason }, limit }
    }

    /// Sets the most records and counters to remove, 1 to 1,000 together.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// What is removed.
    pub fn scope(&self) -> &EvictScope {
        &self.scope
    }

    /// The most records and counters to remove.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

impl Sealed for EvictRequest {}

impl Request for EvictRequest {
    fn check(&self, can: &Capabilities) -> Result<()> {
        if let EvictScope::Exactly { targets, .. } = &self.scope {
            if targets.is_empty() {
                return Err(Error::invalid_input(
                    "no record to evict was given; give a key and its lease id",
                ));
            }
            can.check_key_bytes(targets.iter().map(|target| &target.key))?;
        }
        check_limit(self.limit)
    }
}
