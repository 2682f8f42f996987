//! One call of the server: a statement with its bound values, and what its rows report.

use std::fmt::Display;

use leasehold_core::{Claims, Error, FencingToken, Key, LeaseId, Result};
use leasehold_sql::{ReplyRow, Stored};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

use crate::error;

/// A statement of ours and its values, all of them bound (C14), each with the type that the statement gives it.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) text: &'a str,
    pub(crate) values: Vec<(Box<dyn ToSql + Send + Sync + 'a>, Type)>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, values: Vec::new() }
    }

    /// With the next value.
    pub(crate) fn with(mut self, kind: Type, value: impl ToSql + Send + Sync + 'a) -> Self {
        self.values.push((Box::new(value), kind));
        self
    }
}

/// Microseconds as the server's integers; the longest term is 10 years.
pub(crate) fn micros(duration: std::time::Duration) -> i64 {
    i64::try_from(leasehold_core::term::micros_up(duration)).unwrap_or(i64::MAX)
}

/// Tokens are below 2^53.
pub(crate) fn integer(token: FencingToken) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

pub(crate) fn names<'a>(keys: impl IntoIterator<Item = &'a Key>) -> Vec<&'a str> {
    keys.into_iter().map(Key::as_str).collect()
}

pub(crate) fn bytes(id: &LeaseId) -> Vec<u8> {
    id.to_bytes().into_owned()
}

/// The value of a column of our functions.
pub(crate) fn column<'r, T: FromSql<'r>>(server: &str, row: &'r Row, name: &str) -> Result<T> {
    row.try_get(name).map_err(|e| error::unexpected(server, e))
}

/// A row of a reply of this server.
pub(crate) struct Reply<'r>(pub(crate) &'r str, pub(crate) &'r Row);

impl ReplyRow for Reply<'_> {
    fn integer(&self, name: &str) -> Result<Option<i64>> {
        column(self.0, self.1, name)
    }

    fn text(&self, name: &str) -> Result<Option<String>> {
        column(self.0, self.1, name)
    }

    fn holder(&self) -> Result<Stored> {
        Ok(Stored::parse(column(self.0, self.1, "o_holder")?))
    }

    fn key<'c>(&self, claims: &'c Claims) -> Result<&'c Key> {
        let key: &str = column(self.0, self.1, "o_key")?;
        let found = claims.keys().find(|known| known.as_str() == key);
        found.ok_or_else(|| self.unexpected(format_args!("the key {key:?}")))
    }

    fn is_late(&self) -> Result<bool> {
        column(self.0, self.1, "o_in_time").map(|in_time: bool| !in_time)
    }

    fn unexpected(&self, what: impl Display) -> Error {
        error::unexpected(self.0, what)
    }
}
