//! Reads the rows of replies.

use std::fmt::Display;
use std::time::Duration;

use leasehold_core::{Claims, Error, LeaseId, Mode, Remaining, Result};

use crate::error::unexpected;
use crate::stored::Stored;

/// How the rows of a driver are read, by the names of their columns. A row without such a column is an `Unexpected` error.
pub trait ReadRows {
    /// A row.
    type Row: Send + Sync + 'static;

    /// What names the member of a batch that a row is about.
    const MEMBER: KeyColumn;

    /// What names the key that a lease holds in another mode.
    const IN_ANOTHER_MODE: KeyColumn;

    /// The number in a column; `None` for null.
    fn integer(server: &str, row: &Self::Row, column: &str) -> Result<Option<i64>>;

    /// The text in a column; `None` for null.
    fn text(server: &str, row: &Self::Row, column: &str) -> Result<Option<String>>;

    /// Whether a column is true.
    fn flag(server: &str, row: &Self::Row, column: &str) -> Result<bool>;

    /// Whether a member of a batch was released after its term.
    fn is_late(server: &str, row: &Self::Row) -> Result<bool>;

    /// The row of the table that is shown.
    fn stored(server: &str, row: &Self::Row) -> Result<Stored>;
}

/// A column that names one of several keys.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a dialect uses one or the other")]
pub enum KeyColumn {
    /// It has the key.
    Name(&'static str),
    /// It has the number of the key, counted from 1.
    Number(&'static str),
}

/// A row of a reply of this server.
#[expect(missing_debug_implementations, reason = "a driver's row need not have it")]
pub struct Reply<'r, S: ReadRows>(pub(crate) &'r str, pub(crate) &'r S::Row);

impl<S: ReadRows> Reply<'_, S> {
    pub(crate) fn integer(&self, column: &str) -> Result<Option<i64>> {
        S::integer(self.0, self.1, column)
    }

    pub(crate) fn text(&self, column: &str) -> Result<Option<String>> {
        S::text(self.0, self.1, column)
    }

    pub(crate) fn flag(&self, column: &str) -> Result<bool> {
        S::flag(self.0, self.1, column)
    }

    pub(crate) fn required(&self, column: &str) -> Result<i64> {
        self.integer(column)?.ok_or_else(|| self.unexpected(format_args!("no {column}")))
    }

    /// The row of the table, with the server's clock when it was read.
    pub(crate) fn stored(&self) -> Result<(i64, Stored)> {
        Ok((self.required("o_now")?, S::stored(self.0, self.1)?))
    }

    /// Which of `count` members of a batch the row is about. `find` finds one by the name of its key.
    pub(crate) fn member(
        &self,
        count: usize,
        find: impl FnOnce(&str) -> Option<usize>,
    ) -> Result<usize> {
        self.nth(&S::MEMBER, count, find)
    }

    /// Whether that one was released after its term.
    pub(crate) fn is_late(&self) -> Result<bool> {
        S::is_late(self.0, self.1)
    }

    /// How the request ended: `None` if it did not act, because another transaction has locked a row, or because only the
    /// general statement can decide.
    pub(crate) fn outcome(&self) -> Result<Option<String>> {
        let outcome = self.text("outcome")?.unwrap_or_default();
        Ok(Some(outcome).filter(|outcome| !["locked", "undecided"].contains(&outcome.as_str())))
    }

    /// What remains of the term; without it, the term has no end.
    pub(crate) fn remaining(&self) -> Result<Remaining> {
        Ok(self.rest()?.map_or(Remaining::Never, Remaining::For))
    }

    pub(crate) fn rest(&self) -> Result<Option<Duration>> {
        let micros = self.integer("o_rest")?.map(|rest| u64::try_from(rest).unwrap_or(0));
        Ok(micros.map(Duration::from_micros))
    }

    /// The error for a lease that holds a key in another mode than it is requested in.
    pub(crate) fn mode_conflict(&self, id: &LeaseId, claims: &Claims) -> Result<Error> {
        let find = |name: &str| claims.keys().position(|key| key.as_str() == name);
        let nth = self.nth(&S::IN_ANOTHER_MODE, claims.len(), find)?;
        let claim = claims.iter().nth(nth).unwrap_or(claims.first());
        let held = match claim.mode {
            Mode::Exclusive => Mode::SHARED,
            Mode::Shared { .. } => Mode::Exclusive,
        };
        Ok(claim.conflict(id, held))
    }

    /// Which of `count` keys a column names. `find` finds one by its name.
    fn nth(
        &self,
        column: &KeyColumn,
        count: usize,
        find: impl FnOnce(&str) -> Option<usize>,
    ) -> Result<usize> {
        match *column {
            KeyColumn::Name(column) => {
                let name = self.text(column)?.unwrap_or_default();
                find(&name).ok_or_else(|| self.unexpected(format_args!("the key {name:?}")))
            }
            KeyColumn::Number(column) => {
                let number = self.required(column)?;
                let nth = usize::try_from(number - 1).ok().filter(|nth| *nth < count);
                nth.ok_or_else(|| self.unexpected(format_args!("the key number {number}")))
            }
        }
    }

    pub(crate) fn unexpected(&self, what: impl Display) -> Error {
        unexpected(self.0, what)
    }

    pub(crate) fn unexpected_outcome(&self, outcome: &str) -> Error {
        self.unexpected(format_args!("the outcome {outcome:?}"))
    }
}
