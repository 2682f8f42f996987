//! The record of one lock: the sub-document `exclusive`, or an element of `shared.locks`.

use std::time::Duration;

use leasehold_core::table::{Holder, State};
use leasehold_core::{FencingToken, GroupName, LeaseId, Mode, Note, Result};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

use crate::error::damaged;

/// The sub-document `exclusive` of a key that nobody holds exclusively, as mongo-lock leaves it.
pub(crate) fn free() -> Document {
    doc! {
        "lockId": null, "owner": null, "host": null, "comment": null,
        "createdAt": null, "renewedAt": null, "expiresAt": null, "acquired": false,
    }
}

/// What stands for the token of a record that no client of Leasehold wrote. Every token is a time, and greater.
pub(crate) fn no_token() -> FencingToken {
    FencingToken::new(1).expect("1 is a token")
}

/// The fields of a new record that do not depend on the server's clock.
pub(crate) fn fields(
    record: ObjectId,
    id: &LeaseId,
    group: Option<&GroupName>,
    note: &Note,
) -> Document {
    let text = |text: Option<&str>| text.map_or(Bson::Null, Bson::from);
    let mut fields = doc! {
        "_id": record,
        "lockId": id_text(id),
        "owner": text(group.map(GroupName::as_str)),
        "host": text(note.host()),
        "comment": text(note.comment()),
    };
    if let Some(pid) = note.pid() {
        fields.insert("pid", i64::from(pid));
    }
    if let Some(program) = note.program() {
        fields.insert("program", program);
    }
    fields
}

/// The store admits only ids that are text.
pub(crate) fn id_text(id: &LeaseId) -> String {
    String::from_utf8_lossy(&id.to_bytes()).into_owned()
}

/// How the ends of records are read and written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Skew(pub(crate) Duration);

impl Skew {
    /// Reads a record. `Corrupt` if it is not one that mongo-lock or this store writes.
    pub(crate) fn holder(self, record: &Document, mode: Mode) -> Result<Holder> {
        let id = match record.get("lockId") {
            // An id beyond our limits is another client's.
            Some(Bson::String(id)) => LeaseId::foreign(id.as_bytes()).ok(),
            _ => return Err(damaged("a lock has no lockId")),
        };
        let token = record.get("token").map(|token| integer(token).and_then(token_of));
        let token = match token {
            None => no_token(),
            Some(Some(token)) => token,
            Some(None) => return Err(damaged("the token of a lock is no token")),
        };
        let expires = match record.get("expiresAt") {
            None | Some(Bson::Null) => None,
            Some(Bson::DateTime(at)) => Some(self.end(millis(*at), record)),
            Some(_) => return Err(damaged("expiresAt of a lock is no date")),
        };
        let time = |name| match record.get(name) {
            Some(Bson::DateTime(at)) => Some(micros(*at)),
            _ => None,
        };
        let is_kept = matches!(record.get("kept"), Some(Bson::Boolean(true)));
        Ok(Holder {
            id,
            mode,
            token,
            group: text(record, "owner").and_then(|name| GroupName::new(name).ok()),
            note: note(record),
            expires,
            granted_at: time("createdAt").unwrap_or_default(),
            renewed_at: time("renewedAt"),
            state: if is_kept { State::Kept } else { State::Held },
        })
    }

    /// When the holder's term ends: so long before the end that clients with other clocks read.
    pub(crate) fn end(self, expires_at: Duration, record: &Document) -> Duration {
        let own = record.get("skew").and_then(integer).and_then(|skew| u64::try_from(skew).ok());
        expires_at.saturating_sub(own.map_or(self.0, Duration::from_millis))
    }

    /// The record of a changed holder, on the base of what was there.
    pub(crate) fn record(self, holder: &Holder, base: &Document) -> Document {
        let mut record = base.clone();
        let is_ours = holder.token != no_token();
        record.insert("renewedAt", holder.renewed_at.map_or(Bson::Null, date_of_micros));
        record.insert("expiresAt", holder.expires.map_or(Bson::Null, |end| date(end + self.0)));
        record.insert("acquired", true);
        if is_ours {
            record.insert("token", i64::from(holder.token));
            record.insert("skew", milliseconds(self.0));
        }
        if holder.state == State::Kept {
            record.insert("kept", true);
        }
        record
    }

    /// The record of a holder that was not there.
    pub(crate) fn new_record(self, holder: &Holder) -> Document {
        let id = holder.id.as_ref().expect("a lease of ours has an id");
        let mut base = fields(ObjectId::new(), id, holder.group.as_ref(), &holder.note);
        base.insert("createdAt", date_of_micros(holder.granted_at));
        self.record(holder, &base)
    }
}

fn text<'a>(record: &'a Document, name: &str) -> Option<&'a str> {
    record.get_str(name).ok().filter(|text| !text.is_empty())
}

/// What another client wrote beyond our limits is left out.
fn note(record: &Document) -> Note {
    let mut note = Note::default();
    if let Some(with) = text(record, "host").and_then(|host| note.clone().with_host(host).ok()) {
        note = with;
    }
    if let Some(with) =
        text(record, "program").and_then(|name| note.clone().with_program(name).ok())
    {
        note = with;
    }
    if let Some(with) =
        text(record, "comment").and_then(|text| note.clone().with_comment(text).ok())
    {
        note = with;
    }
    match record.get("pid").and_then(integer).and_then(|pid| u32::try_from(pid).ok()) {
        Some(pid) => note.with_pid(pid),
        None => note,
    }
}

/// Both kinds of integers are used, also for one field.
pub(crate) fn integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(number) => Some((*number).into()),
        Bson::Int64(number) => Some(*number),
        _ => None,
    }
}

pub(crate) fn token_of(number: i64) -> Option<FencingToken> {
    u64::try_from(number).ok().and_then(|number| FencingToken::new(number).ok())
}

/// Since 1970, which is 0 for a date before.
pub(crate) fn millis(date: DateTime) -> Duration {
    Duration::from_millis(u64::try_from(date.timestamp_millis()).unwrap_or_default())
}

fn micros(date: DateTime) -> u64 {
    leasehold_core::term::micros_up(millis(date))
}

/// Whole milliseconds, rounded up.
pub(crate) fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

pub(crate) fn date(since_1970: Duration) -> Bson {
    DateTime::from_millis(milliseconds(since_1970)).into()
}

fn date_of_micros(micros: u64) -> Bson {
    date(Duration::from_micros(micros))
}
