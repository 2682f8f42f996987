//! The statements with their values, and how their rows are read.

use std::time::Duration;

use leasehold_core::{AcquireRequest, Claims, Reason, ReleaseEntry, RenewEntry, Result};
use leasehold_driver::batches::{Request as _, Requests};
use leasehold_sql::{
    Eviction, Position, Purge, ReadRows, Records, Scan, Statements, Stored, integer, limit, micros,
    terms,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::call::{Call, bytes, column, names};
use crate::dialect::Postgres;
use crate::error;
use crate::session::Session;

/// The longest wait for a row, in milliseconds, as our functions take it.
fn millis(patience: Duration) -> Option<String> {
    Some(patience.as_millis().max(1).to_string())
}

/// A value of each request.
fn each<'a, R, T>(requests: &[&'a R], value: impl Fn(&'a R) -> T) -> Vec<T> {
    requests.iter().map(|request| value(request)).collect()
}

/// The limits of claims as our functions take them.
fn limits(claims: &Claims) -> Vec<i32> {
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

impl Statements<AcquireRequest> for Postgres {
    fn one<'c>(&'c self, request: &'c AcquireRequest) -> Call<'c> {
        let call = Call::new(&self.sql.acquire_one)
            .with(Type::TEXT, self.patience.as_deref())
            .with(Type::TEXT, request.key().as_str())
            .with(Type::BYTEA, bytes(request.id()));
        with_note(call, request)
    }

    fn any<'c>(&'c self, request: &'c AcquireRequest, patience: Duration) -> Call<'c> {
        let call = Call::new(&self.sql.acquire)
            .with(Type::TEXT, millis(patience))
            .with(Type::BYTEA, bytes(request.id()))
            .with(Type::TEXT_ARRAY, names(request.claims().keys()))
            .with(Type::INT4_ARRAY, limits(request.claims()));
        with_note(call, request)
    }
}

impl Statements<RenewEntry> for Postgres {
    fn one<'c>(&'c self, request: &'c RenewEntry) -> Call<'c> {
        let call = Call::new(&self.sql.renew_one)
            .with(Type::TEXT, self.patience.as_deref())
            .with(Type::TEXT, request.key().as_str())
            .with(Type::BYTEA, bytes(request.id()));
        terms(request).into_iter().fold(call, |call, value| call.with(Type::INT8, value))
    }

    fn any<'c>(&'c self, request: &'c RenewEntry, patience: Duration) -> Call<'c> {
        let call = Call::new(&self.sql.renew)
            .with(Type::TEXT, millis(patience))
            .with(Type::BYTEA, bytes(request.id()))
            .with(Type::TEXT_ARRAY, names(request.claims().keys()))
            .with(Type::INT4_ARRAY, limits(request.claims()));
        terms(request).into_iter().fold(call, |call, value| call.with(Type::INT8, value))
    }
}

impl Statements<ReleaseEntry> for Postgres {
    fn one<'c>(&'c self, request: &'c ReleaseEntry) -> Call<'c> {
        Call::new(&self.sql.release_one)
            .with(Type::TEXT, self.patience.as_deref())
            .with(Type::TEXT, request.key().as_str())
            .with(Type::BYTEA, bytes(request.id()))
            .with(Type::INT8, request.token().map(integer))
            .with(Type::BOOL, request.wakes())
    }

    fn any<'c>(&'c self, request: &'c ReleaseEntry, patience: Duration) -> Call<'c> {
        Call::new(&self.sql.release)
            .with(Type::TEXT, millis(patience))
            .with(Type::BYTEA, bytes(request.id()))
            .with(Type::TEXT_ARRAY, names(request.keys()))
            .with(Type::INT8, request.keep().map(micros))
            .with(Type::INT8, request.token().map(integer))
            .with(Type::BOOL, request.wakes())
    }
}

impl Postgres {
    /// The call of a batch.
    pub(crate) fn together<'c>(&'c self, requests: &Requests<'c>) -> Call<'c> {
        let Requests { acquires, renewals, releases } = requests;
        let call = Call::new(&self.sql.batch)
            .with(Type::TEXT, self.patience.as_deref())
            .with(Type::TEXT_ARRAY, each(acquires, |one| one.key().as_str()))
            .with(Type::BYTEA_ARRAY, each(acquires, |one| bytes(one.id())))
            .with(Type::INT8_ARRAY, each(acquires, term))
            .with(Type::TEXT_ARRAY, each(acquires, group))
            .with(Type::TEXT_ARRAY, each(acquires, |one| one.note().host()))
            .with(Type::INT8_ARRAY, each(acquires, |one| one.note().pid().map(i64::from)))
            .with(Type::TEXT_ARRAY, each(acquires, |one| one.note().program()))
            .with(Type::TEXT_ARRAY, each(acquires, |one| one.note().comment()))
            .with(Type::TEXT_ARRAY, each(renewals, |one| one.key().as_str()))
            .with(Type::BYTEA_ARRAY, each(renewals, |one| bytes(one.id())));
        let nth = |nth: usize| each(renewals, |one| terms(one)[nth]);
        let terms = [0, 1, 2].map(nth);
        let call = terms.into_iter().fold(call, |call, of_all| call.with(Type::INT8_ARRAY, of_all));
        call.with(Type::TEXT_ARRAY, each(releases, |one| one.key().as_str()))
            .with(Type::BYTEA_ARRAY, each(releases, |one| bytes(one.id())))
            .with(Type::INT8_ARRAY, each(releases, |one| one.token().map(integer)))
            .with(Type::BOOL_ARRAY, each(releases, |one| one.wakes()))
    }
}

impl Records for Postgres {
    fn look_up<'c>(&'c self, keys: &'c [String]) -> Call<'c> {
        Call::new(&self.sql.look_up).with(Type::TEXT_ARRAY, keys)
    }

    fn page<'c>(&'c self, after: &'c Position, most: usize) -> Call<'c> {
        Call::new(&self.sql.page)
            .with(Type::TEXT, &*after.key)
            .with(Type::INT4, after.slot)
            .with(Type::INT8, i64::try_from(most).unwrap_or(i64::MAX))
    }

    fn evict<'c>(&'c self, these: Eviction<'c>, patience: Duration) -> Call<'c> {
        let targets = these.targets;
        let ids = targets.iter().filter_map(|target| target.id.as_ref().map(bytes));
        let tokens = targets.iter().map(|target| target.token.map(integer));
        Call::new(&self.sql.evict)
            .with(Type::TEXT, millis(patience))
            .with(Type::TEXT_ARRAY, names(targets.iter().map(|target| &target.key)))
            .with(Type::BYTEA_ARRAY, ids.collect::<Vec<_>>())
            .with(Type::INT8_ARRAY, tokens.collect::<Vec<_>>())
            .with(Type::TEXT, these.reason.map(Reason::as_str))
    }

    fn scan<'c>(&'c self, these: Scan<'c>) -> Call<'c> {
        Call::new(&self.sql.scan)
            .with(Type::TEXT, &*these.after.key)
            .with(Type::INT4, these.after.slot)
            .with(Type::TEXT_ARRAY, these.keys)
            .with(Type::INT8, i64::try_from(these.most).unwrap_or(i64::MAX))
    }

    fn purge<'c>(&'c self, purge: &'c Purge) -> Call<'c> {
        let over: Vec<_> = purge.over.iter().collect();
        Call::new(&self.sql.purge)
            .with(Type::TEXT, None::<&str>)
            .with(Type::TEXT_ARRAY, each(&over, |one| &*one.0))
            .with(Type::BYTEA_ARRAY, each(&over, |one| &*one.1))
            .with(Type::INT8_ARRAY, each(&over, |one| one.2))
    }

    fn positions(&self, rows: &[Row]) -> Result<Option<Vec<i64>>> {
        let position = |row: &Row| match row.try_get::<_, i32>(0) {
            Ok(position) => Ok(position.into()),
            Err(e) => Err(error::unexpected(self.pool.server(), e)),
        };
        rows.iter().map(position).collect::<Result<_>>().map(Some)
    }
}

impl ReadRows for Session {
    type Row = Row;

    fn integer(server: &str, row: &Row, name: &str) -> Result<Option<i64>> {
        column(server, row, name)
    }

    fn text(server: &str, row: &Row, name: &str) -> Result<Option<String>> {
        column(server, row, name)
    }

    fn flag(server: &str, row: &Row, name: &str) -> Result<bool> {
        column(server, row, name)
    }

    fn stored(server: &str, row: &Row) -> Result<Stored> {
        Ok(Stored::parse(column(server, row, "o_holder")?))
    }
}
