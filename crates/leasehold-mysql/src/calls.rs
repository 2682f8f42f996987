//! The calls with their values.

use leasehold_core::{
    AcquireRequest, Claims, EvictTarget, FencingToken, Key, Mode, Reason, ReleaseEntry, RenewEntry,
    Result,
};
use leasehold_sql::{Position, Purge, Request};
use mysql_async::{Row, Value};

use crate::call::{Call, Element, Json, id, micros};
use crate::error;
use crate::rows::required;
use crate::sql::Sql;

/// The keys of claims, and the limits as our procedures take them.
fn limited(claims: &Claims) -> Value {
    let mut json = Json::default();
    for claim in claims.iter() {
        let limit = match claim.mode {
            Mode::Exclusive => -1,
            Mode::Shared { max } => max.map_or(0, |max| i64::from(max.get())),
        };
        json.push([Element::Bytes(claim.key.as_str().as_bytes()), Element::Integer(limit)]);
    }
    json.value()
}

fn names<'a>(keys: impl IntoIterator<Item = &'a str>) -> Value {
    let mut json = Json::default();
    keys.into_iter().for_each(|key| json.push([Element::Bytes(key.as_bytes())]));
    json.value()
}

/// Tokens are below 2^53.
fn integer(token: FencingToken) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

/// The end of a request for ever.
fn term(request: &AcquireRequest) -> Option<i64> {
    request.term().duration().map(micros)
}

/// The group and the note of a lease.
fn who(request: &AcquireRequest) -> [Value; 5] {
    let note = request.note();
    [
        request.group().map(|group| group.as_str()).into(),
        note.host().into(),
        note.pid().map(i64::from).into(),
        note.program().into(),
        note.comment().into(),
    ]
}

/// The calls of a request.
pub(crate) trait Calls: Request {
    /// For an exclusive lease of one key.
    fn one(&self) -> Call<'static>;

    /// For any lease.
    fn any(&self) -> Call<'static>;

    /// Whether another may be in one call with it: all acquires of a call have one host, process and program.
    fn may_join(&self, _: &Self) -> bool {
        true
    }

    /// For several exclusive leases, each of one key, of which each may join the first. `batch` is a number that occurs
    /// once.
    fn batch(batch: i64, requests: &[&Self]) -> Call<'static>;

    /// The same, by a statement of MariaDB.
    fn batch_direct<'a>(sql: &'a Sql, requests: &[&Self]) -> Call<'a>;
}

/// What the members of a batch ask for.
fn wanted<'r, R: Request, const N: usize>(
    requests: &[&'r R],
    elements: impl Fn(&'r R) -> [Element<'r>; N],
) -> Value {
    let mut wanted = Json::default();
    for request in requests {
        let key = Element::Bytes(request.key().as_str().as_bytes());
        wanted.push(std::iter::once(key).chain(elements(request)));
    }
    wanted.value()
}

impl Calls for AcquireRequest {
    fn one(&self) -> Call<'static> {
        let mut values = vec![self.key().as_str().into(), id(self.id()), term(self).into()];
        values.extend(who(self));
        Call::procedure("acquire_one", values)
    }

    fn any(&self) -> Call<'static> {
        let mut values = vec![id(self.id()), limited(self.claims()), term(self).into()];
        values.extend(who(self));
        Call::procedure("acquire", values)
    }

    fn may_join(&self, other: &Self) -> bool {
        let (first, other) = (self.note(), other.note());
        first.host() == other.host()
            && first.pid() == other.pid()
            && first.program() == other.program()
    }

    fn batch(batch: i64, requests: &[&Self]) -> Call<'static> {
        let [host, pid, program] = joined(requests);
        let values = [batch.into(), wanted_acquires(requests), host, pid, program];
        Call::procedure("acquire_batch", values)
    }

    fn batch_direct<'a>(sql: &'a Sql, requests: &[&Self]) -> Call<'a> {
        let [host, pid, program] = joined(requests);
        Call::statement(&sql.acquire_batch, [wanted_acquires(requests), host, pid, program])
    }
}

/// The host, process and program of the members of a batch.
fn joined(requests: &[&AcquireRequest]) -> [Value; 3] {
    let [_, host, pid, program, _] = who(requests[0]);
    [host, pid, program]
}

fn wanted_acquires(requests: &[&AcquireRequest]) -> Value {
    wanted(requests, |request| {
        [
            Element::Id(request.id()),
            Element::integer(term(request)),
            Element::text(request.group().map(|group| group.as_str())),
            Element::text(request.note().comment()),
        ]
    })
}

impl Calls for RenewEntry {
    fn one(&self) -> Call<'static> {
        let mut values = vec![self.key().as_str().into(), id(self.id())];
        values.extend(terms(self).map(Value::from));
        Call::procedure("renew_one", values)
    }

    fn any(&self) -> Call<'static> {
        let mut values = vec![id(self.id()), limited(self.claims())];
        values.extend(terms(self).map(Value::from));
        Call::procedure("renew", values)
    }

    fn batch(batch: i64, requests: &[&Self]) -> Call<'static> {
        Call::procedure("renew_batch", [batch.into(), wanted_renewals(requests)])
    }

    fn batch_direct<'a>(sql: &'a Sql, requests: &[&Self]) -> Call<'a> {
        Call::statement(&sql.renew_batch, [wanted_renewals(requests)])
    }
}

/// The new term, the token, and the least token after it.
fn terms(lease: &RenewEntry) -> [Option<i64>; 3] {
    [lease.to().duration().map(micros), lease.token().map(integer), lease.raise().map(integer)]
}

fn wanted_renewals(requests: &[&RenewEntry]) -> Value {
    wanted(requests, |lease| {
        let [to, token, raise] = terms(lease).map(Element::integer);
        [Element::Id(lease.id()), to, token, raise]
    })
}

impl Calls for ReleaseEntry {
    fn one(&self) -> Call<'static> {
        let token = self.token().map(integer);
        Call::procedure("release_one", [self.key().as_str().into(), id(self.id()), token.into()])
    }

    fn any(&self) -> Call<'static> {
        Call::procedure(
            "release",
            [
                id(self.id()),
                names(self.keys().iter().map(Key::as_str)),
                self.keep().map(micros).into(),
                self.token().map(integer).into(),
            ],
        )
    }

    fn batch(batch: i64, requests: &[&Self]) -> Call<'static> {
        Call::procedure("release_batch", [batch.into(), wanted_releases(requests)])
    }

    fn batch_direct<'a>(sql: &'a Sql, requests: &[&Self]) -> Call<'a> {
        Call::statement(&sql.release_batch, [wanted_releases(requests)])
    }
}

fn wanted_releases(requests: &[&ReleaseEntry]) -> Value {
    wanted(requests, |lease| {
        [Element::Id(lease.id()), Element::integer(lease.token().map(integer))]
    })
}

pub(crate) fn evict(targets: &[EvictTarget], reason: Option<&Reason>) -> Call<'static> {
    let mut wanted = Json::default();
    for target in targets {
        let bytes = target.id.as_ref().map(|id| id.to_bytes());
        wanted.push([
            Element::Bytes(target.key.as_str().as_bytes()),
            bytes.as_deref().map_or(Element::Null, Element::Bytes),
            Element::integer(target.token.map(integer)),
        ]);
    }
    Call::procedure("evict", [wanted.value(), reason.map(Reason::as_str).into()])
}

pub(crate) fn purge(purge: &Purge) -> Call<'static> {
    let (mut over, mut counted) = (Json::default(), Json::default());
    for ((key, id), token) in purge.keys.iter().zip(&purge.ids).zip(&purge.tokens) {
        over.push([Element::Bytes(key.as_bytes()), Element::Bytes(id), Element::integer(*token)]);
    }
    for (key, counter) in purge.counted.iter().zip(&purge.counters) {
        counted.push([Element::Bytes(key.as_bytes()), Element::Integer(*counter)]);
    }
    Call::procedure("purge", [over.value(), counted.value()])
}

pub(crate) fn look_up(keys: &[String]) -> Call<'static> {
    Call::procedure("look_up", [names(keys.iter().map(String::as_str))])
}

pub(crate) fn page(after: &Position, most: usize) -> Call<'static> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    Call::procedure("page", [after.key.as_str().into(), after.slot.into(), most.into()])
}

pub(crate) fn scan(
    keys: Option<&[String]>,
    after: &Position,
    most: usize,
    forget_after: Option<i64>,
) -> Call<'static> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let keys = keys.map_or(Value::NULL, |keys| names(keys.iter().map(String::as_str)));
    let values =
        [after.key.as_str().into(), after.slot.into(), keys, most.into(), forget_after.into()];
    Call::procedure("scan", values)
}

/// The positions that a procedure returns.
pub(crate) fn gone(server: &str, rows: &[Row]) -> Result<Option<Vec<i64>>> {
    let row = rows.first().ok_or_else(|| error::unexpected(server, "no row"))?;
    if required::<String>(server, row, "outcome")? == "locked" {
        return Ok(None);
    }
    let gone: String = required(server, row, "o_gone")?;
    let parsed: std::result::Result<_, _> = gone.split_whitespace().map(str::parse).collect();
    parsed.map(Some).map_err(|e| error::unexpected(server, e))
}
