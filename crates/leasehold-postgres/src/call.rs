//! One call of the server: a statement with its bound values, and what its rows report.

use leasehold_core::{Key, LeaseId, Result};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

use crate::error;

/// A statement of ours and its values, all of them bound (C14), each with the type that the statement gives it.
#[derive(Debug)]
pub struct Call<'a> {
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
