//! The requests about one lease, of which several go in one batch, and what the rows of their replies mean.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, Error, FencingToken, Granted, Key, LeaseId, LostReason,
    Mode, Reason, RefusalReason, Refused, ReleaseEntry, ReleaseOutcome, RenewEntry, RenewOutcome,
    Result, term,
};
use leasehold_driver::{Deadline, patience};
use tokio::sync::oneshot;

use crate::reply::{ReadRows, Reply};

/// How a request ended.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    /// The server has replied, or failed.
    Done(Result<T>),
    /// It did not act, and must be sent alone.
    SendAlone,
}

/// A request about one lease, and the type of its reply.
pub trait Request: Sized + Send + Sync + 'static {
    /// What the server replies.
    type Reply: Send + 'static;

    /// Whether it may be sent again while nobody knows what became of it: late, it revives nothing (C6) and shortens
    /// nothing.
    const MAY_BE_REPEATED: bool = false;

    /// Whether it takes keys.
    const TAKES: bool = false;

    /// The first key.
    fn key(&self) -> &Key;

    /// The term that it requests; `None` without one.
    fn term(&self) -> Option<Duration>;

    /// Whether it may go in a batch: it is about an exclusive lease of one key. A release does not know the mode; a shared
    /// lease is not found then, and is ended alone.
    fn is_simple(&self) -> bool;

    /// The request in the queue of batches.
    #[doc(hidden)]
    fn ticket(errand: Errand<Self>) -> Ticket;

    /// The reply in the row of a statement about this request alone that ended so.
    ///
    /// # Errors
    /// That of the request, or that of a reply without a meaning.
    #[doc(hidden)]
    fn reply(&self, row: &Reply<'_, impl ReadRows>, outcome: &str) -> Result<Self::Reply>;

    /// The reply in the row of a member of a batch that was carried out.
    ///
    /// # Errors
    /// That of a reply without a meaning.
    #[doc(hidden)]
    fn member(row: &Reply<'_, impl ReadRows>) -> Result<Self::Reply>;

    /// How long it may wait for the reply to what was sent before it on a connection, where an operation may take
    /// `timeout`: short enough that a lease is renewed in time all the same.
    fn patience(&self, timeout: Duration) -> Duration {
        patience(self.term(), timeout)
    }
}

fn is_one(claims: &Claims) -> bool {
    claims.len() == 1 && claims.first().mode == Mode::Exclusive
}

impl Request for AcquireRequest {
    type Reply = AcquireReply;

    const TAKES: bool = true;

    fn key(&self) -> &Key {
        &self.claims().first().key
    }

    fn term(&self) -> Option<Duration> {
        AcquireRequest::term(self).duration()
    }

    fn is_simple(&self) -> bool {
        is_one(self.claims())
    }

    fn ticket(errand: Errand<Self>) -> Ticket {
        Ticket::Acquire(errand)
    }

    fn reply(&self, row: &Reply<'_, impl ReadRows>, outcome: &str) -> Result<Self::Reply> {
        match outcome {
            "granted" => granted(row, true),
            "confirmed" => granted(row, false),
            "refused" => {
                let (now, holder) = row.stored()?;
                let record = holder.record(now)?;
                let key = self.claims().keys().find(|key| key.as_str() == holder.key);
                let key = key
                    .ok_or_else(|| row.unexpected(format_args!("the key {:?}", holder.key)))?
                    .clone();
                let why = RefusalReason::Held(record.map(Box::new));
                Ok(AcquireReply::Refused(Refused::new(key, why, row.rest()?)))
            }
            "mode" => Err(row.mode_conflict(self.id(), self.claims())?),
            "exhausted" => Err(Error::corrupt(format!(
                "the token counter of {:?} has reached its maximum",
                self.claims().first().key
            ))),
            other => Err(row.unexpected_outcome(other)),
        }
    }

    fn member(row: &Reply<'_, impl ReadRows>) -> Result<Self::Reply> {
        granted(row, true)
    }
}

/// A grant; without a rest, for ever.
fn granted(row: &Reply<'_, impl ReadRows>, fresh: bool) -> Result<AcquireReply> {
    let token = u64::try_from(row.required("o_token")?).ok();
    let token = token.and_then(|token| FencingToken::new(token).ok());
    let token = token.ok_or_else(|| row.unexpected("a token"))?;
    Ok(AcquireReply::Granted(Granted::new(Some(token), row.remaining()?, fresh)))
}

impl Request for RenewEntry {
    type Reply = RenewOutcome;

    const MAY_BE_REPEATED: bool = true;

    fn key(&self) -> &Key {
        &self.claims().first().key
    }

    fn term(&self) -> Option<Duration> {
        RenewEntry::term(self).duration()
    }

    fn is_simple(&self) -> bool {
        is_one(self.claims())
    }

    fn ticket(errand: Errand<Self>) -> Ticket {
        Ticket::Renew(errand)
    }

    fn reply(&self, row: &Reply<'_, impl ReadRows>, outcome: &str) -> Result<Self::Reply> {
        let lost = |reason| Ok(RenewOutcome::Lost(Some(reason)));
        match outcome {
            "held" => Self::member(row),
            "gone" => lost(LostReason::Gone),
            "expired" => lost(LostReason::Expired),
            "evicted" => {
                let reason = row.text("o_reason")?;
                // A reason that cannot be read does not change the outcome.
                lost(LostReason::Evicted(reason.and_then(|reason| Reason::new(&reason).ok())))
            }
            "mode" => row.mode_conflict(self.id(), self.claims()).map(RenewOutcome::Failed),
            other => Err(row.unexpected_outcome(other)),
        }
    }

    fn member(row: &Reply<'_, impl ReadRows>) -> Result<Self::Reply> {
        row.remaining().map(RenewOutcome::Held)
    }
}

impl Request for ReleaseEntry {
    type Reply = ReleaseOutcome;

    fn key(&self) -> &Key {
        &self.keys()[0]
    }

    fn term(&self) -> Option<Duration> {
        None
    }

    fn is_simple(&self) -> bool {
        self.keys().len() == 1 && self.keep().is_none()
    }

    fn ticket(errand: Errand<Self>) -> Ticket {
        Ticket::Release(errand)
    }

    fn reply(&self, row: &Reply<'_, impl ReadRows>, outcome: &str) -> Result<Self::Reply> {
        match outcome {
            "released" => Ok(ReleaseOutcome::Released),
            "kept" => {
                let rest = row.rest()?.ok_or_else(|| row.unexpected("no o_rest"))?;
                Ok(ReleaseOutcome::Kept(rest))
            }
            "expired" => Ok(ReleaseOutcome::Expired),
            "not held" => Ok(ReleaseOutcome::NotHeld),
            other => Err(row.unexpected_outcome(other)),
        }
    }

    fn member(row: &Reply<'_, impl ReadRows>) -> Result<Self::Reply> {
        Ok(if row.flag("o_late")? { ReleaseOutcome::Expired } else { ReleaseOutcome::Released })
    }
}

/// Microseconds; the longest term is 10 years.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(term::micros_up(duration)).unwrap_or(i64::MAX)
}

/// Tokens are below 2^53.
pub fn integer(token: FencingToken) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

/// The limit of a claim: -1 for exclusive, 0 for shared, n for shared by at most n.
pub fn limit(mode: Mode) -> i32 {
    match mode {
        Mode::Exclusive => -1,
        Mode::Shared { max } => max.map_or(0, |max| i32::try_from(max.get()).unwrap_or(i32::MAX)),
    }
}

/// What a renewal asks for: the new term, the token, and the least token after it.
pub fn terms(lease: &RenewEntry) -> [Option<i64>; 3] {
    [lease.term().duration().map(micros), lease.token().map(integer), lease.raise().map(integer)]
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
