//! Lists.

use leasehold_sql::{Position, Stored};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::call::{Call, Statement};
use crate::sql::Sql;

pub(crate) struct LookUp<'k> {
    pub(crate) keys: &'k [String],
}

impl Statement for LookUp<'_> {
    fn call<'a>(&'a self, sql: &'a Sql, _: &'a Option<String>) -> Call<'a> {
        Call::new(&sql.look_up, [(&self.keys as _, Type::TEXT_ARRAY)])
    }
}

pub(crate) struct Page<'k> {
    after: &'k Position,
    most: i64,
}

impl<'k> Page<'k> {
    pub(crate) fn new(after: &'k Position, most: usize) -> Self {
        Self { after, most: i64::try_from(most).unwrap_or(i64::MAX) }
    }
}

impl Statement for Page<'_> {
    fn call<'a>(&'a self, sql: &'a Sql, _: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.page,
            [
                (&self.after.key as _, Type::TEXT),
                (&self.after.slot as _, Type::INT4),
                (&self.most as _, Type::INT8),
            ],
        )
    }
}

/// What a row states, with the clock of its reading.
pub(crate) fn stored(row: &Row) -> Option<(i64, Stored)> {
    Some((row.try_get(0).ok()?, Stored::parse(row.try_get(1).ok()?)))
}
