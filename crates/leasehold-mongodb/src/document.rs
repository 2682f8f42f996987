//! The document of one key.

use std::time::Duration;

use leasehold_core::table::{Holder, State};
use leasehold_core::{Effect, Error, Key, Mode, Now, Reason, Record, ReleaseOutcome, Result};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, Document, doc};

use crate::error::damaged;
use crate::pipeline::release::TRACES;
use crate::record::{self, Skew, date, integer, millis, no_token, token_of};

/// The state of one key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The highest token of the key; 0 if it never had one.
    pub(crate) counter: u64,
    /// The records of the key; at most one per lease of ours.
    pub(crate) holders: Vec<Holder>,
}

/// What a document holds, and when the server read it.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) now: Now,
    /// With the ends of the holders' terms.
    pub(crate) entry: Entry,
    /// The records of the holders, in their order, and nothing for a mark of an evicted lease.
    records: Vec<Option<Document>>,
}

/// The fields of the document, and the server's clock as `now`, as the reply to a request shows them.
pub(crate) fn projection() -> Document {
    doc! { "resource": 1, "exclusive": 1, "shared": 1, "counter": 1, "evicted": 1, "released": 1, "now": "$$NOW" }
}

impl Skew {
    /// Reads a document. `Corrupt` if neither mongo-lock nor this store can have written it.
    pub(crate) fn read(self, document: &Document) -> Result<Stored> {
        let now = now(document)?;
        let counter = match document.get("counter") {
            None => 0,
            Some(counter) => integer(counter)
                .and_then(token_of)
                .ok_or_else(|| damaged("counter is no token"))?
                .get(),
        };
        let mut stored =
            Stored { now, entry: Entry { counter, holders: Vec::new() }, records: Vec::new() };
        match (document.get("exclusive"), document.get("shared")) {
            (None, None) => {}
            (Some(Bson::Document(exclusive)), Some(Bson::Document(shared))) => {
                self.read_exclusive(exclusive, &mut stored)?;
                self.read_shared(shared, &mut stored)?;
            }
            _ => return Err(damaged("exclusive or shared is no document")),
        }
        for mark in elements(document.get("evicted"))? {
            stored.entry.holders.push(evicted(mark)?);
            stored.records.push(None);
        }
        Ok(stored)
    }

    fn read_exclusive(self, exclusive: &Document, stored: &mut Stored) -> Result<()> {
        match exclusive.get("acquired") {
            Some(Bson::Boolean(false)) => {}
            Some(Bson::Boolean(true)) => {
                stored.entry.holders.push(self.holder(exclusive, Mode::Exclusive)?);
                stored.records.push(Some(exclusive.clone()));
            }
            _ => return Err(damaged("exclusive.acquired is neither true nor false")),
        }
        Ok(())
    }

    fn read_shared(self, shared: &Document, stored: &mut Stored) -> Result<()> {
        let locks = elements(shared.get("locks"))?;
        let count = shared.get("count").and_then(integer);
        if shared.get("locks").is_none() || count != i64::try_from(locks.len()).ok() {
            return Err(damaged("shared.count is not the number of shared.locks"));
        }
        for lock in locks {
            stored.entry.holders.push(self.holder(lock, Mode::SHARED)?);
            stored.records.push(Some(lock.clone()));
        }
        Ok(())
    }

    /// The fields of the document after a change of its entry.
    pub(crate) fn write(self, before: &Stored, entry: &Entry) -> Document {
        let mut exclusive = record::free();
        let (mut locks, mut marks) = (Vec::new(), Vec::new());
        for holder in &entry.holders {
            if let State::Evicted(reason) = &holder.state {
                marks.push(Bson::from(mark(holder, reason.as_ref())));
                continue;
            }
            let record = before.record_of(holder, self);
            if holder.mode.is_shared() {
                locks.push(Bson::from(record));
            } else {
                exclusive = record;
            }
        }
        let count = i64::try_from(locks.len()).unwrap_or(i64::MAX);
        let mut fields =
            doc! { "exclusive": exclusive, "shared": { "count": count, "locks": locks } };
        if let Some(counter) = i64::try_from(entry.counter).ok().filter(|counter| *counter > 0) {
            fields.insert("counter", counter);
        }
        if !marks.is_empty() {
            fields.insert("evicted", marks);
        }
        fields
    }
}

impl Stored {
    fn record_of(&self, holder: &Holder, skew: Skew) -> Document {
        let known = self.entry.holders.iter().zip(&self.records);
        for (before, record) in known {
            let Some(record) = record else { continue };
            if before == holder {
                return record.clone();
            }
            let is_same = before.granted_at == holder.granted_at && before.mode == holder.mode;
            match &holder.id {
                Some(_) if is_same && before.id == holder.id => return skew.record(holder, record),
                // Another client's, which no rule changes.
                None if is_same && before.expires == holder.expires => return record.clone(),
                _ => {}
            }
        }
        skew.new_record(holder)
    }

    /// The key for rules about who excludes whom, by a table with the margin `skew`: a record of ours excludes others until
    /// `expiresAt`, whatever its own skew was, and another client's for the skew longer.
    pub(crate) fn excluding(&self, skew: Skew) -> Entry {
        let mut entry = self.entry.clone();
        for (holder, record) in entry.holders.iter_mut().zip(&self.records) {
            let end = record.as_ref().and_then(|record| record.get_datetime("expiresAt").ok());
            let longer = if holder.token == no_token() { Duration::ZERO } else { skew.0 };
            if let Some(end) = end {
                holder.expires = Some(millis(*end).saturating_sub(longer));
            }
        }
        entry
    }

    /// The earliest time of the server's clock for what was sent so long before this was read.
    pub(crate) fn since(&self, ago: Duration) -> Duration {
        since(self.now.boot, ago)
    }

    /// When the term ended that a renewal continued which was written no earlier than this, in microseconds; `None` if there
    /// was none.
    pub(crate) fn continued(&self, holder: &Holder, skew: Skew, since: u64) -> Option<Duration> {
        let at = self.entry.holders.iter().position(|one| one == holder)?;
        let record = self.records.get(at)?.as_ref()?;
        // Else an earlier one renewed it.
        holder.renewed_at.filter(|at| *at >= since)?;
        let before = record.get_datetime("before").ok()?;
        Some(skew.end(millis(*before), record))
    }

    /// The record of a holder, as a listing shows it: another client's until the end that it states.
    pub(crate) fn shown(&self, holder: &Holder, key: &Key, skew: Skew) -> Option<Record> {
        let mut holder = holder.clone();
        if holder.token == no_token() {
            holder.expires = holder.expires.map(|end| end + skew.0);
        }
        holder.record(key, self.now).map(token_only_if_ours)
    }
}

/// The server's clock shows the millisecond that has begun: what was sent within one may have its beginning as its time.
fn since(now: Duration, ago: Duration) -> Duration {
    let earliest = now.saturating_sub(ago).as_millis();
    Duration::from_millis(u64::try_from(earliest).unwrap_or(u64::MAX))
}

/// How a lease ended that this batch ended, which was sent no earlier than `since`; `None` if it ended none.
///
/// # Errors
/// With an unknown effect if so many batches ended leases since that its trace may be gone.
pub(crate) fn ended_by(
    document: &Document,
    batch: ObjectId,
    since: Duration,
) -> Result<Option<ReleaseOutcome>> {
    let traces = document.get_array("released").into_iter().flatten();
    let traces: Vec<_> = traces.filter_map(Bson::as_document).collect();
    let own = traces.iter().find(|trace| trace.get_object_id("batch").is_ok_and(|id| id == batch));
    if let Some(own) = own {
        let was_late = own.get_bool("late").unwrap_or_default();
        return Ok(Some(if was_late { ReleaseOutcome::Expired } else { ReleaseOutcome::Released }));
    }
    let is_new = |trace: &&Document| trace.get_datetime("at").is_ok_and(|at| millis(*at) >= since);
    if traces.len() >= TRACES && traces.iter().all(is_new) {
        let message = "so many leases ended on the key meanwhile that it cannot be told whether this one was held";
        return Err(Error::unavailable(Effect::Unknown, message));
    }
    Ok(None)
}

/// A record that no client of ours wrote has no token.
pub(crate) fn token_only_if_ours(mut record: Record) -> Record {
    record.token = record.token.filter(|token| *token != no_token());
    record
}

/// The server's clock, in milliseconds.
fn now(document: &Document) -> Result<Now> {
    let now = document.get_datetime("now").map_err(|_| damaged("the reply has no time"))?;
    let boot = millis(*now);
    Ok(Now { boot, wall_micros: leasehold_core::term::micros_up(boot) })
}

/// The documents of an array that may be missing.
fn elements(array: Option<&Bson>) -> Result<Vec<&Document>> {
    match array {
        None => Ok(Vec::new()),
        Some(Bson::Array(elements)) => elements
            .iter()
            .map(|element| element.as_document().ok_or_else(|| damaged("a lock is no document")))
            .collect(),
        Some(_) => Err(damaged("shared.locks or evicted is no array")),
    }
}

/// Reads the mark of an evicted lease.
fn evicted(mark: &Document) -> Result<Holder> {
    let read = || {
        let id = leasehold_core::LeaseId::foreign(mark.get_str("lockId").ok()?.as_bytes()).ok()?;
        let token = token_of(integer(mark.get("token")?)?)?;
        Some((id, token, millis(*mark.get_datetime("until").ok()?)))
    };
    let (id, token, until) = read().ok_or_else(|| damaged("a mark in evicted cannot be read"))?;
    let reason = mark.get_str("reason").ok().and_then(|reason| Reason::new(reason).ok());
    Ok(Holder {
        id: Some(id),
        mode: Mode::Exclusive,
        token,
        group: None,
        note: Default::default(),
        expires: Some(until),
        granted_at: 0,
        renewed_at: None,
        state: State::Evicted(reason),
    })
}

fn mark(holder: &Holder, reason: Option<&Reason>) -> Document {
    let until = holder.expires.unwrap_or(Duration::ZERO);
    let mut mark = doc! {
        "lockId": holder.id.as_ref().map_or(Bson::Null, |id| record::id_text(id).into()),
        "token": i64::from(holder.token),
        "until": date(until),
    };
    if let Some(reason) = reason {
        mark.insert("reason", reason.as_str());
    }
    mark
}

impl Stored {
    /// A key without a document.
    pub(crate) fn none(now: Now) -> Self {
        Self { now, entry: Entry::default(), records: Vec::new() }
    }
}

/// The documents of a reply with a cursor.
pub(crate) fn first_batch(reply: &Document) -> impl Iterator<Item = &Document> {
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    batch.into_iter().flatten().filter_map(|one| one.as_document())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_within_a_millisecond_may_have_the_time_of_its_beginning() {
        let of_micros = Duration::from_micros;
        assert_eq!(since(of_micros(100_500_000), of_micros(499_400)), of_micros(100_000_000));
        assert_eq!(since(of_micros(100_500_000), of_micros(500_000)), of_micros(100_000_000));
        assert_eq!(since(of_micros(1_000), of_micros(1_500)), Duration::ZERO);
    }
}
