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

impl Ticket {
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

/// Requests of one kind that are sent together.
#[derive(Debug)]
pub(crate) enum Batch {
    Acquire(Vec<Errand<AcquireRequest>>),
    Renew(Vec<Errand<RenewEntry>>),
    Release(Vec<Errand<ReleaseEntry>>),
}

impl Batch {
    /// Of one request.
    pub(crate) fn of(first: Ticket) -> Self {
        match first {
            Ticket::Acquire(errand) => Self::Acquire(vec![errand]),
            Ticket::Renew(errand) => Self::Renew(vec![errand]),
            Ticket::Release(errand) => Self::Release(vec![errand]),
        }
    }

    /// Adds a request of its kind.
    pub(crate) fn add(&mut self, ticket: Ticket) -> Result<(), Ticket> {
        match (self, ticket) {
            (Self::Acquire(batch), Ticket::Acquire(errand)) => batch.push(errand),
            (Self::Renew(batch), Ticket::Renew(errand)) => batch.push(errand),
            (Self::Release(batch), Ticket::Release(errand)) => batch.push(errand),
            (_, other) => return Err(other),
        }
        Ok(())
    }
}
