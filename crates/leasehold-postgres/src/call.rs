//! One call of the server: a statement with its bound values.

use tokio_postgres::types::{ToSql, Type};

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
