//! What the conformance suite does to a database file past the store.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_conformance::{Failure, Observation, Result, Row};
use leasehold_core::{FencingToken, GroupName, Key, LeaseId, Mode};
use rusqlite::Connection;

use crate::note;

/// The content of the file, at `now` on its clients' clock.
pub fn observe(file: &Path, now: Duration) -> Result<Observation> {
    let file = Connection::open(file)?;
    // One snapshot of both tables, although others may write meanwhile.
    file.execute_batch("BEGIN")?;
    let now = i64::try_from(now.as_micros())?;
    let mut statement = file.prepare(
        "SELECT key, id, mode, token, group_name, host, pid, program, comment,
                state <> 'evicted' AND (expires IS NULL OR (
                    expires > ?1
                    AND epoch = (SELECT max(epoch) FROM leasehold_boots)
                ))
         FROM leasehold_holders",
    )?;
    let mut stored = statement.query([now])?;
    let mut rows = Vec::new();
    while let Some(row) = stored.next()? {
        rows.push(read(row)?);
    }
    let mark: i64 = file.query_row("SELECT mark FROM leasehold_mark", [], |row| row.get(0))?;
    Ok(Observation::new(rows, []).with_mark(mark.try_into()?))
}

/// The content of the PHP library's table in a file. Rows that ended at `over` or before, in microseconds since 1970, may be
/// taken over.
pub fn observe_nene(file: &Path, over: u64) -> Result<Observation> {
    let file = Connection::open(file)?;
    let mut statement = file.prepare(
        "SELECT resource, owner, unixepoch(expires_at) * 1000000 > ?1 FROM distributed_locks",
    )?;
    let mut stored = statement.query([i64::try_from(over)?])?;
    let mut rows = Vec::new();
    while let Some(row) = stored.next()? {
        let key = Key::new(&row.get::<_, String>(0)?)?;
        let id = LeaseId::foreign(row.get::<_, String>(1)?.as_bytes())?;
        rows.push(Row::new(key, Some(id), Mode::Exclusive, row.get(2)?));
    }
    Ok(Observation::new(rows, Vec::new()))
}

/// Leaves in `new` what a power cut would leave of `old`; connected clients keep `old`.
pub fn cut_power(old: &Path, new: &Path) -> Result<()> {
    std::fs::copy(old, new)?;
    std::fs::copy(log(old), log(new))?;
    Ok(())
}

fn log(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

fn read(row: &rusqlite::Row<'_>) -> Result<Row> {
    let mode = match row.get::<_, String>(2)?.as_str() {
        "exclusive" => Mode::Exclusive,
        "shared" => Mode::SHARED,
        other => return Err(Failure::new(format!("a row has the mode {other:?}"))),
    };
    let id = LeaseId::foreign(&row.get::<_, Vec<u8>>(1)?)?;
    let mut read = Row::new(Key::new(&row.get::<_, String>(0)?)?, Some(id), mode, row.get(9)?);
    read.token = Some(FencingToken::new(row.get::<_, i64>(3)?.try_into()?)?);
    let text = |column| row.get::<_, Option<String>>(column);
    read.group = text(4)?.as_deref().map(GroupName::new).transpose()?;
    let (host, program, comment) = (text(5)?, text(7)?, text(8)?);
    read.note = note(host.as_deref(), row.get(6)?, program.as_deref(), comment.as_deref())?;
    Ok(read)
}
