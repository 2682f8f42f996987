//! The content of the collection, by commands past the store.

use std::time::Duration;

use leasehold_conformance::{Failure, Observation, Result, Row};
use leasehold_core::{FencingToken, GroupName, Key, LeaseId, Mode};
use leasehold_mongodb::mongodb::bson::{Bson, Document, doc};
use leasehold_testkit::mongodb::Server;

/// The documents, by the server's own clock.
pub(crate) async fn observe(server: &Server, skew: Duration) -> Result<Observation> {
    let all = doc! {
        "aggregate": "locks",
        "pipeline": [{ "$set": { "now": "$$NOW" } }],
        "cursor": { "batchSize": 100_000 },
    };
    let reply = server.command("test", all).await?;
    let found = reply.get_document("cursor")?.get_array("firstBatch")?;
    let (mut rows, mut counters) = (Vec::new(), Vec::new());
    for document in found.iter().filter_map(Bson::as_document) {
        let key = Key::new(document.get_str("resource")?)?;
        let now = document.get_datetime("now")?.timestamp_millis();
        if let Ok(counter) = document.get_i64("counter") {
            counters.push((key.clone(), u64::try_from(counter)?));
        }
        let (exclusive, shared) =
            (document.get_document("exclusive")?, document.get_document("shared")?);
        if exclusive.get_bool("acquired")? {
            rows.push(row(&key, Mode::Exclusive, exclusive, now, skew)?);
        }
        let locks = shared.get_array("locks")?;
        if shared.get_i64("count")? != i64::try_from(locks.len())? {
            return Err(Failure::new(format!("the count of {key:?} is wrong")));
        }
        for lock in locks.iter().filter_map(Bson::as_document) {
            rows.push(row(&key, Mode::SHARED, lock, now, skew)?);
        }
    }
    Ok(Observation::new(rows, counters))
}

/// A record, as the store's manual shows it.
fn row(key: &Key, mode: Mode, lock: &Document, now: i64, skew: Duration) -> Result<Row> {
    let id = LeaseId::foreign(lock.get_str("lockId")?.as_bytes())?;
    let live = match lock.get("expiresAt") {
        Some(Bson::DateTime(at)) => now < at.timestamp_millis(),
        Some(Bson::Null) => true,
        _ => return Err(Failure::new("expiresAt is neither a date nor null")),
    };
    if u128::try_from(lock.get_i64("skew")?)? != skew.as_millis() || !lock.get_bool("acquired")? {
        return Err(Failure::new("skew or acquired is wrong"));
    }
    lock.get_object_id("_id")?;
    let mut row = Row::new(key.clone(), Some(id), mode, live);
    row.token = FencingToken::new(u64::try_from(lock.get_i64("token")?)?).ok();
    let text = |name: &str| lock.get_str(name).ok();
    row.group = text("owner").map(GroupName::new).transpose()?;
    if let Some(host) = text("host") {
        row.note = row.note.with_host(host)?;
    }
    if let Ok(pid) = lock.get_i64("pid") {
        row.note = row.note.with_pid(pid.try_into()?);
    }
    if let Some(program) = text("program") {
        row.note = row.note.with_program(program)?;
    }
    if let Some(comment) = text("comment") {
        row.note = row.note.with_comment(comment)?;
    }
    Ok(row)
}
