//! The statements with their values.

use leasehold_core::{AcquireRequest, Claims, EvictTarget, Mode, Reason, ReleaseEntry, RenewEntry};
use leasehold_sql::{Position, Purge, Request, Stored};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::call::{Call, bytes, integer, micros, names};
use crate::row_waits::{RowWaits, Turns};
use crate::sql::Sql;

/// The longest wait for a row, in milliseconds, unless the session knows it.
pub(crate) type Patience = Option<String>;

/// The statements of a request.
pub(crate) trait Statements: Request {
    /// For an exclusive lease of one key.
    fn one<'a>(&'a self, sql: &'a Sql, patience: Patience) -> Call<'a>;

    /// For several exclusive leases, each of one key.
    fn batch<'a>(requests: &[&'a Self], sql: &'a Sql, patience: Patience) -> Call<'a>;

    /// For any lease.
    fn any<'a>(&'a self, sql: &'a Sql, patience: Patience) -> Call<'a>;

    /// The turns to wait for a row.
    fn turns(waits: &RowWaits) -> &Turns {
        waits.of_others()
    }
}

/// A value of each request.
fn each<'a, R, T>(requests: &[&'a R], value: impl Fn(&'a R) -> T) -> Vec<T> {
    requests.iter().map(|request| value(request)).collect()
}

/// The limits of claims as our functions take them.
fn limits(claims: &Claims) -> Vec<i32> {
    let limit = |mode| match mode {
        Mode::Exclusive => -1,
        Mode::Shared { max } => max.map_or(0, |max| i32::try_from(max.get()).unwrap_or(i32::MAX)),
    };
    claims.iter().map(|claim| limit(claim.mode)).collect()
}

fn term(request: &AcquireRequest) -> i64 {
    request.term().duration().map_or(i64::MAX, micros)
}

fn group(request: &AcquireRequest) -> Option<&str> {
    request.group().map(|group| group.as_str())
}

/// With the term, the group and the note of a lease.
fn with_note<'a>(call: Call<'a>, request: &'a AcquireRequest) -> Call<'a> {
    let note = request.note();
    call.with(Type::INT8, term(request))
        .with(Type::TEXT, group(request))
        .with(Type::TEXT, note.host())
        .with(Type::INT8, note.pid().map(i64::from))
        .with(Type::TEXT, note.program())
        .with(Type::TEXT, note.comment())
}

impl Statements for AcquireRequest {
    fn one<'a>(&'a self, sql: &'a Sql, patience: Patience) -> Call<'a> {
        let call = Call::new(&sql.acquire_one)
            .with(Type::TEXT, patience)
            .with(Type::TEXT, self.key().as_str())
            .with(Type::BYTEA, bytes(self.id()));
        with_note(call, self)
    }

    fn batch<'a>(requests: &[&'a Self], sql: &'a Sql, patience: Patience) -> Call<'a> {
        Call::new(&sql.acquire_batch)
            .with(Type::TEXT, patience)
            .with(Type::TEXT_ARRAY, each(requests, |one| one.key().as_str()))
            .with(Type::BYTEA_ARRAY, each(requests, |one| bytes(one.id())))
            .with(Type::INT8_ARRAY, each(requests, term))
            .with(Type::TEXT_ARRAY, each(requests, group))
            .with(Type::TEXT_ARRAY, each(requests, |one| one.note().host()))
            .with(Type::INT8_ARRAY, each(requests, |one| one.note().pid().map(i64::from)))
            .with(Type::TEXT_ARRAY, each(requests, |one| one.note().program()))
            .with(Type::TEXT_ARRAY, each(requests, |one| one.note().comment()))
    }

    fn any<'a>(&'a self, sql: &'a Sql, patience: Patience) -> Call<'a> {
        let call = Call::new(&sql.acquire)
            .with(Type::TEXT, patience)
            .with(Type::BYTEA, bytes(self.id()))
            .with(Type::TEXT_ARRAY, names(self.claims().keys()))
            .with(Type::INT4_ARRAY, limits(self.claims()));
        with_note(call, self)
    }

    fn turns(waits: &RowWaits) -> &Turns {
        waits.of_acquires()
    }
}

/// The new term, the token, and the least token after it.
fn terms(lease: &RenewEntry) -> [Option<i64>; 3] {
    [lease.to().duration().map(micros), lease.token().map(integer), lease.raise().map(integer)]
}

impl Statements for RenewEntry {
    fn one<'a>(&'a self, sql: &'a Sql, patience: Patience) -> Call<'a> {
        let call = Call::new(&sql.renew_one)
            .with(Type::TEXT, patience)
            .with(Type::TEXT, self.key().as_str())
            .with(Type::BYTEA, bytes(self.id()));
        terms(self).into_iter().fold(call, |call, value| call.with(Type::INT8, value))
    }

    fn batch<'a>(requests: &[&'a Self], sql: &'a Sql, patience: Patience) -> Call<'a> {
        let call = Call::new(&sql.renew_batch)
            .with(Type::TEXT, patience)
            .with(Type::TEXT_ARRAY, each(requests, |one| one.key().as_str()))
            .with(Type::BYTEA_ARRAY, each(requests, |one| bytes(one.id())));
        let nth = |nth: usize| each(requests, |one| terms(one)[nth]);
        [0, 1, 2].into_iter().fold(call, |call, column| call.with(Type::INT8_ARRAY, nth(column)))
    }

    fn any<'a>(&'a self, sql: &'a Sql, patience: Patience) -> Call<'a> {
        let call = Call::new(&sql.renew)
            .with(Type::TEXT, patience)
            .with(Type::BYTEA, bytes(self.id()))
            .with(Type::TEXT_ARRAY, names(self.claims().keys()))
            .with(Type::INT4_ARRAY, limits(self.claims()));
        terms(self).into_iter().fold(call, |call, value| call.with(Type::INT8, value))
    }
}

impl Statements for ReleaseEntry {
    fn one<'a>(&'a self, sql: &'a Sql, patience: Patience) -> Call<'a> {
        Call::new(&sql.release_one)
            .with(Type::TEXT, patience)
            .with(Type::TEXT, self.key().as_str())
            .with(Type::BYTEA, bytes(self.id()))
            .with(Type::INT8, self.token().map(integer))
            .with(Type::BOOL, self.wakes())
    }

    fn batch<'a>(requests: &[&'a Self], sql: &'a Sql, patience: Patience) -> Call<'a> {
        Call::new(&sql.release_batch)
            .with(Type::TEXT, patience)
            .with(Type::TEXT_ARRAY, each(requests, |one| one.key().as_str()))
            .with(Type::BYTEA_ARRAY, each(requests, |one| bytes(one.id())))
            .with(Type::INT8_ARRAY, each(requests, |one| one.token().map(integer)))
            .with(Type::BOOL_ARRAY, each(requests, ReleaseEntry::wakes))
    }

    fn any<'a>(&'a self, sql: &'a Sql, patience: Patience) -> Call<'a> {
        Call::new(&sql.release)
            .with(Type::TEXT, patience)
            .with(Type::BYTEA, bytes(self.id()))
            .with(Type::TEXT_ARRAY, names(self.keys()))
            .with(Type::INT8, self.keep().map(micros))
            .with(Type::INT8, self.token().map(integer))
            .with(Type::BOOL, self.wakes())
    }
}

/// `targets` all have ids.
pub(crate) fn evict<'a>(
    sql: &'a Sql,
    patience: Patience,
    targets: &'a [EvictTarget],
    reason: Option<&'a Reason>,
) -> Call<'a> {
    let ids = targets.iter().filter_map(|target| target.id.as_ref().map(bytes));
    let tokens = targets.iter().map(|target| target.token.map(integer));
    Call::new(&sql.evict)
        .with(Type::TEXT, patience)
        .with(Type::TEXT_ARRAY, names(targets.iter().map(|target| &target.key)))
        .with(Type::BYTEA_ARRAY, ids.collect::<Vec<_>>())
        .with(Type::INT8_ARRAY, tokens.collect::<Vec<_>>())
        .with(Type::TEXT, reason.map(Reason::as_str))
}

pub(crate) fn purge<'a>(sql: &'a Sql, purge: &'a Purge) -> Call<'a> {
    Call::new(&sql.purge)
        .with(Type::TEXT, Patience::None)
        .with(Type::TEXT_ARRAY, &*purge.keys)
        .with(Type::BYTEA_ARRAY, &*purge.ids)
        .with(Type::INT8_ARRAY, &*purge.tokens)
        .with(Type::TEXT_ARRAY, &*purge.counted)
        .with(Type::INT8_ARRAY, &*purge.counters)
}

pub(crate) fn look_up<'a>(sql: &'a Sql, keys: &'a [String]) -> Call<'a> {
    Call::new(&sql.look_up).with(Type::TEXT_ARRAY, keys)
}

pub(crate) fn page<'a>(sql: &'a Sql, after: &'a Position, most: usize) -> Call<'a> {
    Call::new(&sql.page)
        .with(Type::TEXT, &*after.key)
        .with(Type::INT4, after.slot)
        .with(Type::INT8, i64::try_from(most).unwrap_or(i64::MAX))
}

pub(crate) fn scan<'a>(
    sql: &'a Sql,
    keys: Option<&'a [String]>,
    after: &'a Position,
    most: usize,
    forget_after: Option<i64>,
) -> Call<'a> {
    Call::new(&sql.scan)
        .with(Type::TEXT, &*after.key)
        .with(Type::INT4, after.slot)
        .with(Type::TEXT_ARRAY, keys)
        .with(Type::INT8, i64::try_from(most).unwrap_or(i64::MAX))
        .with(Type::INT8, forget_after)
}

/// What a row reports, with the clock of its reading.
pub(crate) fn stored(row: &Row) -> Option<(i64, Stored)> {
    Some((row.try_get(0).ok()?, Stored::parse(row.try_get(1).ok()?)))
}
