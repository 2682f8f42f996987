//! The content of a server, by commands past the store.

use leasehold_conformance::{Failure, Observation, Result, Row};
use leasehold_core::{FencingToken, GroupName, Key, LeaseId, Mode};
use leasehold_redis::redis;
use leasehold_testkit::redis::connect;

/// The content of the server with this prefix, by its own clock.
pub(crate) async fn observe(url: &str, prefix: &str) -> Result<Observation> {
    let mut link = connect(url).await?;
    let time: [u64; 2] = redis::cmd("TIME").query_async(&mut link).await?;
    let now = time[0] * 1_000 + time[1] / 1_000;
    let pattern = format!("lh:lock:*:{prefix}*");
    let names: Vec<Vec<u8>> = redis::cmd("KEYS").arg(pattern).query_async(&mut link).await?;
    let plain = |name: &[u8]| {
        let rest = &name[b"lh:lock:{".len()..];
        let at = rest.windows(2).position(|two| two == b"}:").expect("a tag ends");
        rest[at + 2..].to_vec()
    };
    let keys: Vec<_> = names.iter().map(|name| plain(name)).collect();
    if keys.is_empty() {
        return Ok(Observation::default());
    }
    let mut ask = redis::pipe();
    for (name, plain) in names.iter().zip(&keys) {
        ask.cmd("GET").arg(plain).cmd("PEXPIRETIME").arg(plain).cmd("HGETALL").arg(name);
    }
    let replies = link.send_packed_commands(&ask, 0, 3 * keys.len()).await?;
    let (mut rows, mut counters) = (Vec::new(), Vec::new());
    let mut replies = replies.into_iter();
    let mut next = || replies.next().ok_or_else(|| Failure::new("an answer is missing"));
    for plain in &keys {
        let key = plain.strip_prefix(prefix.as_bytes()).expect("nothing else stands there");
        let key = Key::try_from(key)?;
        let value: Option<Vec<u8>> = redis::from_redis_value(next()?)?;
        let ends: i64 = redis::from_redis_value(next()?)?;
        let fields: Vec<(Vec<u8>, Vec<u8>)> = redis::from_redis_value(next()?)?;
        // The server itself keeps it a millisecond longer.
        let value = value.filter(|_| u64::try_from(ends).map_or(true, |ends| ends > now));
        let mark = fields.iter().find(|(name, _)| name == b"mark").map(|(_, mark)| mark);
        for (name, field) in &fields {
            if name == b"token" {
                counters.push((key.clone(), String::from_utf8(field.clone())?.parse()?));
            }
            let Some(id) = name.strip_prefix(b"=") else { continue };
            rows.push(row(&key, id, field, value.as_ref(), mark, now)?);
        }
    }
    Ok(Observation::new(rows, counters))
}

/// A holder's record; see the store's manual.
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
    row.group = part("group").map(GroupName::new).transpose()?;
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
