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

    /// The number in a column; `None` for null.
    fn integer(server: &str, row: &Self::Row, column: &str) -> Result<Option<i64>>;

    /// The text in a column; `None` for null.
    fn text(server: &str, row: &Self::Row, column: &str) -> Result<Option<String>>;

    /// Whether a column is true.
    fn flag(server: &str, row: &Self::Row, column: &str) -> Result<bool>;

    /// The row of the table that is shown.
    fn stored(server: &str, row: &Self::Row) -> Result<Stored>;
}

/// A row of a reply of this server.
#[expect(missing_debug_implementations, reason = "a driver's row need not have it")]
pub struct Reply<'r, S: ReadRows>(pub(crate) &'r str, pub(crate) &'r S::Row);

impl<S: ReadRows> Clone for Reply<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: ReadRows> Copy for Reply<'_, S> {}

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

    /// Which of several keys the row is about. `find` finds one by its name.
    pub(crate) fn nth(&self, find: impl FnOnce(&str) -> Option<usize>) -> Result<usize> {
        let name = self.text("o_key")?.unwrap_or_default();
        find(&name).ok_or_else(|| self.unexpected(format_args!("the key {name:?}")))
    }

    /// Whether the row is about all requests of one kind in a batch, and so names no key.
    pub(crate) fn is_of_all(&self) -> Result<bool> {
        Ok(self.text("o_key")?.is_none())
    }

    /// The kind whose requests the row is about.
    pub(crate) fn kind(&self) -> Result<String> {
        Ok(self.text("o_all")?.unwrap_or_default())
    }

    /// How the request ended: `None` if it did not act, because another transaction has locked a row.
    pub(crate) fn outcome(&self) -> Result<Option<String>> {
        let outcome = self.text("outcome")?.unwrap_or_default();
        Ok(Some(outcome).filter(|outcome| outcome != "locked"))
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
        let claim = claims.iter().nth(self.nth(find)?).unwrap_or(claims.first());
        let held = match claim.mode {
            Mode::Exclusive => Mode::SHARED,
            Mode::Shared { .. } => Mode::Exclusive,
        };
        Ok(claim.conflict(id, held))
    }

    pub(crate) fn unexpected(&self, what: impl Display) -> Error {
        unexpected(self.0, what)
    }

    pub(crate) fn unexpected_outcome(&self, outcome: &str) -> Error {
        self.unexpected(format_args!("the outcome {outcome:?}"))
    }
}
