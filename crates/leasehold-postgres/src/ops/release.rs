use std::sync::Arc;

use leasehold_core::{ReleaseEntry, ReleaseOutcome, ReleaseReply, ReleaseRequest, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::acquire::duration;
use super::renew::{all_or, each, integer};
use crate::call::{Call, micros};
use crate::error;
use crate::inner::{Inner, Statement, bytes, column, locked, names};
use crate::lane::{Done, Entry};
use crate::sql::Sql;

impl Inner {
    pub(crate) async fn release(
        self: &Arc<Self>,
        request: &ReleaseRequest,
    ) -> Result<ReleaseReply> {
        let leases = request.leases();
        let keys = leases.iter().flat_map(|lease| lease.keys());
        let outcomes = each(leases, keys, |lease| self.released(lease)).await;
        all_or(outcomes, ReleaseOutcome::Failed).map(ReleaseReply::new)
    }

    async fn released(self: &Arc<Self>, lease: &ReleaseEntry) -> Result<ReleaseOutcome> {
        // A shared lease is not found by what travels together, and is then ended apart.
        if lease.keys().len() == 1 && lease.keep().is_none() {
            match self.together(Entry::Release(lease.clone())).await {
                Some(Ok(Done::Released(outcome))) => return Ok(outcome),
                Some(Ok(other)) => {
                    return Err(error::odd(&self.links.server, format_args!("{other:?}")));
                }
                Some(Err(error)) => return Err(error),
                None => {}
            }
        }
        let rows = self.apart(Release::new(lease)).await?;
        let rows = rows.ok_or_else(|| locked(&self.links.server))?;
        outcome(&self.links.server, &rows)
    }
}

pub(crate) struct Release {
    id: Vec<u8>,
    keys: Vec<String>,
    keep: Option<i64>,
    token: Option<i64>,
    wakes: bool,
}

impl Release {
    pub(crate) fn new(lease: &ReleaseEntry) -> Self {
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

/// Several leases, each of one key.
#[derive(Default)]
pub(crate) struct ReleaseBatch {
    keys: Vec<String>,
    ids: Vec<Vec<u8>>,
    tokens: Vec<Option<i64>>,
    wakes: Vec<bool>,
}

impl ReleaseBatch {
    pub(crate) fn new<'a>(leases: impl Iterator<Item = &'a ReleaseEntry>) -> Self {
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
pub(crate) fn outcome(server: &str, rows: &[Row]) -> Result<ReleaseOutcome> {
    let row = rows.first().ok_or_else(|| error::odd(server, "no row"))?;
    match column::<&str>(server, row, "outcome")? {
        "released" => Ok(ReleaseOutcome::Released),
        "kept" => Ok(ReleaseOutcome::Kept(duration(column(server, row, "o_rest")?))),
        "expired" => Ok(ReleaseOutcome::Expired),
        "not held" => Ok(ReleaseOutcome::NotHeld),
        other => Err(error::odd(server, format_args!("the outcome {other:?}"))),
    }
}

/// The outcome of a member that was found.
pub(crate) fn ended(server: &str, row: &Row) -> Result<ReleaseOutcome> {
    let in_time: bool = column(server, row, "o_in_time")?;
    Ok(if in_time { ReleaseOutcome::Released } else { ReleaseOutcome::Expired })
}
