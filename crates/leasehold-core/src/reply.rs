//! The replies of a store.

use std::time::Duration;

use crate::{
    Cursor, Error, EvictTarget, FencingToken, Key, LostReason, NodeReports, Record, Remaining,
};

/// The reply to an [`AcquireRequest`](crate::AcquireRequest).
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "a wildcard arm would hide whether anything is held")]
pub enum AcquireReply {
    /// All claims are held.
    Granted(Granted),
    /// None is held, and nothing was changed.
    Refused(Refused),
}

/// A grant.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Granted {
    /// The token, where the store has tokens.
    pub token: Option<FencingToken>,
    /// The term that remains at the store, never the requested one.
    pub remaining: Remaining,
    /// False if the lease was already held and the reply only confirms it.
    pub fresh: bool,
    /// What each node of a quorum said.
    pub nodes: NodeReports,
}

impl Granted {
    /// A grant.
    pub fn new(token: Option<FencingToken>, remaining: Remaining, fresh: bool) -> Self {
        Self { token, remaining, fresh, nodes: NodeReports::default() }
    }
}

/// A refusal.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Refused {
    /// The first refusing key in key order.
    pub key: Key,
    /// Why the key refused.
    pub why: RefusalReason,
    /// The time until the request could be granted if no lease is renewed, released or granted meanwhile; absent
    /// if a lease without end blocks it.
    pub retry_after: Option<Duration>,
    /// The longest pause before the next try, because what blocks the request may end without a wake-up: a foreign
    /// client holds the key, or contenders split the nodes of a quorum. `None` if the store wakes waiters, as far as
    /// it wakes them at all.
    pub poll_within: Option<Duration>,
    /// What each node of a quorum said.
    pub nodes: NodeReports,
}

impl Refused {
    /// A refusal.
    pub fn new(key: Key, why: RefusalReason, retry_after: Option<Duration>) -> Self {
        Self { key, why, retry_after, poll_within: None, nodes: NodeReports::default() }
    }
}

/// Why a key refused.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "each is waited for in its own way")]
pub enum RefusalReason {
    /// Another lease holds it: if the store can tell, the one whose end the request awaits.
    Held(Option<Box<Record>>),
    /// Another operation on the key is in progress; the key may be free.
    Busy,
    /// An earlier waiter is first (capability `fair`).
    Queued,
}

/// The reply to a [`RenewRequest`](crate::RenewRequest).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RenewReply {
    /// One outcome per lease, in the order of the request.
    pub leases: Vec<RenewOutcome>,
    /// What each node of a quorum said.
    pub nodes: NodeReports,
}

impl RenewReply {
    /// The outcomes.
    pub fn new(leases: Vec<RenewOutcome>) -> Self {
        Self { leases, nodes: NodeReports::default() }
    }
}

/// The outcome of renewing one lease.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "a wildcard arm would hide whether the lease is held")]
pub enum RenewOutcome {
    /// It is held, and this much remains at the store.
    Held(Remaining),
    /// It is no longer held, on any of its keys.
    Lost(Option<LostReason>),
    /// Its renewal failed; it may or may not be held.
    Failed(Error),
}

/// The reply to a [`ReleaseRequest`](crate::ReleaseRequest).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReleaseReply {
    /// One outcome per lease, in the order of the request.
    pub leases: Vec<ReleaseOutcome>,
    /// What each node of a quorum said.
    pub nodes: NodeReports,
}

impl ReleaseReply {
    /// The outcomes.
    pub fn new(leases: Vec<ReleaseOutcome>) -> Self {
        Self { leases, nodes: NodeReports::default() }
    }
}

/// The outcome of releasing one lease.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "a wildcard arm would hide whether the lease is held")]
pub enum ReleaseOutcome {
    /// It was held until now.
    Released,
    /// It was held until now, and its keys stay taken for this long.
    Kept(Duration),
    /// Its record was still there, but its term had passed: the critical section overran.
    Expired,
    /// The store did not have it.
    NotHeld,
    /// Its release failed; it may or may not be held.
    Failed(Error),
}

/// The reply to a [`ListRequest`](crate::ListRequest).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListReply {
    /// The records.
    pub records: Vec<Record>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Cursor>,
    /// What each node of a quorum said.
    pub nodes: NodeReports,
}

impl ListReply {
    /// A page.
    pub fn new(records: Vec<Record>, next: Option<Cursor>) -> Self {
        Self { records, next, nodes: NodeReports::default() }
    }
}

/// The reply to an [`EvictRequest`](crate::EvictRequest).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EvictReply {
    /// The removed records.
    pub removed: Vec<EvictTarget>,
    /// How many counters were forgotten.
    pub forgotten: usize,
    /// True if the limit was reached and more may be left.
    pub more: bool,
    /// What each node of a quorum said.
    pub nodes: NodeReports,
}

impl EvictReply {
    /// What was removed.
    pub fn new(removed: Vec<EvictTarget>, forgotten: usize, more: bool) -> Self {
        Self { removed, forgotten, more, nodes: NodeReports::default() }
    }
}

macro_rules! nodes {
    ($($reply:ty),*) => {$(
        impl $reply {
            /// What each node of a quorum said.
            pub fn nodes(&self) -> &NodeReports {
                &self.nodes
            }
        }
    )*};
}

nodes!(Granted, Refused, RenewReply, ReleaseReply, ListReply, EvictReply);

impl AcquireReply {
    /// What each node of a quorum said.
    pub fn nodes(&self) -> &NodeReports {
        match self {
            Self::Granted(granted) => &granted.nodes,
            Self::Refused(refused) => &refused.nodes,
        }
    }
}
