//! Evictions and purges.

use leasehold_core::{EvictTarget, Reason, Result};
use leasehold_sql::{Position, Purge};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::renew::integer;
use crate::call::{Call, Statement, bytes, names};
use crate::error;
use crate::sql::Sql;

pub(crate) struct Evict {
    keys: Vec<String>,
    ids: Vec<Vec<u8>>,
    tokens: Vec<Option<i64>>,
    reason: Option<String>,
}

impl Evict {
    pub(crate) fn new(targets: &[EvictTarget], reason: Option<&Reason>) -> Self {
        Self {
            keys: names(targets.iter().map(|target| &target.key)),
            ids: targets.iter().filter_map(|target| target.id.as_ref().map(bytes)).collect(),
            tokens: targets.iter().map(|target| target.token.map(integer)).collect(),
            reason: reason.map(|reason| reason.as_str().to_owned()),
        }
    }
}

impl Statement for Evict {
    fn call<'a>(&'a self, sql: &'a Sql, patience: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.evict,
            [
                (patience as _, Type::TEXT),
                (&self.keys as _, Type::TEXT_ARRAY),
                (&self.ids as _, Type::BYTEA_ARRAY),
                (&self.tokens as _, Type::INT8_ARRAY),
                (&self.reason as _, Type::TEXT),
            ],
        )
    }
}

pub(crate) struct Remove<'k>(pub(crate) &'k Purge);

impl Statement for Remove<'_> {
    fn call<'a>(&'a self, sql: &'a Sql, patience: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.purge,
            [
                (patience as _, Type::TEXT),
                (&self.0.keys as _, Type::TEXT_ARRAY),
                (&self.0.ids as _, Type::BYTEA_ARRAY),
                (&self.0.tokens as _, Type::INT8_ARRAY),
                (&self.0.counted as _, Type::TEXT_ARRAY),
                (&self.0.counters as _, Type::INT8_ARRAY),
            ],
        )
    }
}

pub(crate) struct Scan<'k> {
    pub(crate) keys: Option<&'k [String]>,
    pub(crate) after: &'k Position,
    pub(crate) most: i64,
    pub(crate) forget_after: Option<i64>,
}

impl Statement for Scan<'_> {
    fn call<'a>(&'a self, sql: &'a Sql, _: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.scan,
            [
                (&self.after.key as _, Type::TEXT),
                (&self.after.slot as _, Type::INT4),
                (&self.keys as _, Type::TEXT_ARRAY),
                (&self.most as _, Type::INT8),
                (&self.forget_after as _, Type::INT8),
            ],
        )
    }
}

/// The positions that a function returns.
pub(crate) fn positions(server: &str, rows: &[Row]) -> Result<Vec<i64>> {
    let position = |row: &Row| row.try_get::<_, i32>(0).map(i64::from);
    rows.iter().map(|row| position(row).map_err(|e| error::unexpected(server, e))).collect()
}
