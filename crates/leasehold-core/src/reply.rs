//! The replies of a store.

mod holders;
mod outcomes;
mod page;

use std::sync::Arc;
use std::time::Duration;

use crate::{
    Cursor, Error, EvictTarget, FencingToken, Key, LostReason, NodeReports, Record, Remaining,
};

pub use outcomes::{each_or_worst, worst};
pub use page::Page;

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
    /// What each node of a quorum reported.
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
    /// What each node of a quorum reported.
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
    /// Another lease holds it: if the store knows, the one whose end the request awaits.
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
    /// What each node of a quorum reported.
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
    /// What each node of a quorum reported.
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
    /// What may match too, but cannot be shown as a record.
    pub unreadable: Vec<Unreadable>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Cursor>,
    /// What each node of a quorum reported.
    pub nodes: NodeReports,
}

impl ListReply {
    /// A page.
    pub fn new(records: Vec<Record>, next: Option<Cursor>) -> Self {
        Self { records, unreadable: Vec::new(), next, nodes: NodeReports::default() }
    }
}

/// The reply to an [`EvictRequest`](crate::EvictRequest).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EvictReply {
    /// The removed records.
    pub removed: Vec<EvictTarget>,
    /// How many counters were forgotten.
    pub counters_forgotten: usize,
    /// What a purge left because it could not read it.
    pub unreadable: Vec<Unreadable>,
    /// True if the limit was reached and more may be left.
    pub more: bool,
    /// What each node of a quorum reported.
    pub nodes: NodeReports,
}

impl EvictReply {
    /// What was removed.
    pub fn new(removed: Vec<EvictTarget>, counters_forgotten: usize, more: bool) -> Self {
        let (unreadable, nodes) = (Vec::new(), NodeReports::default());
        Self { removed, counters_forgotten, unreadable, more, nodes }
    }
}

/// What a store has in the place of a record and cannot read as one: its name is no [`Key`], it was damaged, or the store's
/// user may not read it. It is named, so that it is neither missed nor taken for free.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Unreadable {
    /// Its name in the store; bytes that are no text are replaced.
    pub name: String,
    /// Why it cannot be read, and what to do.
    pub error: Error,
    /// On a quorum, the node that has it.
    pub node: Option<Arc<str>>,
}

impl Unreadable {
    /// What is called `name`.
    pub fn new(name: impl Into<String>, error: Error) -> Self {
        Self { name: name.into(), error, node: None }
    }
}

macro_rules! nodes {
    ($($reply:ty),*) => {$(
        impl $reply {
            /// What each node of a quorum reported.
            pub fn nodes(&self) -> &NodeReports {
                &self.nodes
            }
        }
    )*};
}

nodes!(Granted, Refused, RenewReply, ReleaseReply, ListReply, EvictReply);

impl AcquireReply {
    /// What each node of a quorum reported.
    pub fn nodes(&self) -> &NodeReports {
        match self {
            Self::Granted(granted) => &granted.nodes,
            Self::Refused(refused) => &refused.nodes,
        }
    }
}
