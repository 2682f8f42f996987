//! The requests about one lease, of which several go in one batch.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Key, LeaseId, ReleaseEntry, ReleaseOutcome, RenewEntry,
    RenewOutcome, Result,
};
use tokio::sync::oneshot;

use crate::{Deadline, patience};

/// How a request ended.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "each store handles both")]
pub enum Outcome<T> {
    /// The server has replied, or failed.
    Done(Result<T>),
    /// It must be sent alone.
    SendAlone,
}

/// A request about one lease, and the type of its reply.
pub trait Request: Sized + Send + Sync + 'static {
    /// What the server replies.
    type Reply: Send + 'static;

    /// The first key.
    fn key(&self) -> &Key;

    /// All its keys.
    fn keys(&self) -> impl Iterator<Item = &Key>;

    /// The term that it requests; `None` without one.
    fn term(&self) -> Option<Duration>;

    /// The request in the queue of batches.
    #[doc(hidden)]
    fn ticket(errand: Errand<Self>) -> Ticket;

    /// How long it may wait for the reply to what was sent before it on a connection, where an operation may take
    /// `timeout`: short enough that a lease is renewed in time all the same.
    fn patience(&self, timeout: Duration) -> Duration {
        patience(self.term(), timeout)
    }
}

impl Request for AcquireRequest {
    type Reply = AcquireReply;

    fn key(&self) -> &Key {
        &self.claims().first().key
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        self.claims().keys()
    }

    fn term(&self) -> Option<Duration> {
        AcquireRequest::term(self).duration()
    }

    fn ticket(errand: Errand<Self>) -> Ticket {
        Ticket::Acquire(errand)
    }
}

impl Request for RenewEntry {
    type Reply = RenewOutcome;

    fn key(&self) -> &Key {
        &self.claims().first().key
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        self.claims().keys()
    }

    fn term(&self) -> Option<Duration> {
        RenewEntry::term(self).duration()
    }

    fn ticket(errand: Errand<Self>) -> Ticket {
        Ticket::Renew(errand)
    }
}

impl Request for ReleaseEntry {
    type Reply = ReleaseOutcome;

    fn key(&self) -> &Key {
        &ReleaseEntry::keys(self)[0]
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        ReleaseEntry::keys(self).iter()
    }

    fn term(&self) -> Option<Duration> {
        None
    }

    fn ticket(errand: Errand<Self>) -> Ticket {
        Ticket::Release(errand)
    }
}

/// A request that waits for its batch, with the deadline of its caller and the way to answer it.
#[derive(Debug)]
pub struct Errand<R: Request> {
    pub(crate) request: Arc<R>,
    pub(crate) until: Deadline,
    pub(crate) reply: oneshot::Sender<Outcome<R::Reply>>,
}

/// A request of any kind that waits for its batch.
#[derive(Debug)]
#[non_exhaustive]
pub enum Ticket {
    /// Takes keys for a lease.
    Acquire(Errand<AcquireRequest>),
    /// Extends a lease.
    Renew(Errand<RenewEntry>),
    /// Ends a lease.
    Release(Errand<ReleaseEntry>),
}

/// Which requests go in one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Acquires,
    Renewals,
    Releases,
    /// Acquires and releases.
    Mixed,
}

impl Group {
    /// Whether a request can be in both.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        let are_others = self != Self::Renewals && other != Self::Renewals;
        self == other || are_others && (self == Self::Mixed || other == Self::Mixed)
    }
}

impl Ticket {
    pub(crate) fn group(&self, are_mixed: bool) -> Group {
        match self {
            Self::Renew(_) => Group::Renewals,
            _ if are_mixed => Group::Mixed,
            Self::Acquire(_) => Group::Acquires,
            Self::Release(_) => Group::Releases,
        }
    }

    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Acquire(errand) => errand.request.key(),
            Self::Renew(errand) => errand.request.key(),
            Self::Release(errand) => errand.request.key(),
        }
    }

    /// What is kept of it until it is answered.
    pub(crate) fn sent(&self) -> Sent {
        let (id, renewal) = match self {
            Self::Acquire(errand) => (errand.request.id(), None),
            Self::Renew(errand) => (errand.request.id(), Some(Request::term(&*errand.request))),
            Self::Release(errand) => (errand.request.id(), None),
        };
        Sent { id: id.clone(), renewal }
    }

    /// Whether it may be sent while an earlier request of its key is unanswered on a connection that stalls: nothing is
    /// wrong if the earlier one acts last. A late renewal revives nothing (C6), shortens nothing and reaches no lease of
    /// another id. A late acquire would take the key after its release, and a late release would end what was acquired
    /// after it.
    pub(crate) fn may_pass(&self, earlier: &Sent) -> bool {
        match (self, earlier.renewal) {
            (Self::Renew(_), Some(_)) => true,
            // A later lease of its id may get its term, but not for ever.
            (_, Some(term)) => term.is_some(),
            (Self::Renew(errand), None) => *errand.request.id() != earlier.id,
            (Self::Acquire(_) | Self::Release(_), None) => false,
        }
    }
}

/// A request that is not answered yet.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    id: LeaseId,
    /// The term that a renewal requests.
    renewal: Option<Option<Duration>>,
}

/// The requests of a batch about one key each, of different keys, each kind in key order: acquires and releases, or one kind.
#[derive(Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "each store sends all kinds")]
pub struct Requests<'b> {
    /// Those that take keys.
    pub acquires: Vec<&'b AcquireRequest>,
    /// Those that extend leases.
    pub renewals: Vec<&'b RenewEntry>,
    /// Those that end leases.
    pub releases: Vec<&'b ReleaseEntry>,
}

impl Requests<'_> {
    /// Their keys: those of the acquires, of the renewals, and of the releases.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let acquires = self.acquires.iter().map(|one| one.key());
        let renewals = self.renewals.iter().map(|one| one.key());
        acquires.chain(renewals).chain(self.releases.iter().map(|one| one.key()))
    }
}

/// How each of [`Requests`] ended, in their order.
#[derive(Debug, Default)]
#[expect(clippy::exhaustive_structs, reason = "each store answers all kinds")]
pub struct Outcomes {
    /// Of those that take keys.
    pub acquires: Vec<Outcome<AcquireReply>>,
    /// Of those that extend leases.
    pub renewals: Vec<Outcome<RenewOutcome>>,
    /// Of those that end leases.
    pub releases: Vec<Outcome<ReleaseOutcome>>,
}

impl Outcomes {
    /// Each must be sent alone.
    #[must_use]
    pub fn alone(requests: &Requests<'_>) -> Self {
        fn of<R: Request>(requests: &[&R]) -> Vec<Outcome<R::Reply>> {
            requests.iter().map(|_| Outcome::SendAlone).collect()
        }
        Self {
            acquires: of(&requests.acquires),
            renewals: of(&requests.renewals),
            releases: of(&requests.releases),
        }
    }
}

/// Requests of one group that are sent together, of different keys.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    acquires: Vec<Errand<AcquireRequest>>,
    renewals: Vec<Errand<RenewEntry>>,
    releases: Vec<Errand<ReleaseEntry>>,
}

impl Batch {
    pub(crate) fn add(&mut self, ticket: Ticket) {
        match ticket {
            Ticket::Acquire(errand) => self.acquires.push(errand),
            Ticket::Renew(errand) => self.renewals.push(errand),
            Ticket::Release(errand) => self.releases.push(errand),
        }
    }

    /// In key order.
    pub(crate) fn sort(&mut self) {
        fn sort<R: Request>(errands: &mut [Errand<R>]) {
            errands.sort_by(|a, b| a.request.key().cmp(b.request.key()));
        }
        sort(&mut self.acquires);
        sort(&mut self.renewals);
        sort(&mut self.releases);
    }

    pub(crate) fn requests(&self) -> Requests<'_> {
        fn of<R: Request>(errands: &[Errand<R>]) -> Vec<&R> {
            errands.iter().map(|errand| &*errand.request).collect()
        }
        Requests {
            acquires: of(&self.acquires),
            renewals: of(&self.renewals),
            releases: of(&self.releases),
        }
    }

    /// The first deadline of a caller.
    pub(crate) fn until(&self) -> Option<Deadline> {
        let acquires = self.acquires.iter().map(|errand| errand.until);
        let renewals = self.renewals.iter().map(|errand| errand.until);
        let releases = self.releases.iter().map(|errand| errand.until);
        acquires.chain(renewals).chain(releases).min_by_key(|until| until.left())
    }

    /// Tells each caller how its request ended.
    pub(crate) fn answer(self, outcomes: Outcomes) {
        fn answer<R: Request>(errands: Vec<Errand<R>>, outcomes: Vec<Outcome<R::Reply>>) {
            for (errand, outcome) in errands.into_iter().zip(outcomes) {
                // The caller may have gone.
                drop(errand.reply.send(outcome));
            }
        }
        answer(self.acquires, outcomes.acquires);
        answer(self.renewals, outcomes.renewals);
        answer(self.releases, outcomes.releases);
    }
}
