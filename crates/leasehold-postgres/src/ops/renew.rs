use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::join_all;
use leasehold_core::{
    Effect, Error, FencingToken, Key, LostReason, Reason, RenewEntry, RenewOutcome, RenewReply,
    RenewRequest, Result,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::acquire::{is_simple, limits, mode, rest};
use crate::call::{Call, micros};
use crate::error;
use crate::inner::{Inner, Statement, bytes, column, locked, names};
use crate::lane::{Done, Entry};
use crate::sql::Sql;

impl Inner {
    pub(crate) async fn renew(self: &Arc<Self>, request: &RenewRequest) -> Result<RenewReply> {
        let leases = request.leases();
        let keys = leases.iter().flat_map(|lease| lease.claims().keys());
        let outcomes = each(leases, keys, |lease| self.renewed(lease)).await;
        all_or(outcomes, RenewOutcome::Failed).map(RenewReply::new)
    }

    async fn renewed(self: &Arc<Self>, lease: &RenewEntry) -> Result<RenewOutcome> {
        if is_simple(lease.claims()) {
            match self.together(Entry::Renew(lease.clone())).await {
                Some(Ok(Done::Renewed(outcome))) => return Ok(outcome),
                Some(Ok(other)) => {
                    return Err(error::odd(&self.links.server, format_args!("{other:?}")));
                }
                Some(Err(error)) => return Err(error),
                None => {}
            }
        }
        let rows = self.apart(Renew::new(lease)).await?;
        let rows = rows.ok_or_else(|| locked(&self.links.server))?;
        outcome(&self.links.server, lease, &rows)
    }
}

/// Acts on all entries at once, or on one after the other if a key is named twice.
pub(crate) async fn each<'a, E, T, F: Future<Output = T>>(
    entries: &'a [E],
    mut keys: impl Iterator<Item = &'a Key>,
    act: impl Fn(&'a E) -> F,
) -> Vec<T> {
    let mut named = HashSet::new();
    if keys.all(|key| named.insert(key)) {
        return join_all(entries.iter().map(act)).await;
    }
    let mut outcomes = Vec::new();
    for entry in entries {
        outcomes.push(act(entry).await);
    }
    outcomes
}

/// The outcomes; the failure of all if all failed.
pub(crate) fn all_or<T>(outcomes: Vec<Result<T>>, failed: impl Fn(Error) -> T) -> Result<Vec<T>> {
    if outcomes.iter().all(Result::is_err) {
        let failures = outcomes.into_iter().filter_map(Result::err);
        let worst = failures.max_by_key(|failure| failure.effect() == Effect::Unknown);
        return worst.map_or(Ok(Vec::new()), Err);
    }
    Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(&failed)).collect())
}

pub(crate) struct Renew {
    id: Vec<u8>,
    keys: Vec<String>,
    limits: Vec<i32>,
    to: Option<i64>,
    token: Option<i64>,
    raise: Option<i64>,
}

impl Renew {
    pub(crate) fn new(lease: &RenewEntry) -> Self {
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

/// Several exclusive leases, each of one key.
#[derive(Default)]
pub(crate) struct RenewBatch {
    keys: Vec<String>,
    ids: Vec<Vec<u8>>,
    tos: Vec<Option<i64>>,
    tokens: Vec<Option<i64>>,
    raises: Vec<Option<i64>>,
}

impl RenewBatch {
    pub(crate) fn new<'a>(leases: impl Iterator<Item = &'a RenewEntry>) -> Self {
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
pub(crate) fn outcome(server: &str, lease: &RenewEntry, rows: &[Row]) -> Result<RenewOutcome> {
    let row = rows.first().ok_or_else(|| error::odd(server, "no row"))?;
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
            let found = found.ok_or_else(|| error::odd(server, format_args!("the key {key:?}")))?;
            Ok(RenewOutcome::Failed(mode(lease.id(), lease.claims(), found)))
        }
        other => Err(error::odd(server, format_args!("the outcome {other:?}"))),
    }
}

pub(crate) fn held(server: &str, row: &Row) -> Result<RenewOutcome> {
    rest(server, row).map(RenewOutcome::Held)
}
