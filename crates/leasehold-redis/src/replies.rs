//! Reads the replies of the scripts.

use std::time::Duration;

use leasehold_core::term::micros_up;
use leasehold_core::{
    AcquireReply, AcquireRequest, Effect, Error, ErrorKind, FencingToken, Granted, Key, LeaseId,
    LostReason, Mode, Record, RecordTerm, RefusalReason, Refused, ReleaseOutcome, Remaining,
    RenewEntry, RenewOutcome, Result, Unreadable,
};
use redis::Value;

use crate::{error, text};

/// Clients of other libraries publish nothing when they release, so a waiter behind one asks at least this often.
const FOREIGN_POLL: Duration = Duration::from_millis(200);

/// Reads the replies of the server of this name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a str);

impl Reader<'_> {
    pub(crate) fn acquired(self, request: &AcquireRequest, reply: Value) -> Result<AcquireReply> {
        if let Value::BulkString(_) = reply {
            let token = self.token(self.number(Some(&reply))?);
            // It ends no earlier than its term after the request was sent.
            let term = request.term().duration().map(|term| Duration::from_micros(micros_up(term)));
            let remaining = term.map_or(Remaining::Never, Remaining::For);
            return Ok(AcquireReply::Granted(Granted::new(token, remaining, true)));
        }
        let (claims, id) = (request.claims(), request.id());
        let parts = self.array(reply)?;
        let at = |parts: &[Value]| {
            let claim =
                self.number(parts.get(1))?.checked_sub(1).and_then(|at| usize::try_from(at).ok());
            claim
                .and_then(|at| claims.iter().nth(at))
                .ok_or_else(|| self.unexpected("a claim's number"))
        };
        match self.word(&parts)? {
            "granted" => Ok(AcquireReply::Granted(Granted::new(
                self.token(self.number(parts.get(1))?),
                self.remaining(parts.get(2))?,
                self.number(parts.get(3))? == 1,
            ))),
            "refused" => {
                let key = at(&parts)?.key.clone();
                let retry_after = self.remaining(parts.get(2))?.duration();
                let now = self.number(parts.get(3))?;
                let holder = parts.get(4).ok_or_else(|| self.unexpected("no holder"))?;
                let is_foreign = self.is_foreign(holder)?;
                let holder = Box::new(self.record(&key, now, holder)?);
                let why = RefusalReason::Held(Some(holder));
                let mut refused = Refused::new(key, why, retry_after);
                refused.poll_within = is_foreign.then_some(FOREIGN_POLL);
                Ok(AcquireReply::Refused(refused))
            }
            "mode" => Err(at(&parts)?.conflict(id, self.mode(parts.get(2))?)),
            "quarantine" => {
                let rest = Duration::from_millis(self.number(parts.get(1))?);
                let message = format!(
                    "{} has just started and may have lost leases; it grants nothing for another {rest:?}",
                    self.0
                );
                Err(Error::unavailable(Effect::NotApplied, message).with_retry_after(rest))
            }
            "rewrite" => Err(Error::unavailable(
                Effect::NotApplied,
                format!(
                    "{} writes its append-only file for the first time; until that is done, it grants nothing",
                    self.0
                ),
            )),
            "appendonly" => Err(Error::incompatible(format!(
                "the URL of {} sets durable=1, but it writes no append-only file; leave durable=1 out",
                self.0
            ))),
            "promoted" => Err(Error::incompatible(format!(
                "{} was a replica and may lack leases that its master had granted; use another server",
                self.0
            ))),
            other => Err(self.unexpected(other)),
        }
    }

    pub(crate) fn renewed(self, lease: &RenewEntry, reply: Value) -> Result<RenewOutcome> {
        let claims = lease.claims();
        let parts = self.array(reply)?;
        Ok(match self.word(&parts)? {
            "held" => RenewOutcome::Held(self.remaining(parts.get(1))?),
            "lost" => RenewOutcome::Lost(Some(match parts.get(1) {
                Some(Value::BulkString(why)) if why == b"expired" => LostReason::Expired,
                Some(Value::BulkString(why)) if why == b"evicted" => {
                    LostReason::Evicted(text::read_reason(self.bytes(parts.get(2))?))
                }
                _ => LostReason::Gone,
            })),
            "mode" => {
                let at = usize::try_from(self.number(parts.get(1))?).unwrap_or(usize::MAX);
                let claim = claims.iter().nth(at.saturating_sub(1)).unwrap_or(claims.first());
                RenewOutcome::Failed(claim.conflict(lease.id(), self.mode(parts.get(2))?))
            }
            "raise" => RenewOutcome::Failed(lease.raised_too_far(self.number(parts.get(1))?)),
            "failed" => RenewOutcome::Failed(self.failure(&parts)?),
            other => return Err(self.unexpected(other)),
        })
    }

    /// Of each lease of a request.
    pub(crate) fn released_all(self, reply: Value) -> Result<Vec<ReleaseOutcome>> {
        match reply {
            Value::Int(1) => Ok(vec![ReleaseOutcome::Released]),
            replies => self.array(replies)?.into_iter().map(|reply| self.released(reply)).collect(),
        }
    }

    fn released(self, reply: Value) -> Result<ReleaseOutcome> {
        let parts = self.array(reply)?;
        Ok(match self.word(&parts)? {
            "released" => ReleaseOutcome::Released,
            "expired" => ReleaseOutcome::Expired,
            "not held" => ReleaseOutcome::NotHeld,
            "kept" => ReleaseOutcome::Kept(Duration::from_micros(self.number(parts.get(1))?)),
            "failed" => ReleaseOutcome::Failed(self.failure(&parts)?),
            other => return Err(self.unexpected(other)),
        })
    }

    /// Whether each of several was done, or why not.
    pub(crate) fn done(self, reply: Value) -> Result<Vec<Result<bool>>> {
        let one = |reply| match reply {
            Value::Int(done) => Ok(Ok(done == 1)),
            failed => Ok(Err(self.failure(&self.array(failed)?)?)),
        };
        self.array(reply)?.into_iter().map(one).collect()
    }

    /// The records of the named keys, in their order.
    pub(crate) fn listed(self, keys: &[&Key], reply: Value) -> Result<Vec<Result<Vec<Record>>>> {
        let mut parts = self.array(reply)?.into_iter();
        let now = self.number(parts.next().as_ref())?;
        let of_keys = self.array(parts.next().unwrap_or(Value::Nil))?;
        keys.iter().zip(of_keys).map(|(key, holders)| self.holders(key, now, holders)).collect()
    }

    /// One step of a scan: where it continues, and the records of each plain key, or why they cannot be read.
    #[expect(clippy::type_complexity, reason = "read once, at once")]
    pub(crate) fn scanned(
        self,
        key_of: impl Fn(&[u8]) -> Option<Result<Key, String>>,
        reply: Value,
    ) -> Result<(u64, Vec<Result<Vec<Record>, Unreadable>>)> {
        let mut parts = self.array(reply)?.into_iter();
        let now = self.number(parts.next().as_ref())?;
        let next = self.number(parts.next().as_ref())?;
        let mut found = Vec::new();
        for pair in self.array(parts.next().unwrap_or(Value::Nil))? {
            let mut pair = self.array(pair)?.into_iter();
            let name = pair.next();
            found.push(match key_of(self.bytes(name.as_ref())?) {
                None => continue,
                Some(Ok(key)) => self
                    .holders(&key, now, pair.next().unwrap_or(Value::Nil))?
                    .map_err(|error| Unreadable::new(key.as_str(), of_others(error))),
                Some(Err(name)) => {
                    let message = format!("{name:?} is no key that Leasehold can have written");
                    Err(Unreadable::new(name, Error::corrupt(message)))
                }
            });
        }
        Ok((next, found))
    }

    fn holders(self, key: &Key, now: u64, reply: Value) -> Result<Result<Vec<Record>>> {
        let holders = self.array(reply)?;
        if matches!(holders.first(), Some(Value::BulkString(word)) if word == b"failed") {
            return Ok(Err(self.failure(&holders)?));
        }
        holders.iter().map(|holder| self.record(key, now, holder)).collect::<Result<_>>().map(Ok)
    }

    fn parts(self, holder: &Value) -> Result<&[Value]> {
        match holder {
            Value::Array(parts) => Ok(parts),
            _ => Err(self.unexpected("a holder")),
        }
    }

    /// Whether the metadata lacks a holder, so that another client wrote it.
    fn is_foreign(self, holder: &Value) -> Result<bool> {
        Ok(self.number(self.parts(holder)?.first())? == 1)
    }

    /// A holder: whether the metadata lacks it, its id, whether it holds now, and its record.
    fn record(self, key: &Key, now: u64, holder: &Value) -> Result<Record> {
        let is_foreign = self.is_foreign(holder)?;
        let parts = self.parts(holder)?;
        // A foreign holder may have an id that is not allowed here: its record has none.
        let id = LeaseId::foreign(self.bytes(parts.get(1))?).ok();
        let is_live = self.number(parts.get(2))? == 1;
        let mut fields = self.bytes(parts.get(3))?.splitn(6, |byte| *byte == b' ');
        let kind = fields.next().unwrap_or_default();
        let mut number = || {
            let text = fields.next().and_then(|field| std::str::from_utf8(field).ok());
            text.and_then(|text| text.parse::<u64>().ok())
                .ok_or_else(|| self.unexpected("a record"))
        };
        let (ends, token, since, renewed) = (number()?, number()?, number()?, number()?);
        let ends = ends.saturating_mul(1_000);
        let micros = |from: u64, to: u64| Duration::from_micros(to.saturating_sub(from));
        let term = match (is_live, ends) {
            (true, 0) => RecordTerm::Live(Remaining::Never),
            (true, _) => RecordTerm::Live(Remaining::For(micros(now, ends))),
            // A broken lease has not expired but has ended all the same.
            (false, _) => RecordTerm::Expired((ends > 0 && ends <= now).then(|| micros(ends, now))),
        };
        let mode = if kind.first() == Some(&b's') { Mode::SHARED } else { Mode::Exclusive };
        let mut record = Record::new(key.clone(), mode, term);
        record.id = id;
        record.kept = kind.get(1) == Some(&b'k');
        if !is_foreign {
            record.token = self.token(token);
            record.age = (since > 0).then(|| micros(since, now));
            record.renewed = (renewed > 0).then(|| micros(renewed, now));
            (record.group, record.note) = text::read_holder(fields.next().unwrap_or_default());
        }
        Ok(record)
    }

    /// `{'failed', what the server replied}`.
    fn failure(self, parts: &[Value]) -> Result<Error> {
        let reply = String::from_utf8_lossy(self.bytes(parts.get(1))?).into_owned();
        let (code, detail) = reply.trim_start_matches('-').split_once(' ').unwrap_or((&reply, ""));
        Ok(error::of_text(self.0, code, detail))
    }

    fn unexpected(self, what: &str) -> Error {
        error::unexpected(self.0, what)
    }

    pub(crate) fn array(self, reply: Value) -> Result<Vec<Value>> {
        match reply {
            Value::Array(parts) => Ok(parts),
            _ => Err(self.unexpected("no array")),
        }
    }

    fn word(self, parts: &[Value]) -> Result<&str> {
        let word = self.bytes(parts.first())?;
        std::str::from_utf8(word).map_err(|_| self.unexpected("no word"))
    }

    fn bytes(self, reply: Option<&Value>) -> Result<&[u8]> {
        match reply {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            _ => Err(self.unexpected("no text")),
        }
    }

    fn number(self, reply: Option<&Value>) -> Result<u64> {
        let number = match reply {
            Some(Value::Int(number)) => u64::try_from(*number).ok(),
            Some(Value::BulkString(text)) => {
                std::str::from_utf8(text).ok().and_then(|text| text.parse().ok())
            }
            _ => None,
        };
        number.ok_or_else(|| self.unexpected("no number"))
    }

    fn mode(self, reply: Option<&Value>) -> Result<Mode> {
        Ok(if self.bytes(reply)? == b"s" { Mode::SHARED } else { Mode::Exclusive })
    }

    /// Microseconds; −1 is never.
    fn remaining(self, reply: Option<&Value>) -> Result<Remaining> {
        if let Some(Value::Int(-1)) = reply {
            return Ok(Remaining::Never);
        }
        self.number(reply).map(|micros| Remaining::For(Duration::from_micros(micros)))
    }

    fn token(self, token: u64) -> Option<FencingToken> {
        FencingToken::new(token).ok()
    }
}

/// A record that a scan finds and the user may not read belongs to others.
fn of_others(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Denied => Error::denied(
            "the user may not read what others have; a filter with the prefix of your own keys (--prefix) leaves it out",
        )
        .with_source(error),
        _ => error,
    }
}
