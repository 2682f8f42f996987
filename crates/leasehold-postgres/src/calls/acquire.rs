//! Acquires.

use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, Error, FencingToken, Granted, Key, Mode, RefusalReason,
    Refused, Remaining, Result,
};
use leasehold_sql::{Stored, mode_conflict};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Statements;
use crate::call::{Call, Statement, bytes, column, micros, names};
use crate::error;
use crate::row_waits::{RowWaits, Turns};
use crate::sql::Sql;

impl Statements for AcquireRequest {
    fn one(&self) -> impl Statement {
        AcquireOne(Acquire::new(self))
    }

    fn batch(requests: &[&Self]) -> impl Statement {
        AcquireBatch::new(requests)
    }

    fn any(&self) -> impl Statement {
        Acquire::new(self)
    }

    fn turns(waits: &RowWaits) -> &Turns {
        waits.of_acquires()
    }

    fn reply(&self, server: &str, rows: &[Row]) -> Result<AcquireReply> {
        reply(server, self, rows)
    }

    fn member(server: &str, row: &Row) -> Result<AcquireReply> {
        granted(server, row, true).map(AcquireReply::Granted)
    }
}

/// The keys of claims, and the limits as our functions take them.
pub(crate) fn limits(claims: &Claims) -> Vec<i32> {
    let limit = |mode| match mode {
        Mode::Exclusive => -1,
        Mode::Shared { max } => max.map_or(0, |max| i32::try_from(max.get()).unwrap_or(i32::MAX)),
    };
    claims.iter().map(|claim| limit(claim.mode)).collect()
}

struct Acquire {
    id: Vec<u8>,
    keys: Vec<String>,
    limits: Vec<i32>,
    who: Who,
    term: i64,
}

/// The group and the note of a lease.
struct Who {
    group: Option<String>,
    host: Option<String>,
    pid: Option<i64>,
    program: Option<String>,
    comment: Option<String>,
}

impl Who {
    fn of(request: &AcquireRequest) -> Self {
        let (note, text) = (request.note(), |text: Option<&str>| text.map(str::to_owned));
        Self {
            group: request.group().map(|group| group.as_str().to_owned()),
            host: text(note.host()),
            pid: note.pid().map(i64::from),
            program: text(note.program()),
            comment: text(note.comment()),
        }
    }
}

impl Acquire {
    fn new(request: &AcquireRequest) -> Self {
        Self {
            id: bytes(request.id()),
            keys: names(request.claims().keys()),
            limits: limits(request.claims()),
            who: Who::of(request),
            term: term(request),
        }
    }
}

fn term(request: &AcquireRequest) -> i64 {
    request.term().duration().map_or(i64::MAX, micros)
}

impl Statement for Acquire {
    fn call<'a>(&'a self, sql: &'a Sql, patience: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.acquire,
            [
                (patience as _, Type::TEXT),
                (&self.id as _, Type::BYTEA),
                (&self.keys as _, Type::TEXT_ARRAY),
                (&self.limits as _, Type::INT4_ARRAY),
                (&self.term as _, Type::INT8),
                (&self.who.group as _, Type::TEXT),
                (&self.who.host as _, Type::TEXT),
                (&self.who.pid as _, Type::INT8),
                (&self.who.program as _, Type::TEXT),
                (&self.who.comment as _, Type::TEXT),
            ],
        )
    }
}

/// A request for an exclusive lease of one key.
struct AcquireOne(Acquire);

impl Statement for AcquireOne {
    fn call<'a>(&'a self, sql: &'a Sql, patience: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.acquire_one,
            [
                (patience as _, Type::TEXT),
                (&self.0.keys[0] as _, Type::TEXT),
                (&self.0.id as _, Type::BYTEA),
                (&self.0.term as _, Type::INT8),
                (&self.0.who.group as _, Type::TEXT),
                (&self.0.who.host as _, Type::TEXT),
                (&self.0.who.pid as _, Type::INT8),
                (&self.0.who.program as _, Type::TEXT),
                (&self.0.who.comment as _, Type::TEXT),
            ],
        )
    }
}

/// Several requests, each for an exclusive lease of one key.
#[derive(Default)]
struct AcquireBatch {
    keys: Vec<String>,
    ids: Vec<Vec<u8>>,
    terms: Vec<i64>,
    groups: Vec<Option<String>>,
    hosts: Vec<Option<String>>,
    pids: Vec<Option<i64>>,
    programs: Vec<Option<String>>,
    comments: Vec<Option<String>>,
}

impl AcquireBatch {
    fn new(requests: &[&AcquireRequest]) -> Self {
        let mut batch = Self::default();
        for request in requests {
            let who = Who::of(request);
            batch.keys.extend(names(request.claims().keys()));
            batch.ids.push(bytes(request.id()));
            batch.terms.push(term(request));
            batch.groups.push(who.group);
            batch.hosts.push(who.host);
            batch.pids.push(who.pid);
            batch.programs.push(who.program);
            batch.comments.push(who.comment);
        }
        batch
    }
}

impl Statement for AcquireBatch {
    fn call<'a>(&'a self, sql: &'a Sql, patience: &'a Option<String>) -> Call<'a> {
        Call::new(
            &sql.acquire_batch,
            [
                (patience as _, Type::TEXT),
                (&self.keys as _, Type::TEXT_ARRAY),
                (&self.ids as _, Type::BYTEA_ARRAY),
                (&self.terms as _, Type::INT8_ARRAY),
                (&self.groups as _, Type::TEXT_ARRAY),
                (&self.hosts as _, Type::TEXT_ARRAY),
                (&self.pids as _, Type::INT8_ARRAY),
                (&self.programs as _, Type::TEXT_ARRAY),
                (&self.comments as _, Type::TEXT_ARRAY),
            ],
        )
    }
}

/// The reply in the row of the function `acquire`.
fn reply(server: &str, request: &AcquireRequest, rows: &[Row]) -> Result<AcquireReply> {
    let row = rows.first().ok_or_else(|| error::unexpected(server, "no row"))?;
    let key = || -> Result<Key> {
        let key: String = column(server, row, "o_key")?;
        let found = request.claims().keys().find(|known| known.as_str() == key);
        found.cloned().ok_or_else(|| error::unexpected(server, format_args!("the key {key:?}")))
    };
    match column::<&str>(server, row, "outcome")? {
        "granted" => granted(server, row, true).map(AcquireReply::Granted),
        "confirmed" => granted(server, row, false).map(AcquireReply::Granted),
        "refused" => {
            let now = column(server, row, "o_now")?;
            let holder = Stored::parse(column(server, row, "o_holder")?).record(now)?;
            let why = RefusalReason::Held(holder.map(Box::new));
            let rest: Option<i64> = column(server, row, "o_rest")?;
            Ok(AcquireReply::Refused(Refused::new(key()?, why, rest.map(duration))))
        }
        "mode" => Err(mode_conflict(request.id(), request.claims(), &key()?)),
        "exhausted" => Err(Error::corrupt(format!(
            "the token counter of {:?} has reached its maximum",
            request.claims().first().key
        ))),
        other => Err(error::unexpected(server, format_args!("the outcome {other:?}"))),
    }
}

/// A grant; without a rest, for ever.
fn granted(server: &str, row: &Row, fresh: bool) -> Result<Granted> {
    let token: i64 = column(server, row, "o_token")?;
    let token = u64::try_from(token).ok().and_then(|token| FencingToken::new(token).ok());
    let token = token.ok_or_else(|| error::unexpected(server, "a token"))?;
    Ok(Granted::new(Some(token), rest(server, row)?, fresh))
}

/// What remains of a term; without it, the term has no end.
pub(crate) fn rest(server: &str, row: &Row) -> Result<Remaining> {
    let rest: Option<i64> = column(server, row, "o_rest")?;
    Ok(rest.map_or(Remaining::Never, |rest| Remaining::For(duration(rest))))
}

pub(crate) fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
