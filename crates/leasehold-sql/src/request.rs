//! The requests about one lease, and what the rows of their replies mean.

use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, Error, FencingToken, Granted, LostReason, Mode, Reason,
    RefusalReason, Refused, ReleaseEntry, ReleaseOutcome, Remaining, RenewEntry, RenewOutcome,
    Result, term,
};
use leasehold_driver::batches;

use crate::error::locked;
use crate::reply::{ReadRows, Reply};

/// A request about one lease, and the type of its reply.
pub trait Request: batches::Request {
    /// Whether it may be sent again while nobody knows what became of it: late, it revives nothing (C6) and shortens
    /// nothing.
    const MAY_BE_REPEATED: bool = false;

    /// Whether it takes keys.
    const TAKES: bool = false;

    /// Whether it may go in a batch: it is about an exclusive lease of one key. A release does not know the mode; a shared
    /// lease is not found then, and is ended alone.
    fn is_simple(&self) -> bool;

    /// The reply if another transaction held a row for the whole time limit.
    ///
    /// # Errors
    /// What this reports, unless the request takes keys.
    #[doc(hidden)]
    fn locked(&self, server: &str) -> Result<Self::Reply> {
        Err(locked(server))
    }

    /// The reply in the row of a statement about this request alone that ended so.
    ///
    /// # Errors
    /// That of the request, or that of a reply without a meaning.
    #[doc(hidden)]
    fn reply(&self, row: &Reply<'_, impl ReadRows>, outcome: &str) -> Result<Self::Reply>;

    /// The reply in the row about a member of a batch that was carried out, or about all of its kind.
    ///
    /// # Errors
    /// That of a reply without a meaning.
    #[doc(hidden)]
    fn member(&self, row: &Reply<'_, impl ReadRows>) -> Result<Self::Reply>;
}

fn is_one(claims: &Claims) -> bool {
    claims.len() == 1 && claims.first().mode == Mode::Exclusive
}

impl Request for AcquireRequest {
    const TAKES: bool = true;

    fn locked(&self, _: &str) -> Result<Self::Reply> {
        let key = self.claims().first().key.clone();
        Ok(AcquireReply::Refused(Refused::new(key, RefusalReason::Busy, None)))
    }

    fn is_simple(&self) -> bool {
        is_one(self.claims())
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

    fn member(&self, row: &Reply<'_, impl ReadRows>) -> Result<Self::Reply> {
        if !row.is_of_all()? {
            return granted(row, true);
        }
        let passed = Duration::from_micros(row.required("o_passed")?.unsigned_abs());
        let rest = self.term().duration().map(|term| term.saturating_sub(passed));
        let remaining = rest.map_or(Remaining::Never, Remaining::For);
        Ok(AcquireReply::Granted(Granted::new(Some(token(row)?), remaining, true)))
    }
}

/// A grant; without a rest, for ever.
fn granted(row: &Reply<'_, impl ReadRows>, fresh: bool) -> Result<AcquireReply> {
    Ok(AcquireReply::Granted(Granted::new(Some(token(row)?), row.remaining()?, fresh)))
}

fn token(row: &Reply<'_, impl ReadRows>) -> Result<FencingToken> {
    let token = u64::try_from(row.required("o_token")?).ok();
    let token = token.and_then(|token| FencingToken::new(token).ok());
    token.ok_or_else(|| row.unexpected("a token"))
}

impl Request for RenewEntry {
    const MAY_BE_REPEATED: bool = true;

    fn is_simple(&self) -> bool {
        is_one(self.claims())
    }

    fn reply(&self, row: &Reply<'_, impl ReadRows>, outcome: &str) -> Result<Self::Reply> {
        let lost = |reason| Ok(RenewOutcome::Lost(Some(reason)));
        match outcome {
            "held" => self.member(row),
            "gone" => lost(LostReason::Gone),
            "expired" => lost(LostReason::Expired),
            "evicted" => {
                let reason = row.text("o_reason")?;
                // A reason that cannot be read does not change the outcome.
                lost(LostReason::Evicted(reason.and_then(|reason| Reason::new(&reason).ok())))
            }
            "mode" => row.mode_conflict(self.id(), self.claims()).map(RenewOutcome::Failed),
            "raise" => {
                let most = row.required("o_most")?;
                Ok(RenewOutcome::Failed(self.raised_too_far(most.unsigned_abs())))
            }
            other => Err(row.unexpected_outcome(other)),
        }
    }

    fn member(&self, row: &Reply<'_, impl ReadRows>) -> Result<Self::Reply> {
        row.remaining().map(RenewOutcome::Held)
    }
}

impl Request for ReleaseEntry {
    fn is_simple(&self) -> bool {
        self.keys().len() == 1 && self.keep().is_none()
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

    fn member(&self, row: &Reply<'_, impl ReadRows>) -> Result<Self::Reply> {
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
