//! What a store answers.

use std::time::Duration;

use crate::{
    Cursor, Error, EvictTarget, FencingToken, Key, LostReason, NodeReports, Record, Remaining,
};

/// The answer to an [`AcquireRequest`](crate::AcquireRequest).
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "a wildcard arm would hide whether anything is held")]
pub enum AcquireReply {
    /// All claims are held.
    Granted(Granted),
    /// None is held, and nothing was changed.
    Refused(Refused),
}

/// What a grant gives.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Granted {
    /// The grant's token, where the store has them.
    pub token: Option<FencingToken>,
    /// What remains at the store, never what was asked.
    pub remaining: Remaining,
    /// False if the lease was held already and this only confirmed it.
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

/// What a refusal says.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Refused {
    /// The first refusing key in key order.
    pub key: Key,
    /// Why it refused.
    pub why: RefusalReason,
    /// The time until the request could be admitted if no lease is renewed, released or granted meanwhile; absent if a
    /// lease without end blocks it.
    pub retry_after: Option<Duration>,
    /// What each node of a quorum said.
    pub nodes: NodeReports,
}

impl Refused {
    /// A refusal.
    pub fn new(key: Key, why: RefusalReason, retry_after: Option<Duration>) -> Self {
        Self { key, why, retry_after, nodes: NodeReports::default() }
    }
}

/// Why a key was refused.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "each is waited for in its own way")]
pub enum RefusalReason {
    /// It is held: by the holder whose end the request awaits, if the store can tell.
    Held(Option<Box<Record>>),
    /// Another operation on the key is in progress; it may well be free.
    Busy,
    /// An earlier waiter is first (capability `fair`).
    Queued,
}

/// The answer to a [`RenewRequest`](crate::RenewRequest).
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

/// What became of one lease that was to be renewed.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "a wildcard arm would hide whether the lease is held")]
pub enum RenewOutcome {
    /// It is held; what remains at the store.
    Held(Remaining),
    /// It is not held any more, and none of its keys is.
    Lost(Option<LostReason>),
    /// This one failed; it may or may not be held.
    Failed(Error),
}

/// The answer to a [`ReleaseRequest`](crate::ReleaseRequest).
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

/// What became of one lease that was to be released.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "a wildcard arm would hide whether the lease is held")]
pub enum ReleaseOutcome {
    /// It was held until now.
    Released,
    /// It was held until now, and its keys stay taken for this long.
    Kept(Duration),
    /// It was still there, but its term had passed: the critical section overran.
    Expired,
    /// The store did not have it.
    NotHeld,
    /// This one failed; it may or may not be held.
    Failed(Error),
}

/// The answer to a [`ListRequest`](crate::ListRequest).
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

/// The answer to an [`EvictRequest`](crate::EvictRequest).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EvictReply {
    /// The records that were removed.
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
