use std::fmt;

use leasehold_core::{
    Error, FencingToken, GroupName, InvalidValue, Key, LeaseId, Mode, Note, Record, RecordTerm,
    Remaining, Result,
};
use serde::Deserialize;
use serde_json::Value;

/// A row of a table of leases, as a SQL server writes it in JSON: the store's own clock and the columns.
#[derive(Debug, Clone, Default, Deserialize)]
#[non_exhaustive]
pub struct Stored {
    /// The key.
    pub key: String,
    /// The slot of the key; 0 is the key's own row.
    pub slot: i64,
    /// The key's highest token, in slot 0.
    pub counter: i64,
    /// The lease's id in hexadecimal digits; absent in a free slot.
    pub id: Option<String>,
    /// `true` for a shared lease.
    pub shared: Option<bool>,
    /// `h` held, `k` kept after its release, `e` evicted.
    pub state: Option<String>,
    /// The lease's token.
    pub token: Option<i64>,
    /// When its term ends, in microseconds since 1970; absent for never.
    pub expires: Option<i64>,
    /// When it was granted.
    pub granted_at: Option<i64>,
    /// When it was last renewed.
    pub renewed_at: Option<i64>,
    /// The group it is listed under.
    pub group_name: Option<String>,
    /// The holder's host.
    pub host: Option<String>,
    /// The holder's process id.
    pub pid: Option<i64>,
    /// The holder's program.
    pub program: Option<String>,
    /// The holder's comment.
    pub comment: Option<String>,
    /// Why it was evicted.
    pub reason: Option<String>,
    /// Why the row cannot be read at all.
    #[serde(skip)]
    damage: Option<Error>,
}

impl Stored {
    /// Parses a row. It is damaged if a column is missing or of another type.
    pub fn parse(json: &str) -> Self {
        serde_json::from_str(json).unwrap_or_else(|e| {
            let columns: Value = serde_json::from_str(json).unwrap_or_default();
            let text = |column: &str| columns[column].as_str().unwrap_or_default().to_owned();
            let slot = columns["slot"].as_i64().unwrap_or_default();
            let message = format!("a row of the table of leases: {e}");
            Self::damaged(text("key"), slot, Error::corrupt(message).with_source(e))
        })
    }

    /// A row that cannot be read.
    pub fn damaged(key: String, slot: i64, why: Error) -> Self {
        Self { key, slot, damage: Some(why), ..Self::default() }
    }

    /// The key.
    ///
    /// # Errors
    /// `Corrupt` if Leasehold cannot have written it.
    pub fn key(&self) -> Result<Key> {
        Key::new(&self.key).map_err(|e| self.corrupt("key", e))
    }

    /// The lease, if the slot has one.
    ///
    /// # Errors
    /// `Corrupt` if Leasehold cannot have written it.
    pub fn id(&self) -> Result<Option<LeaseId>> {
        let Some(id) = &self.id else { return Ok(None) };
        let bytes = hex::decode(id).map_err(|_| self.corrupt("id", "it is not hexadecimal"))?;
        LeaseId::foreign(&bytes).map(Some).map_err(|e| self.corrupt("id", e))
    }

    /// What it reports of its lease at `now`, by the store's clock in microseconds; `None` without a lease, and for the
    /// mark of an evicted one.
    ///
    /// # Errors
    /// `Corrupt` if Leasehold cannot have written it.
    pub fn record(&self, now: i64) -> Result<Option<Record>> {
        if let Some(why) = &self.damage {
            return Err(why.clone());
        }
        let Some(id) = self.id()? else { return Ok(None) };
        let kept = match self.state.as_deref() {
            Some("h") => false,
            Some("k") => true,
            Some("e") => return Ok(None),
            other => return Err(self.corrupt("state", format_args!("it is {other:?}"))),
        };
        let mode = match self.shared {
            Some(true) => Mode::SHARED,
            Some(false) => Mode::Exclusive,
            None => return Err(self.corrupt("shared", "it is null")),
        };
        let since = |then: i64| micros(now.saturating_sub(then));
        let term = match self.expires {
            None => RecordTerm::Live(Remaining::Never),
            Some(at) if at <= now => RecordTerm::Expired(Some(since(at))),
            Some(at) => RecordTerm::Live(Remaining::For(micros(at.saturating_sub(now)))),
        };
        let mut record = Record::new(self.key()?, mode, term);
        record.id = Some(id);
        record.token = Some(self.token()?);
        record.group = self.text("group_name", &self.group_name, GroupName::new)?;
        record.note = self.note()?;
        record.age = self.granted_at.map(since);
        record.renewed = self.renewed_at.map(since);
        record.kept = kept;
        Ok(Some(record))
    }

    fn token(&self) -> Result<FencingToken> {
        let token = self.token.and_then(|token| u64::try_from(token).ok());
        let token = token.and_then(|token| FencingToken::new(token).ok());
        token.ok_or_else(|| self.corrupt("token", format_args!("it is {:?}", self.token)))
    }

    fn note(&self) -> Result<Note> {
        let mut note = Note::default();
        if let Some(host) = &self.host {
            note = note.with_host(host).map_err(|e| self.corrupt("host", e))?;
        }
        if let Some(pid) = self.pid {
            note = note.with_pid(u32::try_from(pid).map_err(|e| self.corrupt("pid", e))?);
        }
        if let Some(program) = &self.program {
            note = note.with_program(program).map_err(|e| self.corrupt("program", e))?;
        }
        if let Some(comment) = &self.comment {
            note = note.with_comment(comment).map_err(|e| self.corrupt("comment", e))?;
        }
        Ok(note)
    }

    fn text<T>(
        &self,
        column: &str,
        value: &Option<String>,
        parse: impl FnOnce(&str) -> Result<T, InvalidValue>,
    ) -> Result<Option<T>> {
        value.as_deref().map(parse).transpose().map_err(|e| self.corrupt(column, e))
    }

    fn corrupt(&self, column: &str, why: impl fmt::Display) -> Error {
        Error::corrupt(format!(
            "the column {column} of the key {:?}, slot {}, was changed ({why}); restore it, or delete the key's rows and \
             with them its token counter",
            self.key, self.slot
        ))
    }
}

fn micros(value: i64) -> std::time::Duration {
    std::time::Duration::from_micros(u64::try_from(value).unwrap_or(0))
}
