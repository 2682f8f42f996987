//! The calls with their values, and how their rows are read.

use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_core::{
    AcquireRequest, Claims, FencingToken, Key, Mode, Reason, ReleaseEntry, RenewEntry, Result,
};
use leasehold_sql::{
    Connection, Eviction, KeyColumn, Position, Purge, ReadRows, Records, Request, Scan, Statements,
    Stored,
};
use mysql_async::{Row, Value};

use crate::call::{Call, Element, Json, column, id, micros, required, stored};
use crate::dialect::Mysql;
use crate::error;
use crate::session::{Session, Sessions};

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

    fn may_join(first: &AcquireRequest, other: &AcquireRequest) -> bool {
        let (first, other) = (first.note(), other.note());
        first.host() == other.host()
            && first.pid() == other.pid()
            && first.program() == other.program()
    }

    fn batch<'c>(
        &'c self,
        connection: &Connection<Sessions>,
        requests: &[&'c AcquireRequest],
    ) -> Call<'c> {
        let [_, host, pid, program, _] = who(requests[0]);
        let values = vec![wanted_acquires(requests), host, pid, program];
        self.batch_of(connection, ("acquire_batch", &self.sql.acquire_batch), values)
    }
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

    fn batch<'c>(
        &'c self,
        connection: &Connection<Sessions>,
        requests: &[&'c RenewEntry],
    ) -> Call<'c> {
        let values = vec![wanted_renewals(requests)];
        self.batch_of(connection, ("renew_batch", &self.sql.renew_batch), values)
    }
}

/// The new term, the token, and the least token after it.
fn terms(lease: &RenewEntry) -> [Option<i64>; 3] {
    [lease.term().duration().map(micros), lease.token().map(integer), lease.raise().map(integer)]
}

fn wanted_renewals(requests: &[&RenewEntry]) -> Value {
    wanted(requests, |lease| {
        let [to, token, raise] = terms(lease).map(Element::integer);
        [Element::Id(lease.id()), to, token, raise]
    })
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

    fn batch<'c>(
        &'c self,
        connection: &Connection<Sessions>,
        requests: &[&'c ReleaseEntry],
    ) -> Call<'c> {
        let values = vec![wanted_releases(requests)];
        self.batch_of(connection, ("release_batch", &self.sql.release_batch), values)
    }
}

fn wanted_releases(requests: &[&ReleaseEntry]) -> Value {
    wanted(requests, |lease| {
        [Element::Id(lease.id()), Element::integer(lease.token().map(integer))]
    })
}

impl Mysql {
    /// A batch in a transaction of its procedure, or by the statement of MariaDB where the session takes it.
    fn batch_of<'c>(
        &self,
        connection: &Connection<Sessions>,
        (procedure, statement): (&str, &'c str),
        mut values: Vec<Value>,
    ) -> Call<'c> {
        if self.pool.is_direct && connection.is_ours() {
            return Call::statement(statement, values);
        }
        // It occurs once.
        values.insert(0, self.batches.fetch_add(1, Ordering::Relaxed).into());
        Call::procedure(&self.sql, procedure, values)
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
        let mut wanted = Json::default();
        for target in these.targets {
            let bytes = target.id.as_ref().map(|id| id.to_bytes());
            wanted.push([
                Element::Bytes(target.key.as_str().as_bytes()),
                bytes.as_deref().map_or(Element::Null, Element::Bytes),
                Element::integer(target.token.map(integer)),
            ]);
        }
        Call::procedure(
            &self.sql,
            "evict",
            [wanted.value(), these.reason.map(Reason::as_str).into()],
        )
    }

    fn scan<'c>(&'c self, these: Scan<'c>) -> Call<'c> {
        let Scan { keys, after, most, .. } = these;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let keys = keys.map_or(Value::NULL, |keys| names(keys.iter().map(String::as_str)));
        let (key, slot) = (after.key.as_str().into(), after.slot.into());
        let values = [key, slot, keys, most.into(), self.forget_after.into()];
        Call::procedure(&self.sql, "scan", values)
    }

    fn purge<'c>(&'c self, purge: &'c Purge) -> Call<'c> {
        let (mut over, mut counted) = (Json::default(), Json::default());
        for ((key, id), token) in purge.keys.iter().zip(&purge.ids).zip(&purge.tokens) {
            over.push([
                Element::Bytes(key.as_bytes()),
                Element::Bytes(id),
                Element::integer(*token),
            ]);
        }
        for (key, counter) in purge.counted.iter().zip(&purge.counters) {
            counted.push([Element::Bytes(key.as_bytes()), Element::Integer(*counter)]);
        }
        Call::procedure(&self.sql, "purge", [over.value(), counted.value()])
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

    const MEMBER: KeyColumn = KeyColumn::Name("key");

    const IN_ANOTHER_MODE: KeyColumn = KeyColumn::Number("o_nth");

    fn flag(server: &str, row: &Row, name: &str) -> Result<bool> {
        column(server, row, name).map(|flag: Option<i64>| flag == Some(1))
    }

    fn is_late(server: &str, row: &Row) -> Result<bool> {
        required(server, row, "o_late").map(|is_late: i64| is_late != 0)
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
