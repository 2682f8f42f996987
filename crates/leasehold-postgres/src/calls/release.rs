//! Releases.

use leasehold_core::{ReleaseEntry, ReleaseOutcome, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Statements;
use super::acquire::duration;
use super::renew::integer;
use crate::call::{Call, Statement, bytes, column, micros, names};
use crate::error;
use crate::sql::Sql;

impl Statements for ReleaseEntry {
    fn one(&self) -> impl Statement {
        ReleaseOne(Release::new(self))
    }

    fn batch(requests: &[&Self]) -> impl Statement {
        ReleaseBatch::new(requests)
    }

    fn any(&self) -> impl Statement {
        Release::new(self)
    }

    fn reply(&self, server: &str, rows: &[Row]) -> Result<ReleaseOutcome> {
        outcome(server, rows)
    }

    fn member(server: &str, row: &Row) -> Result<ReleaseOutcome> {
        ended(server, row)
    }
}

struct Release {
    id: Vec<u8>,
    keys: Vec<String>,
    keep: Option<i64>,
    token: Option<i64>,
    wakes: bool,
}

impl Release {
    fn new(lease: &ReleaseEntry) -> Self {
        Self {
            id: bytes(lease.id()),
            keys: names(lease.keys()),
            keep: lease.keep().map(micros),
            token: lease.token().map(integer),
            wakes: lease.wakes(),
        }
    }
}

impl Statement for Release {
    fn call<'a>(&'a self, sql: &'a Sql, patience: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.release,
            [
                (patience as _, Type::TEXT),
                (&self.id as _, Type::BYTEA),
                (&self.keys as _, Type::TEXT_ARRAY),
                (&self.keep as _, Type::INT8),
                (&self.token as _, Type::INT8),
                (&self.wakes as _, Type::BOOL),
            ],
        )
    }
}

/// A lease of one key.
struct ReleaseOne(Release);

impl Statement for ReleaseOne {
    fn call<'a>(&'a self, sql: &'a Sql, patience: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.release_one,
            [
                (patience as _, Type::TEXT),
                (&self.0.keys[0] as _, Type::TEXT),
                (&self.0.id as _, Type::BYTEA),
                (&self.0.token as _, Type::INT8),
                (&self.0.wakes as _, Type::BOOL),
            ],
        )
    }
}

/// Several leases, each of one key.
#[derive(Default)]
struct ReleaseBatch {
    keys: Vec<String>,
    ids: Vec<Vec<u8>>,
    tokens: Vec<Option<i64>>,
    wakes: Vec<bool>,
}

impl ReleaseBatch {
    fn new(leases: &[&ReleaseEntry]) -> Self {
        let mut batch = Self::default();
        for lease in leases {
            batch.keys.extend(names(lease.keys()));
            batch.ids.push(bytes(lease.id()));
            batch.tokens.push(lease.token().map(integer));
            batch.wakes.push(lease.wakes());
        }
        batch
    }
}

impl Statement for ReleaseBatch {
    fn call<'a>(&'a self, sql: &'a Sql, patience: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.release_batch,
            [
                (patience as _, Type::TEXT),
                (&self.keys as _, Type::TEXT_ARRAY),
                (&self.ids as _, Type::BYTEA_ARRAY),
                (&self.tokens as _, Type::INT8_ARRAY),
                (&self.wakes as _, Type::BOOL_ARRAY),
            ],
        )
    }
}

/// The outcome in the row of the function `release`.
fn outcome(server: &str, rows: &[Row]) -> Result<ReleaseOutcome> {
    let row = rows.first().ok_or_else(|| error::unexpected(server, "no row"))?;
    match column::<&str>(server, row, "outcome")? {
        "released" => Ok(ReleaseOutcome::Released),
        "kept" => Ok(ReleaseOutcome::Kept(duration(column(server, row, "o_rest")?))),
        "expired" => Ok(ReleaseOutcome::Expired),
        "not held" => Ok(ReleaseOutcome::NotHeld),
        other => Err(error::unexpected(server, format_args!("the outcome {other:?}"))),
    }
}

/// The outcome of a member that was found.
fn ended(server: &str, row: &Row) -> Result<ReleaseOutcome> {
    let in_time: bool = column(server, row, "o_in_time")?;
    Ok(if in_time { ReleaseOutcome::Released } else { ReleaseOutcome::Expired })
}
