use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, Error, Key, LeaseId, Mode, ReleaseEntry, ReleaseOutcome,
    RenewEntry, RenewOutcome,
};

use crate::patience;

/// A request, or a part of one, about one lease.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Entry {
    /// Takes keys for a lease.
    Acquire(AcquireRequest),
    /// Extends a lease.
    Renew(RenewEntry),
    /// Ends a lease.
    Release(ReleaseEntry),
}

/// The reply to an [`Entry`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Done {
    /// To [`Entry::Acquire`].
    Acquired(AcquireReply),
    /// To [`Entry::Renew`].
    Renewed(RenewOutcome),
    /// To [`Entry::Release`].
    Released(ReleaseOutcome),
}

/// What an [`Entry`] asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryKind {
    /// [`Entry::Acquire`].
    Acquire,
    /// [`Entry::Renew`].
    Renew,
    /// [`Entry::Release`].
    Release,
}

impl Entry {
    /// What it asks for.
    pub fn kind(&self) -> EntryKind {
        match self {
            Self::Acquire(_) => EntryKind::Acquire,
            Self::Renew(_) => EntryKind::Renew,
            Self::Release(_) => EntryKind::Release,
        }
    }

    /// Its first key.
    pub fn key(&self) -> &Key {
        match self {
            Self::Acquire(request) => &request.claims().first().key,
            Self::Renew(lease) => &lease.claims().first().key,
            Self::Release(lease) => &lease.keys()[0],
        }
    }

    /// The lease.
    pub fn id(&self) -> &LeaseId {
        match self {
            Self::Acquire(request) => request.id(),
            Self::Renew(lease) => lease.id(),
            Self::Release(lease) => lease.id(),
        }
    }

    /// How long it may wait for the reply to what was sent before it on a connection, where an operation may take
    /// `timeout`: short enough that a lease is renewed in time all the same.
    pub fn patience(&self, timeout: Duration) -> Duration {
        let term = match self {
            Self::Acquire(request) => request.term().duration(),
            Self::Renew(lease) => lease.to().duration(),
            Self::Release(_) => None,
        };
        patience(term, timeout)
    }

    /// Whether it may travel with others: it is about an exclusive lease of one key. A release does not know the mode; a
    /// shared lease is not found then, and is ended apart.
    pub(super) fn is_simple(&self) -> bool {
        let is_one = |claims: &Claims| claims.len() == 1 && claims.first().mode == Mode::Exclusive;
        match self {
            Self::Acquire(request) => is_one(request.claims()),
            Self::Renew(lease) => is_one(lease.claims()),
            Self::Release(lease) => lease.keys().len() == 1 && lease.keep().is_none(),
        }
    }
}

/// The error for a lease that holds a key in another mode than it is requested in.
pub fn mode_conflict(id: &LeaseId, claims: &Claims, key: &Key) -> Error {
    let asked = claims.iter().find(|claim| claim.key == *key).map(|claim| claim.mode);
    let held = match asked {
        Some(Mode::Exclusive) => "shared",
        _ => "exclusive",
    };
    Error::invalid_input(format!(
        "the lease {id} holds {key:?} as {held}, but is requested in another mode; release it first"
    ))
}
