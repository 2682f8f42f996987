//! The calls with their values, and how their rows are read.

use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_core::{AcquireRequest, Claims, Key, Reason, ReleaseEntry, RenewEntry, Result};
use leasehold_driver::batches::{Request as _, Requests};
use leasehold_sql::{
    Eviction, Position, Purge, ReadRows, Records, Scan, Statements, Stored, integer, limit, micros,
    terms,
};
use mysql_async::{Row, Value};
use serde::Serialize;

use crate::call::{Call, Hex, column, id, json, required, stored};
use crate::dialect::Mysql;
use crate::error;
use crate::session::Session;

/// The keys of claims, and the limits as our procedures take them.
fn limited(claims: &Claims) -> Value {
    json(claims.iter().map(|claim| (Hex(claim.key.as_str()), limit(claim.mode))))
}

fn names<'a>(keys: impl IntoIterator<Item = &'a str>) -> Value {
    json(keys.into_iter().map(|key| [Hex(key)]))
}

/// The end of a request for ever.
fn term(request: &AcquireRequest) -> Option<i64> {
    request.term().duration().map(micros)
}

fn group(request: &AcquireRequest) -> Option<&str> {
    request.group().map(|group| group.as_str())
}

/// The group and the note of a lease.
fn who(request: &AcquireRequest) -> [Value; 5] {
    let note = request.note();
    [
        group(request).into(),
        note.host().into(),
        note.pid().map(i64::from).into(),
        note.program().into(),
        note.comment().into(),
    ]
}

impl Statements<AcquireRequest> for Mysql {
    fn one<'c>(&'c self, request: &'c AcquireRequest) -> Call<'c> {
        let mut values =
            vec![request.key().as_str().into(), id(request.id()), term(request).into()];
        values.extend(who(request));
        Call::procedure(&self.sql, "acquire_one", values)
    }

    fn any<'c>(&'c self, request: &'c AcquireRequest, _: Duration) -> Call<'c> {
        let mut values = vec![id(request.id()), limited(request.claims()), term(request).into()];
        values.extend(who(request));
        Call::procedure(&self.sql, "acquire", values)
    }
}

impl Statements<RenewEntry> for Mysql {
    fn one<'c>(&'c self, request: &'c RenewEntry) -> Call<'c> {
        let mut values = vec![request.key().as_str().into(), id(request.id())];
        values.extend(terms(request).map(Value::from));
        Call::procedure(&self.sql, "renew_one", values)
    }

    fn any<'c>(&'c self, request: &'c RenewEntry, _: Duration) -> Call<'c> {
        let mut values = vec![id(request.id()), limited(request.claims())];
        values.extend(terms(request).map(Value::from));
        Call::procedure(&self.sql, "renew", values)
    }
}

impl Statements<ReleaseEntry> for Mysql {
    fn one<'c>(&'c self, request: &'c ReleaseEntry) -> Call<'c> {
        let token = request.token().map(integer);
        Call::procedure(
            &self.sql,
            "release_one",
            [request.key().as_str().into(), id(request.id()), token.into()],
        )
    }

    fn any<'c>(&'c self, request: &'c ReleaseEntry, _: Duration) -> Call<'c> {
        Call::procedure(
            &self.sql,
            "release",
            [
                id(request.id()),
                names(request.keys().iter().map(Key::as_str)),
                request.keep().map(micros).into(),
                request.token().map(integer).into(),
            ],
        )
    }
}

/// A part of a batch: null without requests.
fn part<'r, R, T: Serialize>(requests: &[&'r R], row: impl Fn(&'r R) -> T) -> Value {
    if requests.is_empty() { Value::NULL } else { json(requests.iter().map(|one| row(one))) }
}

impl Mysql {
    /// The call of a batch.
    pub(crate) fn together(&self, requests: &Requests<'_>) -> Call<'_> {
        // It occurs once: by it the procedure finds the rows that it has changed.
        let number = self.batches.fetch_add(1, Ordering::Relaxed);
        let Requests { acquires, renewals, releases } = requests;
        let by = acquires.first().map(|first| who(first));
        let [_, host, pid, program, _] = by.unwrap_or([const { Value::NULL }; 5]);
        let acquires = part(acquires, |one| {
            let (key, id) = (Hex(one.key().as_str()), Hex(one.id().to_bytes()));
            (key, id, term(one), group(one).map(Hex), one.note().comment().map(Hex))
        });
        let renewals = part(renewals, |one| {
            let [to, token, raise] = terms(one);
            (Hex(one.key().as_str()), Hex(one.id().to_bytes()), to, token, raise)
        });
        let tokens: Option<Vec<_>> = releases.iter().map(|one| one.token().map(integer)).collect();
        let highest = tokens.unwrap_or_default().into_iter().max();
        let releases = part(releases, |one| {
            (Hex(one.key().as_str()), Hex(one.id().to_bytes()), one.token().map(integer))
        });
        let values =
            [number.into(), acquires, host, pid, program, renewals, releases, highest.into()];
        Call::procedure(&self.sql, "batch", values)
    }
}

impl Records for Mysql {
    fn look_up<'c>(&'c self, keys: &'c [String]) -> Call<'c> {
        Call::procedure(&self.sql, "look_up", [names(keys.iter().map(String::as_str))])
    }

    fn page<'c>(&'c self, after: &'c Position, most: usize) -> Call<'c> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let values = [after.key.as_str().into(), after.slot.into(), most.into()];
        Call::procedure(&self.sql, "page", values)
    }

    fn evict<'c>(&'c self, these: Eviction<'c>, _: Duration) -> Call<'c> {
        let wanted = json(these.targets.iter().map(|target| {
            let id = target.id.as_ref().map(|id| Hex(id.to_bytes()));
            (Hex(target.key.as_str()), id, target.token.map(integer))
        }));
        let reason = these.reason.map(Reason::as_str).into();
        Call::procedure(&self.sql, "evict", [wanted, reason])
    }

    fn scan<'c>(&'c self, these: Scan<'c>) -> Call<'c> {
        let Scan { keys, after, most, .. } = these;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let keys = keys.map_or(Value::NULL, |keys| names(keys.iter().map(String::as_str)));
        let (key, slot) = (after.key.as_str().into(), after.slot.into());
        Call::procedure(&self.sql, "scan", [key, slot, keys, most.into()])
    }

    fn purge<'c>(&'c self, purge: &'c Purge) -> Call<'c> {
        let over = purge.over.iter().map(|(key, id, token)| (Hex(key), Hex(id), token));
        Call::procedure(&self.sql, "purge", [json(over)])
    }

    fn positions(&self, rows: &[Row]) -> Result<Option<Vec<i64>>> {
        let server = self.pool.server();
        let row = rows.first().ok_or_else(|| error::unexpected(server, "no row"))?;
        if required::<String>(server, row, "outcome")? == "locked" {
            return Ok(None);
        }
        let gone: String = required(server, row, "o_gone")?;
        let parsed: std::result::Result<_, _> = gone.split_whitespace().map(str::parse).collect();
        parsed.map(Some).map_err(|e| error::unexpected(server, e))
    }
}

impl ReadRows for Session {
    type Row = Row;

    fn flag(server: &str, row: &Row, name: &str) -> Result<bool> {
        column(server, row, name).map(|flag: Option<i64>| flag == Some(1))
    }

    fn stored(server: &str, row: &Row) -> Result<Stored> {
        Ok(stored(server, row))
    }

    fn text(server: &str, row: &Row, name: &str) -> Result<Option<String>> {
        column(server, row, name)
    }

    fn integer(server: &str, row: &Row, name: &str) -> Result<Option<i64>> {
        column(server, row, name)
    }
}
