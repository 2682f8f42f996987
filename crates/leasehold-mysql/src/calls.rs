//! The calls with their values, and how their replies are read.

use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, Error, EvictTarget, FencingToken, Granted, Key,
    LostReason, Mode, Reason, RefusalReason, Refused, ReleaseEntry, ReleaseOutcome, Remaining,
    RenewEntry, RenewOutcome, Result,
};
use leasehold_driver::sql::{Done, Entry, Position, Purge, mode_conflict};
use mysql_async::{Row, Value};

use crate::call::{Call, Element, Json, id, micros};
use crate::error;
use crate::rows::{column, required, stored};
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

/// The call for an entry about an exclusive lease of one key.
pub(crate) fn one(entry: &Entry) -> Option<Call<'static>> {
    let key = Value::from(entry.key().as_str());
    Some(match entry {
        Entry::Acquire(request) => {
            let mut values = vec![key, id(request.id()), term(request).into()];
            values.extend(who(request));
            Call::procedure("acquire_one", values)
        }
        Entry::Renew(lease) => Call::procedure(
            "renew_one",
            [
                key,
                id(lease.id()),
                lease.to().duration().map(micros).into(),
                lease.token().map(integer).into(),
                lease.raise().map(integer).into(),
            ],
        ),
        Entry::Release(lease) => {
            Call::procedure("release_one", [key, id(lease.id()), lease.token().map(integer).into()])
        }
        _ => return None,
    })
}

/// The call for any entry.
pub(crate) fn apart(entry: &Entry) -> Option<Call<'static>> {
    Some(match entry {
        Entry::Acquire(request) => {
            let mut values =
                vec![id(request.id()), limited(request.claims()), term(request).into()];
            values.extend(who(request));
            Call::procedure("acquire", values)
        }
        Entry::Renew(lease) => Call::procedure(
            "renew",
            [
                id(lease.id()),
                limited(lease.claims()),
                lease.to().duration().map(micros).into(),
                lease.token().map(integer).into(),
                lease.raise().map(integer).into(),
            ],
        ),
        Entry::Release(lease) => Call::procedure(
            "release",
            [
                id(lease.id()),
                names(lease.keys().iter().map(Key::as_str)),
                lease.keep().map(micros).into(),
                lease.token().map(integer).into(),
            ],
        ),
        _ => return None,
    })
}

/// Whether two entries of one kind may travel in one call: all acquires of a call have one host, process and program.
pub(crate) fn may_join(first: &Entry, other: &Entry) -> bool {
    let (Entry::Acquire(first), Entry::Acquire(other)) = (first, other) else { return true };
    let (first, other) = (first.note(), other.note());
    first.host() == other.host() && first.pid() == other.pid() && first.program() == other.program()
}

/// The call for several entries of one kind, each about an exclusive lease of one key, of which each may join the first.
/// `batch` is a number that occurs once.
pub(crate) fn together(batch: i64, entries: &[&Entry]) -> Option<Call<'static>> {
    let wanted = wanted(entries)?;
    Some(match entries.first()? {
        Entry::Acquire(request) => {
            let [_, host, pid, program, _] = who(request);
            Call::procedure("acquire_batch", [batch.into(), wanted, host, pid, program])
        }
        Entry::Renew(_) => Call::procedure("renew_batch", [batch.into(), wanted]),
        Entry::Release(_) => Call::procedure("release_batch", [batch.into(), wanted]),
        _ => return None,
    })
}

/// As [`together`], by a statement of MariaDB.
pub(crate) fn together_direct<'a>(sql: &'a Sql, entries: &[&Entry]) -> Option<Call<'a>> {
    let wanted = wanted(entries)?;
    Some(match entries.first()? {
        Entry::Acquire(request) => {
            let [_, host, pid, program, _] = who(request);
            Call::statement(&sql.acquire_batch, [wanted, host, pid, program])
        }
        Entry::Renew(_) => Call::statement(&sql.renew_batch, [wanted]),
        Entry::Release(_) => Call::statement(&sql.release_batch, [wanted]),
        _ => return None,
    })
}

/// What entries ask for, each about an exclusive lease of one key.
fn wanted(entries: &[&Entry]) -> Option<Value> {
    let mut wanted = Json::default();
    for entry in entries {
        let key = Element::Bytes(entry.key().as_str().as_bytes());
        match entry {
            Entry::Acquire(request) => wanted.push([
                key,
                Element::Bytes(&request.id().to_bytes()),
                Element::integer(term(request)),
                Element::text(request.group().map(|group| group.as_str())),
                Element::text(request.note().comment()),
            ]),
            Entry::Renew(lease) => wanted.push([
                key,
                Element::Bytes(&lease.id().to_bytes()),
                Element::integer(lease.to().duration().map(micros)),
                Element::integer(lease.token().map(integer)),
                Element::integer(lease.raise().map(integer)),
            ]),
            Entry::Release(lease) => wanted.push([
                key,
                Element::Bytes(&lease.id().to_bytes()),
                Element::integer(lease.token().map(integer)),
            ]),
            _ => return None,
        }
    }
    Some(wanted.value())
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

/// What the rows of a call about one entry say; `None` if somebody else's transaction holds a row of its keys, or if it is
/// for the general procedure to decide.
pub(crate) fn done(server: &str, entry: &Entry, rows: &[Row]) -> Result<Option<Done>> {
    let Some(row) = rows.first() else { return Ok(None) };
    let outcome: String = required(server, row, "outcome")?;
    if outcome == "locked" || outcome == "undecided" {
        return Ok(None);
    }
    let done = match entry {
        Entry::Acquire(request) => acquired(server, request, row, &outcome).map(Done::Acquired),
        Entry::Renew(lease) => renewed(server, lease, row, &outcome).map(Done::Renewed),
        Entry::Release(lease) => released(server, lease, row, &outcome).map(Done::Released),
        _ => Err(error::odd(server, "to a request that was not sent")),
    };
    done.map(Some)
}

/// What the row of a member of a batch says.
pub(crate) fn member(server: &str, entry: &Entry, row: &Row) -> Result<Done> {
    Ok(match entry {
        Entry::Acquire(_) => Done::Acquired(AcquireReply::Granted(granted(server, row, true)?)),
        Entry::Renew(_) => Done::Renewed(RenewOutcome::Held(rest(server, row)?)),
        _ => {
            let is_late: i64 = required(server, row, "o_late")?;
            Done::Released(if is_late == 0 {
                ReleaseOutcome::Released
            } else {
                ReleaseOutcome::Expired
            })
        }
    })
}

fn acquired(
    server: &str,
    request: &AcquireRequest,
    row: &Row,
    outcome: &str,
) -> Result<AcquireReply> {
    match outcome {
        "granted" => granted(server, row, true).map(AcquireReply::Granted),
        "confirmed" => granted(server, row, false).map(AcquireReply::Granted),
        "refused" => {
            let now: i64 = required(server, row, "o_now")?;
            let holder = stored(server, row);
            let key = request.claims().keys().find(|known| known.as_str() == holder.key);
            let key =
                key.ok_or_else(|| error::odd(server, format_args!("the key {:?}", holder.key)))?;
            let why = RefusalReason::Held(holder.record(now)?.map(Box::new));
            let rest: Option<i64> = column(server, row, "o_rest")?;
            Ok(AcquireReply::Refused(Refused::new(key.clone(), why, rest.map(duration))))
        }
        "mode" => Err(mode_conflict(
            request.id(),
            request.claims(),
            nth_key(server, row, request.claims())?,
        )),
        "exhausted" => Err(Error::corrupt(format!(
            "the token counter of {:?} has reached its maximum",
            request.claims().first().key
        ))),
        other => Err(error::odd(server, format_args!("the outcome {other:?}"))),
    }
}

fn renewed(server: &str, lease: &RenewEntry, row: &Row, outcome: &str) -> Result<RenewOutcome> {
    let lost = |reason| Ok(RenewOutcome::Lost(Some(reason)));
    match outcome {
        "held" => rest(server, row).map(RenewOutcome::Held),
        "gone" => lost(LostReason::Gone),
        "expired" => lost(LostReason::Expired),
        "evicted" => {
            let reason: Option<String> = column(server, row, "o_reason")?;
            // A reason that cannot be read does not change the outcome.
            lost(LostReason::Evicted(reason.and_then(|reason| Reason::new(&reason).ok())))
        }
        "mode" => {
            let key = nth_key(server, row, lease.claims())?;
            Ok(RenewOutcome::Failed(mode_conflict(lease.id(), lease.claims(), key)))
        }
        other => Err(error::odd(server, format_args!("the outcome {other:?}"))),
    }
}

fn released(server: &str, _: &ReleaseEntry, row: &Row, outcome: &str) -> Result<ReleaseOutcome> {
    match outcome {
        "released" => Ok(ReleaseOutcome::Released),
        "kept" => Ok(ReleaseOutcome::Kept(duration(required(server, row, "o_rest")?))),
        "expired" => Ok(ReleaseOutcome::Expired),
        "not held" => Ok(ReleaseOutcome::NotHeld),
        other => Err(error::odd(server, format_args!("the outcome {other:?}"))),
    }
}

/// The positions that a procedure returns.
pub(crate) fn gone(server: &str, rows: &[Row]) -> Result<Option<Vec<i64>>> {
    let row = rows.first().ok_or_else(|| error::odd(server, "no row"))?;
    if required::<String>(server, row, "outcome")? == "locked" {
        return Ok(None);
    }
    let gone: String = required(server, row, "o_gone")?;
    let parsed: std::result::Result<_, _> = gone.split_whitespace().map(str::parse).collect();
    parsed.map(Some).map_err(|e| error::odd(server, e))
}

/// The key whose place in its claims a row names.
fn nth_key<'c>(server: &str, row: &Row, claims: &'c Claims) -> Result<&'c Key> {
    let nth: i64 = required(server, row, "o_nth")?;
    let found = usize::try_from(nth - 1).ok().and_then(|nth| claims.keys().nth(nth));
    found.ok_or_else(|| error::odd(server, format_args!("the key number {nth}")))
}

/// A grant; without a rest, for ever.
fn granted(server: &str, row: &Row, fresh: bool) -> Result<Granted> {
    let token: i64 = required(server, row, "o_token")?;
    let token = u64::try_from(token).ok().and_then(|token| FencingToken::new(token).ok());
    let token = token.ok_or_else(|| error::odd(server, "a token"))?;
    Ok(Granted::new(Some(token), rest(server, row)?, fresh))
}

/// What remains of a term; without it, the term has no end.
fn rest(server: &str, row: &Row) -> Result<Remaining> {
    let rest: Option<i64> = column(server, row, "o_rest")?;
    Ok(rest.map_or(Remaining::Never, |rest| Remaining::For(duration(rest))))
}

fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}
