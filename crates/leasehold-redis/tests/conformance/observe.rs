//! The content of a server, by commands past the store.

use leasehold_conformance::{Failure, Observation, Result, Row};
use leasehold_core::{FencingToken, GroupName, Key, LeaseId, Mode};
use leasehold_redis::redis;
use leasehold_testkit::redis::connect;
use redis::aio::MultiplexedConnection;

/// The content of the server with this prefix, by its own clock.
pub(crate) async fn observe(url: &str, prefix: &str) -> Result<Observation> {
    let mut link = connect(url).await?;
    let time: [u64; 2] = redis::cmd("TIME").query_async(&mut link).await?;
    let now = time[0] * 1_000 + time[1] / 1_000;
    let names = async |link: &mut MultiplexedConnection, pattern: String| {
        redis::cmd("KEYS").arg(pattern).query_async::<Vec<Vec<u8>>>(link).await
    };
    let mut mark = 0;
    for name in names(&mut link, "lh:token*".to_owned()).await? {
        mark = mark.max(redis::cmd("GET").arg(name).query_async(&mut link).await?);
    }
    let names = names(&mut link, format!("{prefix}lh:lock:*")).await?;
    let plain = |name: &[u8]| {
        let rest = &name[prefix.len() + b"lh:lock:{".len()..];
        let at = rest.windows(2).position(|two| two == b"}:").expect("a tag ends");
        [prefix.as_bytes(), &rest[at + 2..]].concat()
    };
    let mut rows = Vec::new();
    for name in &names {
        let plain = plain(name);
        let key = Key::try_from(plain.strip_prefix(prefix.as_bytes()).expect("it begins so"))?;
        let mut ask = redis::pipe();
        ask.cmd("GET").arg(&plain).cmd("PEXPIRETIME").arg(&plain);
        ask.cmd("TYPE").arg(name).cmd("PEXPIRETIME").arg(name);
        let replies: (Option<Vec<u8>>, i64, String, i64) = ask.query_async(&mut link).await?;
        let (value, ends, kind, gone) = replies;
        // The server itself keeps it through that millisecond.
        let value = value.filter(|_| u64::try_from(ends).map_or(true, |ends| ends >= now));
        match kind.as_str() {
            "string" => {
                let text: Vec<u8> = redis::cmd("GET").arg(name).query_async(&mut link).await?;
                let ends = u64::try_from(gone).map_or(0, |gone| gone - 3_600_000);
                let (id, record) = only(&text, ends)?;
                rows.push(row(&key, &id, &record, value.as_ref(), None, now)?);
            }
            "hash" => {
                let fields: Vec<(Vec<u8>, Vec<u8>)> =
                    redis::cmd("HGETALL").arg(name).query_async(&mut link).await?;
                let mark = fields.iter().find(|(name, _)| name == b"mark").map(|(_, mark)| mark);
                for (name, field) in &fields {
                    let Some(id) = name.strip_prefix(b"=") else { continue };
                    rows.push(row(&key, id, field, value.as_ref(), mark, now)?);
                }
            }
            // It has just expired.
            "none" => {}
            other => return Err(Failure::new(format!("a metadata key is a {other}"))),
        }
    }
    Ok(Observation::new(rows, []).with_mark(mark))
}

/// The id and the record of the only holder, as one of several has it.
fn only(text: &[u8], ends: u64) -> Result<(Vec<u8>, Vec<u8>)> {
    let mut parts = text.splitn(3, |byte| *byte == b' ').skip(1);
    let length: usize = std::str::from_utf8(parts.next().unwrap_or_default())?.parse()?;
    let (id, rest) = parts.next().unwrap_or_default().split_at(length);
    Ok((id.to_vec(), [format!("xh {ends}").as_bytes(), rest].concat()))
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
