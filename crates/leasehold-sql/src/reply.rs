//! What the rows of replies mean.

use std::fmt::Display;
use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, Error, FencingToken, Granted, Key, LeaseId, LostReason,
    Mode, Reason, RefusalReason, Refused, ReleaseOutcome, Remaining, RenewEntry, RenewOutcome,
    Result,
};

use crate::stored::Stored;

/// A row of a reply, by the names of its columns.
pub trait ReplyRow {
    /// The number in a column; `None` for null.
    ///
    /// # Errors
    /// `Unexpected` without such a column.
    fn integer(&self, column: &str) -> Result<Option<i64>>;

    /// The text in a column; `None` for null.
    ///
    /// # Errors
    /// `Unexpected` without such a column.
    fn text(&self, column: &str) -> Result<Option<String>>;

    /// The row of the lease that refuses an acquire.
    ///
    /// # Errors
    /// `Unexpected` if there is none.
    fn holder(&self) -> Result<Stored>;

    /// The key that the lease holds in another mode.
    ///
    /// # Errors
    /// `Unexpected` if it is none of these.
    fn key<'c>(&self, claims: &'c Claims) -> Result<&'c Key>;

    /// Whether a member of a batch was released after its term.
    ///
    /// # Errors
    /// `Unexpected` if the row does not report it.
    fn is_late(&self) -> Result<bool>;

    /// The error for a reply that has no meaning.
    fn unexpected(&self, what: impl Display) -> Error;
}

/// How a request ended by the first row of its reply: `None` if it did not act, because another transaction has locked a row,
/// or because only the general statement can decide.
pub(crate) fn outcome(row: &impl ReplyRow) -> Result<Option<String>> {
    let outcome = row.text("outcome")?.unwrap_or_default();
    Ok(Some(outcome).filter(|outcome| !["locked", "undecided"].contains(&outcome.as_str())))
}

pub(crate) fn acquired(
    request: &AcquireRequest,
    row: &impl ReplyRow,
    outcome: &str,
) -> Result<AcquireReply> {
    match outcome {
        "granted" => granted(row, true),
        "confirmed" => granted(row, false),
        "refused" => {
            let holder = row.holder()?;
            let record = holder.record(required(row, "o_now")?)?;
            let key = request.claims().keys().find(|key| key.as_str() == holder.key);
            let key = key
                .ok_or_else(|| row.unexpected(format_args!("the key {:?}", holder.key)))?
                .clone();
            let rest = row.integer("o_rest")?.map(duration);
            let why = RefusalReason::Held(record.map(Box::new));
            Ok(AcquireReply::Refused(Refused::new(key, why, rest)))
        }
        "mode" => Err(mode_conflict(request.id(), request.claims(), row)?),
        "exhausted" => Err(Error::corrupt(format!(
            "the token counter of {:?} has reached its maximum",
            request.claims().first().key
        ))),
        other => Err(row.unexpected(format_args!("the outcome {other:?}"))),
    }
}

pub(crate) fn renewed(
    lease: &RenewEntry,
    row: &impl ReplyRow,
    outcome: &str,
) -> Result<RenewOutcome> {
    let lost = |reason| Ok(RenewOutcome::Lost(Some(reason)));
    match outcome {
        "held" => held(row),
        "gone" => lost(LostReason::Gone),
        "expired" => lost(LostReason::Expired),
        "evicted" => {
            let reason = row.text("o_reason")?;
            // A reason that cannot be read does not change the outcome.
            lost(LostReason::Evicted(reason.and_then(|reason| Reason::new(&reason).ok())))
        }
        "mode" => mode_conflict(lease.id(), lease.claims(), row).map(RenewOutcome::Failed),
        other => Err(row.unexpected(format_args!("the outcome {other:?}"))),
    }
}

pub(crate) fn released(row: &impl ReplyRow, outcome: &str) -> Result<ReleaseOutcome> {
    match outcome {
        "released" => Ok(ReleaseOutcome::Released),
        "kept" => Ok(ReleaseOutcome::Kept(duration(required(row, "o_rest")?))),
        "expired" => Ok(ReleaseOutcome::Expired),
        "not held" => Ok(ReleaseOutcome::NotHeld),
        other => Err(row.unexpected(format_args!("the outcome {other:?}"))),
    }
}

/// A grant; without a rest, for ever.
pub(crate) fn granted(row: &impl ReplyRow, fresh: bool) -> Result<AcquireReply> {
    let token = u64::try_from(required(row, "o_token")?).ok();
    let token = token.and_then(|token| FencingToken::new(token).ok());
    let token = token.ok_or_else(|| row.unexpected("a token"))?;
    Ok(AcquireReply::Granted(Granted::new(Some(token), rest(row)?, fresh)))
}

pub(crate) fn held(row: &impl ReplyRow) -> Result<RenewOutcome> {
    rest(row).map(RenewOutcome::Held)
}

/// The end of a member of a batch that was found.
pub(crate) fn ended(row: &impl ReplyRow) -> Result<ReleaseOutcome> {
    Ok(if row.is_late()? { ReleaseOutcome::Expired } else { ReleaseOutcome::Released })
}

/// What remains of a term; without it, the term has no end.
fn rest(row: &impl ReplyRow) -> Result<Remaining> {
    let rest = row.integer("o_rest")?;
    Ok(rest.map_or(Remaining::Never, |rest| Remaining::For(duration(rest))))
}

fn required(row: &impl ReplyRow, column: &str) -> Result<i64> {
    row.integer(column)?.ok_or_else(|| row.unexpected(format_args!("no {column}")))
}

fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// The error for a lease that holds a key in another mode than it is requested in.
fn mode_conflict(id: &LeaseId, claims: &Claims, row: &impl ReplyRow) -> Result<Error> {
    let key = row.key(claims)?;
    let claim = claims.iter().find(|claim| claim.key == *key).unwrap_or(claims.first());
    let held = match claim.mode {
        Mode::Exclusive => Mode::SHARED,
        Mode::Shared { .. } => Mode::Exclusive,
    };
    Ok(claim.conflict(id, held))
}
