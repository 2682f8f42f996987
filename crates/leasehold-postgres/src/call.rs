//! One call of the server: a statement with its bound values, and what its rows say.

use leasehold_core::{Key, LeaseId, Result};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

use crate::error;
use crate::sql::Sql;

/// A value and the type that the statement gives it.
pub(crate) type Value<'a> = (&'a (dyn ToSql + Sync), Type);

/// A statement of ours and its values, all of them bound (C14).
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) text: &'a str,
    pub(crate) values: Vec<Value<'a>>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(text: &'a str, values: impl Into<Vec<Value<'a>>>) -> Self {
        Self { text, values: values.into() }
    }
}

/// Microseconds as the server's integers; the longest term is 10 years.
pub(crate) fn micros(duration: std::time::Duration) -> i64 {
    i64::try_from(leasehold_core::term::micros_up(duration)).unwrap_or(i64::MAX)
}

/// A statement with its values.
pub(crate) trait Statement: Send + Sync {
    /// The call; `patience` is the longest wait for a row, in milliseconds, unless the session knows it.
    fn call<'a>(&'a self, sql: &'a Sql, patience: &'a Option<String>) -> Call<'a>;
}

pub(crate) fn names<'a>(keys: impl IntoIterator<Item = &'a Key>) -> Vec<String> {
    keys.into_iter().map(|key| key.as_str().to_owned()).collect()
}

pub(crate) fn bytes(id: &LeaseId) -> Vec<u8> {
    id.to_bytes().into_owned()
}

/// Whether a function left the request, because another transaction holds the row of the key.
pub(crate) fn is_locked(rows: &[Row]) -> bool {
    rows.first()
        .is_some_and(|row| row.try_get("outcome").is_ok_and(|outcome: &str| outcome == "locked"))
}

/// The value of a column of our functions.
pub(crate) fn column<'r, T: FromSql<'r>>(server: &str, row: &'r Row, name: &str) -> Result<T> {
    row.try_get(name).map_err(|e| error::unexpected(server, e))
}
