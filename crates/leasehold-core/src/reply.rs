//! What a store answers.

use std::time::Duration;

use crate::{Cursor, Error, FencingToken, Key, LostReason, Record, Remaining, Target};

/// The answer to an [`Acquire`](crate::Acquire).
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "callers must handle every outcome")]
pub enum Acquired {
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
    /// What each node said; empty except from a quorum.
    pub nodes: Vec<NodeReport>,
}

impl Granted {
    /// A grant.
    pub fn new(token: Option<FencingToken>, remaining: Remaining, fresh: bool) -> Self {
        Self { token, remaining, fresh, nodes: Vec::new() }
    }
}

/// What a refusal says.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Refused {
    /// The first refusing key in key order.
    pub key: Key,
    /// Why it refused.
    pub why: Why,
    /// After how long the request could be admitted if nobody renewed, released or joined; absent if it
    /// waits for a lease without end.
    pub retry_after: Option<Duration>,
    /// What each node said; empty except from a quorum.
    pub nodes: Vec<NodeReport>,
}

impl Refused {
    /// A refusal.
    pub fn new(key: Key, why: Why, retry_after: Option<Duration>) -> Self {
        Self { key, why, retry_after, nodes: Vec::new() }
    }
}

/// Why a key was refused.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "callers must handle every outcome")]
pub enum Why {
    /// Somebody holds it: the one whose end is awaited, where the store can tell.
    Held(Option<Box<Record>>),
    /// Another operation on the key is in progress; it may well be free.
    Busy,
    /// An earlier waiter stands before us (capability `fair`).
    Queued,
}

/// The answer to a [`Renew`](crate::Renew).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Renewed {
    /// One outcome per lease, in the order of the request.
    pub leases: Vec<LeaseRenewed>,
    /// What each node said; empty except from a quorum.
    pub nodes: Vec<NodeReport>,
}

impl Renewed {
    /// The outcomes.
    pub fn new(leases: Vec<LeaseRenewed>) -> Self {
        Self { leases, nodes: Vec::new() }
    }
}

/// What became of one lease that was to be renewed.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "callers must handle every outcome")]
pub enum LeaseRenewed {
    /// It is held; what remains at the store.
    Held(Remaining),
    /// It is not held any more, and none of its keys is.
    Lost(Option<LostReason>),
    /// This one failed; it may or may not be held.
    Failed(Error),
}

/// The answer to a [`Release`](crate::Release).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Released {
    /// One outcome per lease, in the order of the request.
    pub leases: Vec<LeaseReleased>,
    /// What each node said; empty except from a quorum.
    pub nodes: Vec<NodeReport>,
}

impl Released {
    /// The outcomes.
    pub fn new(leases: Vec<LeaseReleased>) -> Self {
        Self { leases, nodes: Vec::new() }
    }
}

/// What became of one lease that was to be released.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "callers must handle every outcome")]
pub enum LeaseReleased {
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

/// The answer to a [`List`](crate::List).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Page {
    /// The records.
    pub records: Vec<Record>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Cursor>,
    /// What each node said; empty except from a quorum.
    pub nodes: Vec<NodeReport>,
}

impl Page {
    /// A page.
    pub fn new(records: Vec<Record>, next: Option<Cursor>) -> Self {
        Self { records, next, nodes: Vec::new() }
    }
}

/// The answer to an [`Evict`](crate::Evict).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Evicted {
    /// The records that were removed.
    pub removed: Vec<Target>,
    /// How many counters were forgotten.
    pub forgotten: usize,
    /// True if the limit was reached and more may be left.
    pub more: bool,
    /// What each node said; empty except from a quorum.
    pub nodes: Vec<NodeReport>,
}

impl Evicted {
    /// What was removed.
    pub fn new(removed: Vec<Target>, forgotten: usize, more: bool) -> Self {
        Self { removed, forgotten, more, nodes: Vec::new() }
    }
}

/// What one node of a quorum said.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeReport {
    /// The node, without secrets.
    pub node: String,
    /// Its failure, if it failed.
    pub error: Option<Error>,
    /// What the node did about each lease of the request, in the request's order; one for an acquire; empty
    /// for other requests and for a node that failed or did not answer.
    pub leases: Vec<NodeOutcome>,
}

/// What one node of a quorum did about one lease.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum NodeOutcome {
    /// It granted it.
    Granted,
    /// It refused it.
    Refused,
    /// It held it and extended it.
    Renewed,
    /// It held it no more.
    Lost,
    /// It held it until now.
    Released,
    /// It held it until now, and keeps its keys taken.
    Kept,
    /// It still had it, but its term had passed.
    Expired,
    /// It did not have it.
    NotHeld,
    /// It failed for this lease alone.
    Failed(Error),
}

impl NodeReport {
    /// A node that answered.
    pub fn new(node: impl Into<String>) -> Self {
        Self { node: node.into(), error: None, leases: Vec::new() }
    }

    /// A node that failed.
    pub fn failed(node: impl Into<String>, error: Error) -> Self {
        Self { node: node.into(), error: Some(error), leases: Vec::new() }
    }

    /// Adds what the node did about each lease of the request.
    #[must_use]
    pub fn with_leases(mut self, leases: Vec<NodeOutcome>) -> Self {
        self.leases = leases;
        self
    }
}

macro_rules! nodes {
    ($($reply:ty),*) => {$(
        impl $reply {
            /// What each node said; empty except from a quorum.
            pub fn nodes(&self) -> &[NodeReport] {
                &self.nodes
            }
        }
    )*};
}

nodes!(Granted, Refused, Renewed, Released, Page, Evicted);

impl Acquired {
    /// What each node said; empty except from a quorum.
    pub fn nodes(&self) -> &[NodeReport] {
        match self {
            Self::Granted(granted) => &granted.nodes,
            Self::Refused(refused) => &refused.nodes,
        }
    }
}
