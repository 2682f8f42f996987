//! Converts rows of the database to the core's [`Holder`], and back.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use leasehold_core::table::{Holder, State, TELL_EXPIRED_FOR};
use leasehold_core::term::{micros_down, micros_up};
use leasehold_core::{
    Error, FencingToken, GroupName, Key, LeaseId, Mode, Note, Now, Reason, Result, Table,
    Unreadable,
};
use rusqlite::types::FromSql;
use rusqlite::{Connection, Params, Row, params};

use crate::error;
use crate::forgetting::Forgetting;
use crate::sql::Sql;

/// What an operation works with inside its transaction.
pub(crate) struct Rows<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) sql: &'a Sql,
    /// For messages.
    pub(crate) name: &'a str,
    /// The epoch of `now`.
    pub(crate) epoch: i64,
    /// Programs of schema version 1 may have leases.
    pub(crate) upgraded: bool,
    pub(crate) forgetting: &'a Forgetting,
    pub(crate) now: Now,
}

/// One record as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) key: Key,
    pub(crate) id: LeaseId,
    /// The epoch and instant of the end of its term; `None` for never.
    pub(crate) end: Option<(i64, i64)>,
    /// What the rules see: a term of an earlier epoch has ended.
    pub(crate) holder: Holder,
}

impl Rows<'_> {
    /// All state of `keys`, for the rules to work on.
    pub(crate) fn load(&self, keys: &BTreeSet<&Key>) -> Result<Table> {
        let mark = self.mark()?;
        let mut table = Table::default().with_mark(mark);
        for key in keys {
            let holders = self.holders(key)?;
            let highest = holders.last().map_or(0, |holder| holder.token.get());
            if highest > mark {
                // The next token would not be above every earlier one (C7).
                let what = format!("the mark of all tokens is {mark}, and {key:?} has {highest}");
                return Err(error::tables(self.name, what));
            }
            table.insert((*key).clone(), holders);
        }
        Ok(table)
    }

    /// Writes what the rules changed about `keys`, and nothing else: after a refusal, nothing (C2).
    pub(crate) fn save(&self, keys: &BTreeSet<&Key>, before: &Table, after: &Table) -> Result<()> {
        let has_new_tokens = after.mark() != before.mark();
        if has_new_tokens {
            self.execute(&self.sql.save_mark, [sql_integer(after.mark())])?;
        }
        for key in keys {
            let (old, new) = (before.holders(key), after.holders(key));
            let mut gone: HashMap<_, _> = old.iter().map(|h| (&h.id, h)).collect();
            for holder in new {
                if gone.remove(&holder.id) != Some(holder) {
                    self.save_holder(key, holder)?;
                }
            }
            for id in gone.into_keys().flatten() {
                self.delete_holder(key, id)?;
            }
            if self.upgraded && old != new {
                self.show_older_programs(key, new)?;
            }
        }
        if has_new_tokens { self.forget(keys.len()) } else { Ok(()) }
    }

    /// Programs of schema version 1 need the counter of a key as long as it has a record.
    fn show_older_programs(&self, key: &Key, holders: &[Holder]) -> Result<()> {
        let statement = if holders.is_empty() { &self.sql.leave } else { &self.sql.outgrow };
        self.execute(statement, [key.as_str()])
    }

    /// Removes what programs of schema version 1 need of keys that nobody holds any more.
    pub(crate) fn tidy(&self) -> Result<()> {
        if self.upgraded { self.execute(&self.sql.tidy, []) } else { Ok(()) }
    }

    /// Removes, with some of the grants, records that nobody needs to be told of.
    fn forget(&self, granted: usize) -> Result<()> {
        let Some(until) = self.now.boot.checked_sub(TELL_EXPIRED_FOR) else { return Ok(()) };
        let Some(most) = self.forgetting.with_grant(granted, self.now.boot) else { return Ok(()) };
        let (until, most) = (sql_integer(micros_down(until)), i64::try_from(most));
        self.execute(&self.sql.forget, params![self.epoch, until, most.unwrap_or(i64::MAX)])
    }

    /// Removes one record.
    pub(crate) fn delete_holder(&self, key: &Key, id: &LeaseId) -> Result<()> {
        self.execute(&self.sql.delete_holder, params![key.as_str(), &*id.to_bytes()])
    }

    /// Passes the records of a statement on, one by one, until `take` has enough; a damaged one as what it is.
    pub(crate) fn each_record(
        &self,
        statement: &str,
        parameters: impl Params,
        mut take: impl FnMut(Result<Stored, Unreadable>) -> Result<Next>,
    ) -> Result<()> {
        self.each(statement, parameters, |row| {
            take(self.stored(row).map_err(|error| unreadable(row, error)))
        })
    }

    /// The highest token of any key.
    fn mark(&self) -> Result<u64> {
        let mut mark = None;
        self.each(&self.sql.mark, [], |row| {
            mark = u64::try_from(self.column::<i64>(row, 0)?).ok();
            Ok(Next::Enough)
        })?;
        mark.ok_or_else(|| error::tables(self.name, "the mark of all tokens is missing"))
    }

    /// The records of one key, in the order of their grants.
    pub(crate) fn holders(&self, key: &Key) -> Result<Vec<Holder>> {
        let mut holders: Vec<Holder> = Vec::new();
        self.each_record(&self.sql.holders, [key.as_str()], |stored| {
            holders.push(stored.map_err(|damaged| damaged.error)?.holder);
            Ok(Next::More)
        })?;
        holders.sort_by_key(|holder| holder.token);
        Ok(holders)
    }

    fn save_holder(&self, key: &Key, holder: &Holder) -> Result<()> {
        let Some(id) = &holder.id else {
            return Err(Error::unexpected(format!("a record of {key:?} has no lease id")));
        };
        let (state, reason) = match &holder.state {
            State::Held => ("held", None),
            State::Kept => ("kept", None),
            State::Evicted(reason) => ("evicted", reason.as_ref()),
        };
        let note = &holder.note;
        self.execute(
            &self.sql.save_holder,
            params![
                key.as_str(),
                &*id.to_bytes(),
                if holder.mode.is_shared() { "shared" } else { "exclusive" },
                state,
                sql_integer(holder.token.get()),
                self.epoch,
                holder.expires.map(micros_up).map(sql_integer),
                sql_integer(holder.granted_at),
                holder.renewed_at.map(sql_integer),
                holder.group.as_ref().map(GroupName::as_str),
                note.host(),
                note.pid(),
                note.program(),
                note.comment(),
                reason.map(Reason::as_str),
            ],
        )
    }

    fn stored(&self, row: &Row<'_>) -> Result<Stored> {
        let key = self.key(row)?;
        let text = |at| self.column::<Option<String>>(row, at);
        let bad = |column: &str, error: &dyn std::fmt::Display| self.corrupt(column, &key, error);
        let id = LeaseId::foreign(&self.column::<Vec<u8>>(row, 1)?).map_err(|e| bad("id", &e))?;
        let mode = match self.column::<String>(row, 2)?.as_str() {
            "exclusive" => Mode::Exclusive,
            "shared" => Mode::SHARED,
            other => return Err(self.corrupt("mode", &key, format_args!("it is {other:?}"))),
        };
        let reason =
            text(14)?.map(|r| Reason::new(&r)).transpose().map_err(|e| bad("reason", &e))?;
        let state = match self.column::<String>(row, 3)?.as_str() {
            "held" => State::Held,
            "kept" => State::Kept,
            "evicted" => State::Evicted(reason),
            other => return Err(self.corrupt("state", &key, format_args!("it is {other:?}"))),
        };
        let epoch = self.column::<i64>(row, 5)?;
        let end = self.column::<Option<i64>>(row, 6)?.map(|expires| (epoch, expires));
        let holder = Holder {
            id: Some(id.clone()),
            mode,
            token: self.token("token", self.column(row, 4)?, &key)?,
            group: text(9)?
                .map(|o| GroupName::new(&o))
                .transpose()
                .map_err(|e| bad("group_name", &e))?,
            note: self.note(row).map_err(|e| bad("host, program or comment", &e))?,
            expires: end.map(|end| self.expires(end, &key)).transpose()?,
            granted_at: self.micros("granted_at", self.column(row, 7)?, &key)?,
            renewed_at: match self.column(row, 8)? {
                Some(at) => Some(self.micros("renewed_at", at, &key)?),
                None => None,
            },
            state,
        };
        Ok(Stored { key, id, end, holder })
    }

    fn note(&self, row: &Row<'_>) -> Result<Note> {
        let mut note = Note::default();
        if let Some(host) = self.column::<Option<String>>(row, 10)? {
            note = note.with_host(&host)?;
        }
        if let Some(pid) = self.column(row, 11)? {
            note = note.with_pid(pid);
        }
        if let Some(program) = self.column::<Option<String>>(row, 12)? {
            note = note.with_program(&program)?;
        }
        if let Some(comment) = self.column::<Option<String>>(row, 13)? {
            note = note.with_comment(&comment)?;
        }
        Ok(note)
    }

    /// A term of another boot has ended, whatever its instant: the machine has been down since, or used another
    /// clock.
    fn expires(&self, (epoch, expires): (i64, i64), key: &Key) -> Result<Duration> {
        let expires = self.micros("expires", expires, key)?;
        Ok(if epoch == self.epoch { Duration::from_micros(expires) } else { Duration::ZERO })
    }

    fn key(&self, row: &Row<'_>) -> Result<Key> {
        let key = self.column::<String>(row, 0)?;
        Key::new(&key).map_err(|e| self.corrupt("key", format_args!("{key:?}"), e))
    }

    fn token(&self, column: &str, value: i64, key: &Key) -> Result<FencingToken> {
        let token = u64::try_from(value).ok().and_then(|value| FencingToken::new(value).ok());
        token.ok_or_else(|| self.corrupt(column, key, format_args!("it is {value}")))
    }

    fn micros(&self, column: &str, value: i64, key: &Key) -> Result<u64> {
        u64::try_from(value)
            .map_err(|_| self.corrupt(column, key, format_args!("{value} is below 0")))
    }

    fn column<T: FromSql>(&self, row: &Row<'_>, at: usize) -> Result<T> {
        row.get(at).map_err(|e| error::sqlite(self.name, e))
    }

    fn each(
        &self,
        statement: &str,
        parameters: impl Params,
        mut take: impl FnMut(&Row<'_>) -> Result<Next>,
    ) -> Result<()> {
        let failed = |e| error::sqlite(self.name, e);
        let mut statement = self.connection.prepare_cached(statement).map_err(failed)?;
        let mut rows = statement.query(parameters).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            if take(row)? == Next::Enough {
                break;
            }
        }
        Ok(())
    }

    fn execute(&self, statement: &str, parameters: impl Params) -> Result<()> {
        self.connection
            .prepare_cached(statement)
            .and_then(|mut statement| statement.execute(parameters))
            .map(|_| ())
            .map_err(|e| error::sqlite(self.name, e))
    }

    fn corrupt(
        &self,
        column: &str,
        key: impl std::fmt::Debug,
        why: impl std::fmt::Display,
    ) -> Error {
        error::value(self.name, column, format_args!("the key {key:?}"), why)
    }
}

/// A row that cannot be read, by the text of its key.
fn unreadable(row: &Row<'_>, error: Error) -> Unreadable {
    let key = row.get_ref(0).ok().and_then(|key| key.as_bytes().ok()).unwrap_or_default();
    Unreadable::new(String::from_utf8_lossy(key), error)
}

/// Whether more rows are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    More,
    Enough,
}

/// SQLite's integers end at 2^63 - 1: as microseconds, 292,000 years.
pub(crate) fn sql_integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
