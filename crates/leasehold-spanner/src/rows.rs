//! Converts rows of the table to the core's [`Holder`], and back.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use google_cloud_spanner::key::{Key as RowKey, KeySet};
use google_cloud_spanner::mutation::Mutation;
use google_cloud_spanner::result::Row;
use leasehold_core::table::{Holder, State};
use leasehold_core::term::micros_up;
use leasehold_core::{
    Error, FencingToken, GroupName, Key, LeaseId, Mode, Note, Now, Reason, Result, Table,
};

use crate::client::Found;
use crate::columns::{column, instant};
use crate::table::TableName;

/// The id of the row with the counter of a key: no lease has it.
const COUNTER: &[u8] = b"";

/// What a row is.
#[derive(Debug)]
pub(crate) enum Stored {
    /// The highest token of the key.
    Counter(u64),
    Lease(Holder),
    /// No row of the key.
    Nothing,
}

/// Rows of some keys, as one transaction sees them.
#[derive(Debug)]
pub(crate) struct Rows {
    now: i64,
    keys: BTreeMap<String, OfKey>,
}

#[derive(Debug, Default, Clone)]
struct OfKey {
    counter: u64,
    holders: Vec<Holder>,
    damage: Option<Error>,
}

impl Rows {
    /// # Errors
    /// `Corrupt` if a row has no key.
    pub(crate) fn of(found: &Found) -> Result<Self> {
        let mut rows = Self { now: found.now, keys: BTreeMap::new() };
        for row in &found.rows {
            let of_key = rows.keys.entry(name(row)?).or_default();
            match stored(row) {
                Ok(Stored::Counter(counter)) => of_key.counter = counter,
                Ok(Stored::Lease(holder)) => of_key.holders.push(holder),
                Ok(Stored::Nothing) => {}
                Err(error) => of_key.damage = Some(error),
            }
        }
        Ok(rows)
    }

    /// Spanner's clock when it read them.
    pub(crate) fn now(&self) -> Now {
        instant(self.now)
    }

    /// Lets the rules decide about some of the keys, and notes what they change.
    ///
    /// # Errors
    /// `Corrupt` if a row of these keys cannot be read, and those of the rules.
    pub(crate) fn decide<'k, T>(
        &self,
        table: &TableName,
        keys: impl IntoIterator<Item = &'k Key>,
        changes: &mut Vec<Mutation>,
        apply: impl FnOnce(&mut Table, Now) -> Result<T>,
    ) -> Result<T> {
        let mut before = Table::default();
        let mut counters = BTreeMap::new();
        for key in keys {
            let of_key = self.keys.get(key.as_str()).cloned().unwrap_or_default();
            if let Some(damage) = of_key.damage {
                return Err(damage);
            }
            let mut holders = of_key.holders;
            holders.sort_by_key(|holder| holder.token);
            let highest = holders.last().map_or(0, |holder| holder.token.get());
            if highest > of_key.counter {
                // The next token would not be above every earlier one (C7).
                return Err(Error::corrupt(format!(
                    "the counter of {key:?} is {}, and a lease on it has the token {highest}",
                    of_key.counter
                )));
            }
            before.insert(key.clone(), holders);
            counters.insert(key, of_key.counter);
        }
        let before = before.with_mark(counters.values().copied().max().unwrap_or_default());
        let mut after = before.clone();
        let reply = apply(&mut after, self.now())?;
        for (key, known) in counters {
            let (old, new) = (before.holders(key), after.holders(key));
            let highest = new.iter().map(|holder| holder.token.get()).max().unwrap_or_default();
            if highest > known {
                changes.push(counter(table, key, highest));
            }
            for holder in new.iter().filter(|holder| !old.contains(holder)) {
                changes.push(lease(table, key, holder)?);
            }
            let gone = old.iter().filter(|holder| !new.iter().any(|one| one.id == holder.id));
            for id in gone.filter_map(|holder| holder.id.as_ref()) {
                changes.push(delete(table, key, &id.to_bytes()));
            }
        }
        Ok(reply)
    }

    /// The highest token of a key.
    pub(crate) fn counter(&self, key: &Key) -> u64 {
        self.keys.get(key.as_str()).map_or(0, |of_key| of_key.counter)
    }
}

/// Forgets the counter of a key.
pub(crate) fn forget(table: &TableName, key: &Key) -> Mutation {
    delete(table, key, COUNTER)
}

fn counter(table: &TableName, key: &Key, value: u64) -> Mutation {
    Mutation::new_insert_or_update_builder(table.as_str())
        .set("key")
        .to(key.as_str())
        .set("id")
        .to(COUNTER.to_vec())
        .set("counter")
        .to(integer(value))
        .build()
}

fn delete(table: &TableName, key: &Key, id: &[u8]) -> Mutation {
    let row = RowKey::new(vec![key.as_str().into(), id.to_vec().into()]);
    Mutation::delete(table.as_str(), KeySet::builder().add_key(row).build())
}

fn lease(table: &TableName, key: &Key, holder: &Holder) -> Result<Mutation> {
    let Some(id) = &holder.id else {
        return Err(Error::unexpected(format!("a record of {key:?} has no lease id")));
    };
    let (state, reason) = match &holder.state {
        State::Held => ("h", None),
        State::Kept => ("k", None),
        State::Evicted(reason) => ("e", reason.as_ref()),
    };
    let text = |text: Option<&str>| text.map(str::to_owned);
    let note = &holder.note;
    Ok(Mutation::new_insert_or_update_builder(table.as_str())
        .set("key")
        .to(key.as_str())
        .set("id")
        .to(id.to_bytes().into_owned())
        .set("shared")
        .to(holder.mode.is_shared())
        .set("state")
        .to(state)
        .set("token")
        .to(integer(holder.token.get()))
        .set("expires")
        .to(holder.expires.map(|at| integer(micros_up(at))))
        .set("granted_at")
        .to(integer(holder.granted_at))
        .set("renewed_at")
        .to(holder.renewed_at.map(integer))
        .set("group_name")
        .to(text(holder.group.as_ref().map(GroupName::as_str)))
        .set("host")
        .to(text(note.host()))
        .set("pid")
        .to(note.pid().map(i64::from))
        .set("program")
        .to(text(note.program()))
        .set("comment")
        .to(text(note.comment()))
        .set("reason")
        .to(text(reason.map(Reason::as_str)))
        .build())
}

/// The text of the key.
pub(crate) fn name(row: &Row) -> Result<String> {
    column(row, "key")
}

/// The bytes of the id, if there is a row.
pub(crate) fn id(row: &Row) -> Result<Option<Vec<u8>>> {
    column(row, "id")
}

/// What a row is.
///
/// # Errors
/// `Corrupt` if Leasehold cannot have written it.
pub(crate) fn stored(row: &Row) -> Result<Stored> {
    let Some(id) = id(row)? else { return Ok(Stored::Nothing) };
    let key = name(row)?;
    let bad = |column: &str, why: &dyn Display| {
        Error::corrupt(format!("the column {column} of the key {key:?} is wrong: {why}"))
    };
    let number = |name: &str, value: i64| {
        u64::try_from(value).map_err(|_| bad(name, &format_args!("{value} is below 0")))
    };
    if id == COUNTER {
        let value: Option<i64> = column(row, "counter")?;
        let value = value.ok_or_else(|| bad("counter", &"it is null"))?;
        return number("counter", value).map(Stored::Counter);
    }
    let mode = match column::<Option<bool>>(row, "shared")? {
        Some(true) => Mode::SHARED,
        Some(false) => Mode::Exclusive,
        None => return Err(bad("shared", &"it is null")),
    };
    let text = |name: &str| column::<Option<String>>(row, name);
    let reason = text("reason")?.map(|reason| Reason::new(&reason)).transpose();
    let state = match text("state")?.as_deref() {
        Some("h") => State::Held,
        Some("k") => State::Kept,
        Some("e") => State::Evicted(reason.map_err(|e| bad("reason", &e))?),
        other => return Err(bad("state", &format_args!("it is {other:?}"))),
    };
    let token: Option<i64> = column(row, "token")?;
    let token = number("token", token.unwrap_or_default())?;
    let token = FencingToken::new(token).map_err(|e| bad("token", &e))?;
    let mut note = Note::default();
    if let Some(host) = text("host")? {
        note = note.with_host(&host).map_err(|e| bad("host", &e))?;
    }
    if let Some(pid) = column::<Option<i64>>(row, "pid")? {
        note = note.with_pid(u32::try_from(pid).map_err(|e| bad("pid", &e))?);
    }
    if let Some(program) = text("program")? {
        note = note.with_program(&program).map_err(|e| bad("program", &e))?;
    }
    if let Some(comment) = text("comment")? {
        note = note.with_comment(&comment).map_err(|e| bad("comment", &e))?;
    }
    let group = text("group_name")?.map(|group| GroupName::new(&group)).transpose();
    let micros = |name: &str| -> Result<Option<u64>> {
        column::<Option<i64>>(row, name)?.map(|value| number(name, value)).transpose()
    };
    Ok(Stored::Lease(Holder {
        id: Some(LeaseId::foreign(&id).map_err(|e| bad("id", &e))?),
        mode,
        token,
        group: group.map_err(|e| bad("group_name", &e))?,
        note,
        expires: micros("expires")?.map(Duration::from_micros),
        granted_at: micros("granted_at")?.ok_or_else(|| bad("granted_at", &"it is null"))?,
        renewed_at: micros("renewed_at")?,
        state,
    }))
}

/// Spanner's integers end at 2^63 - 1: as microseconds, 292,000 years.
fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
