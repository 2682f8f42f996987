//! Renewals.

use leasehold_core::{FencingToken, LostReason, Reason, RenewEntry, RenewOutcome, Result};
use leasehold_sql::mode_conflict;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Statements;
use super::acquire::{limits, rest};
use crate::call::{Call, Statement, bytes, column, micros, names};
use crate::error;
use crate::sql::Sql;

impl Statements for RenewEntry {
    const MAY_BE_REPEATED: bool = true;

    fn one(&self) -> impl Statement {
        RenewOne(Renew::new(self))
    }

    fn batch(requests: &[&Self]) -> impl Statement {
        RenewBatch::new(requests)
    }

    fn any(&self) -> impl Statement {
        Renew::new(self)
    }

    fn reply(&self, server: &str, rows: &[Row]) -> Result<RenewOutcome> {
        outcome(server, self, rows)
    }

    fn member(server: &str, row: &Row) -> Result<RenewOutcome> {
        held(server, row)
    }
}

struct Renew {
    id: Vec<u8>,
    keys: Vec<String>,
    limits: Vec<i32>,
    to: Option<i64>,
    token: Option<i64>,
    raise: Option<i64>,
}

impl Renew {
    fn new(lease: &RenewEntry) -> Self {
        Self {
            id: bytes(lease.id()),
            keys: names(lease.claims().keys()),
            limits: limits(lease.claims()),
            to: lease.to().duration().map(micros),
            token: lease.token().map(integer),
            raise: lease.raise().map(integer),
        }
    }
}

/// Tokens are below 2^53.
pub(crate) fn integer(token: FencingToken) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

impl Statement for Renew {
    fn call<'a>(&'a self, sql: &'a Sql, patience: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.renew,
            [
                (patience as _, Type::TEXT),
                (&self.id as _, Type::BYTEA),
                (&self.keys as _, Type::TEXT_ARRAY),
                (&self.limits as _, Type::INT4_ARRAY),
                (&self.to as _, Type::INT8),
                (&self.token as _, Type::INT8),
                (&self.raise as _, Type::INT8),
            ],
        )
    }
}

/// An exclusive lease of one key.
struct RenewOne(Renew);

impl Statement for RenewOne {
    fn call<'a>(&'a self, sql: &'a Sql, patience: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.renew_one,
            [
                (patience as _, Type::TEXT),
                (&self.0.keys[0] as _, Type::TEXT),
                (&self.0.id as _, Type::BYTEA),
                (&self.0.to as _, Type::INT8),
                (&self.0.token as _, Type::INT8),
                (&self.0.raise as _, Type::INT8),
            ],
        )
    }
}

/// Several exclusive leases, each of one key.
#[derive(Default)]
struct RenewBatch {
    keys: Vec<String>,
    ids: Vec<Vec<u8>>,
    tos: Vec<Option<i64>>,
    tokens: Vec<Option<i64>>,
    raises: Vec<Option<i64>>,
}

impl RenewBatch {
    fn new(leases: &[&RenewEntry]) -> Self {
        let mut batch = Self::default();
        for lease in leases {
            batch.keys.extend(names(lease.claims().keys()));
            batch.ids.push(bytes(lease.id()));
            batch.tos.push(lease.to().duration().map(micros));
            batch.tokens.push(lease.token().map(integer));
            batch.raises.push(lease.raise().map(integer));
        }
        batch
    }
}

impl Statement for RenewBatch {
    fn call<'a>(&'a self, sql: &'a Sql, patience: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.renew_batch,
            [
                (patience as _, Type::TEXT),
                (&self.keys as _, Type::TEXT_ARRAY),
                (&self.ids as _, Type::BYTEA_ARRAY),
                (&self.tos as _, Type::INT8_ARRAY),
                (&self.tokens as _, Type::INT8_ARRAY),
                (&self.raises as _, Type::INT8_ARRAY),
            ],
        )
    }
}

/// The outcome in the row of the function `renew`.
fn outcome(server: &str, lease: &RenewEntry, rows: &[Row]) -> Result<RenewOutcome> {
    let row = rows.first().ok_or_else(|| error::unexpected(server, "no row"))?;
    let lost = |reason| Ok(RenewOutcome::Lost(Some(reason)));
    match column::<&str>(server, row, "outcome")? {
        "held" => held(server, row),
        "gone" => lost(LostReason::Gone),
        "expired" => lost(LostReason::Expired),
        "evicted" => {
            let reason: Option<&str> = column(server, row, "o_reason")?;
            // A reason that cannot be read does not change the outcome.
            lost(LostReason::Evicted(reason.and_then(|reason| Reason::new(reason).ok())))
        }
        "mode" => {
            let key: &str = column(server, row, "o_key")?;
            let found = lease.claims().keys().find(|known| known.as_str() == key);
            let found =
                found.ok_or_else(|| error::unexpected(server, format_args!("the key {key:?}")))?;
            Ok(RenewOutcome::Failed(mode_conflict(lease.id(), lease.claims(), found)))
        }
        other => Err(error::unexpected(server, format_args!("the outcome {other:?}"))),
    }
}

fn held(server: &str, row: &Row) -> Result<RenewOutcome> {
    rest(server, row).map(RenewOutcome::Held)
}
