//! What stands in a server, by commands past the store.

use leasehold_conformance::{Failure, Observation, Result, Row};
use leasehold_core::{FencingToken, Key, LeaseId, Mode, Owner};
use leasehold_redis::redis::{self, Value};

use crate::server::{Server, connect};

/// What stands in the server behind this prefix at `now`, milliseconds since 1970.
pub(super) async fn observe(server: &Server, prefix: &str, now: u64) -> Result<Observation> {
    let mut link = connect(&server.url()).await?;
    let text = |value: Value| redis::from_redis_value::<Vec<u8>>(value).map_err(Failure::from);
    let mut ask = async |words: &[&[u8]]| -> Result<Value> {
        let mut command = redis::Cmd::new();
        command.arg(words);
        Ok(link.send_packed_command(&command).await?)
    };
    let Value::Array(names) = ask(&[b"KEYS", b"*"]).await? else {
        return Err(Failure::new("no names"));
    };
    let (mut rows, mut counters) = (Vec::new(), Vec::new());
    for name in names {
        let name = text(name)?;
        let Some(at) = name
            .strip_prefix(b"lh:lock:{")
            .map(|rest| rest.windows(2).position(|two| two == b"}:").expect("a tag ends"))
        else {
            continue;
        };
        let plain = &name[b"lh:lock:{".len() + at + 2..];
        let key = plain.strip_prefix(prefix.as_bytes()).expect("nothing else stands there");
        let key = Key::try_from(key)?;
        let value: Option<Vec<u8>> = redis::from_redis_value(ask(&[b"GET", plain]).await?)?;
        let ends: i64 = redis::from_redis_value(ask(&[b"PEXPIRETIME", plain]).await?)?;
        // The server itself has it until a millisecond later.
        let value = value.filter(|_| u64::try_from(ends).map_or(true, |ends| ends > now));
        let fields: Vec<Vec<u8>> = redis::from_redis_value(ask(&[b"HGETALL", &name]).await?)?;
        let fields: Vec<_> = fields.chunks(2).map(|pair| (&pair[0], &pair[1])).collect();
        let mark = fields.iter().find(|(name, _)| *name == b"mark").map(|(_, mark)| *mark);
        for (name, field) in &fields {
            if *name == b"token" {
                counters.push((key.clone(), String::from_utf8((*field).clone())?.parse()?));
            }
            let Some(id) = name.strip_prefix(b"=") else { continue };
            rows.push(row(&key, id, field, value.as_ref(), mark, now)?);
        }
    }
    Ok(Observation::new(rows, counters))
}

/// A holder as it is written; see docs/stores/redis.md.
fn row(
    key: &Key,
    id: &[u8],
    field: &[u8],
    value: Option<&Vec<u8>>,
    mark: Option<&Vec<u8>>,
    now: u64,
) -> Result<Row> {
    let text = String::from_utf8(field.to_vec())?;
    let mut parts = text.splitn(6, ' ');
    let mut next = || parts.next().ok_or_else(|| Failure::new("a short record"));
    let kind = next()?.to_owned();
    let ends: u64 = next()?.parse()?;
    let token: u64 = next()?.parse()?;
    let (_, _) = (next()?, next()?);
    let json: serde_json::Value = serde_json::from_str(next()?)?;
    let live = match (kind.as_str(), value) {
        (_, None) | ("xe" | "se", _) => false,
        (_, value) if value == mark => ends == 0 || ends > now,
        ("xh", Some(value)) => value == id,
        _ => false,
    };
    let mode = if kind.starts_with('s') { Mode::SHARED } else { Mode::Exclusive };
    let mut row = Row::new(key.clone(), Some(LeaseId::foreign(id)?), mode, live);
    row.token = FencingToken::new(token).ok();
    let part = |name: &str| json.get(name).and_then(|value| value.as_str());
    row.owner = part("owner").map(Owner::new).transpose()?;
    if let Some(host) = part("host") {
        row.note = row.note.with_host(host)?;
    }
    if let Some(pid) = json.get("pid").and_then(serde_json::Value::as_u64) {
        row.note = row.note.with_pid(pid.try_into()?);
    }
    if let Some(program) = part("program") {
        row.note = row.note.with_program(program)?;
    }
    if let Some(comment) = part("comment") {
        row.note = row.note.with_comment(comment)?;
    }
    Ok(row)
}
