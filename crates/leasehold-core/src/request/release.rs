use std::ops::Deref;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::admission::{Request, Sealed, check_entries};
use crate::{Capabilities, Error, Feature, FencingToken, Key, LeaseId, Result, Ttl};

/// A request to end leases; each has its own outcome ([C3b, C13](crate::contract)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseRequest {
    leases: Vec<ReleaseEntry>,
}

impl ReleaseRequest {
    /// Names these leases; the reply keeps their order.
    pub fn new(leases: Vec<ReleaseEntry>) -> Self {
        Self { leases }
    }

    /// The leases, in the order of the reply.
    pub fn leases(&self) -> &[ReleaseEntry] {
        &self.leases
    }
}

/// One lease to end. Cloning is cheap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseEntry {
    id: LeaseId,
    keys: Keys,
    keep: Option<Duration>,
    wakes: bool,
    token: Option<FencingToken>,
}

/// Keys in key order, each once. One key, as most leases have, needs no allocation.
#[derive(Debug, Clone)]
enum Keys {
    One(Key),
    Many(Arc<[Key]>),
}

impl Keys {
    fn new(keys: impl IntoIterator<Item = Key>) -> Self {
        let mut keys = keys.into_iter();
        match (keys.next(), keys.next()) {
            (Some(one), None) => Self::One(one),
            (first, second) => {
                let mut all: Vec<_> = first.into_iter().chain(second).chain(keys).collect();
                all.sort_unstable();
                all.dedup();
                Self::Many(all.into())
            }
        }
    }
}

impl Deref for Keys {
    type Target = [Key];

    fn deref(&self) -> &[Key] {
        match self {
            Self::One(key) => slice::from_ref(key),
            Self::Many(keys) => keys,
        }
    }
}

impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Keys {}

impl ReleaseEntry {
    /// Ends the lease `id` on `keys`, all it holds.
    pub fn new(id: LeaseId, keys: impl IntoIterator<Item = Key>) -> Self {
        Self { id, keys: Keys::new(keys), keep: None, wakes: true, token: None }
    }

    /// Keeps the keys taken for `keep` after the lease has ended.
    #[must_use]
    pub fn with_keep(mut self, keep: Duration) -> Self {
        self.keep = (!keep.is_zero()).then_some(keep);
        self
    }

    /// Sets the holder's token. A store that [compares tokens](Capabilities::compares_tokens) ends only the lease
    /// with this token.
    #[must_use]
    pub fn with_token(mut self, token: FencingToken) -> Self {
        self.token = Some(token);
        self
    }

    /// The entry for a node of a quorum, which has created its own token.
    #[must_use]
    pub fn without_token(mut self) -> Self {
        self.token = None;
        self
    }

    /// Wakes no waiter: for the parts of a lease that was never granted as a whole.
    #[must_use]
    pub fn without_wakeup(mut self) -> Self {
        self.wakes = false;
        self
    }

    /// The lease.
    pub fn id(&self) -> &LeaseId {
        &self.id
    }

    /// All its keys, in key order.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// How long the keys stay taken.
    pub fn keep(&self) -> Option<Duration> {
        self.keep
    }

    /// The holder's token.
    pub fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// Whether it wakes waiters.
    pub fn wakes(&self) -> bool {
        self.wakes
    }
}

impl Sealed for ReleaseEntry {}

impl Request for ReleaseEntry {
    fn check(&self, can: &Capabilities) -> Result<()> {
        if self.keys.is_empty() {
            return Err(Error::invalid_input("a release has no key; give all keys of the lease"));
        }
        can.check_id(&self.id)?;
        can.check_keys(self.keys.iter(), self.keys.len())?;
        match self.keep {
            Some(_) if !can.keep => Err(can.lacks(Feature::Keep)),
            Some(keep) if keep > Ttl::MAX => Err(Error::invalid_input(format!(
                "the key is to be kept for {keep:?}; at most 10 years (3650 days) is allowed"
            ))),
            // The longest term applies to kept keys too, the shortest does not.
            Some(keep) => can.check_term(keep.max(can.min_term)),
            None => Ok(()),
        }
    }
}

impl Sealed for ReleaseRequest {}

impl Request for ReleaseRequest {
    fn check(&self, can: &Capabilities) -> Result<()> {
        check_entries("release", self.leases.len())?;
        self.leases.iter().try_for_each(|lease| lease.check(can))
    }
}
