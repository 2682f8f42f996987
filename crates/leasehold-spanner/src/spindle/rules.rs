//! How a lock row is read, and what a decision of the rules changes in it.

use std::time::Duration;

use google_cloud_spanner::key::{Key as RowKey, KeySet};
use google_cloud_spanner::mutation::Mutation;
use google_cloud_spanner::result::Row;
use google_cloud_wkt::Timestamp;
use leasehold_core::table::{Holder, State};
use leasehold_core::{Error, FencingToken, Key, Mode, Note, Now, Result, Table};

use super::claims;
use super::writer::Writer;
use crate::columns::column;
use crate::table::TableName;

/// By how much longer a lease excludes others than its holder has it.
pub(super) const MARGIN: Duration = Duration::from_secs(1);

/// How far our heartbeats lie back at least: a client of spindle takes a lock whose heartbeat is of the millisecond in which it
/// looks.
const BACK: Duration = Duration::from_millis(2);

/// What Spanner replaces by the time of the commit.
const OF_COMMIT: &str = "spanner.commit_timestamp()";

/// A row of a lock, as it was read.
#[derive(Debug, Clone)]
pub(super) struct LockRow {
    pub(super) name: String,
    heartbeat: Option<Timestamp>,
    token: Option<Timestamp>,
    writer: Option<Writer>,
}

impl LockRow {
    /// The row of the name that was asked for, if there is one.
    ///
    /// # Errors
    /// `Corrupt` if it cannot be read.
    pub(super) fn of(row: &Row) -> Result<Option<Self>> {
        let Some(name) = column::<Option<String>>(row, "name")? else { return Ok(None) };
        let writer: Option<String> = column(row, "writer")?;
        Ok(Some(Self {
            name,
            heartbeat: column(row, "heartbeat")?,
            token: column(row, "token")?,
            writer: writer.as_deref().map(Writer::parse),
        }))
    }

    /// The name of the claim row for its token.
    fn claim(&self) -> String {
        claims::name(&self.name, self.token)
    }

    /// Whether it is a claim row of ours, from before this time.
    pub(super) fn is_claim_before(&self, time: Duration) -> bool {
        let is_old = |heartbeat| Duration::from_micros(micros(heartbeat)) < time;
        self.token.is_none() && self.heartbeat.is_some_and(is_old)
    }

    fn is_ours(&self) -> bool {
        matches!(self.writer, Some(Writer::Ours { .. }))
    }

    /// By how much the end of the lease for its holder lies behind the heartbeat.
    fn term(&self, duration: Duration) -> Duration {
        if self.is_ours() { duration + BACK } else { duration }
    }

    /// Who holds the lock: nobody without a heartbeat.
    ///
    /// # Errors
    /// `Corrupt` for a heartbeat without a token.
    pub(super) fn holder(&self, duration: Duration) -> Result<Option<Holder>> {
        let Some(heartbeat) = self.heartbeat else { return Ok(None) };
        let Some(granted_at) = self.token.map(micros) else {
            return Err(Error::corrupt(format!(
                "the row {:?} has a heartbeat and no token: it is a claim row of another lock, or damaged",
                self.name
            )));
        };
        let token = FencingToken::new(granted_at)
            .map_err(|e| Error::corrupt(format!("the token of the row {:?}: {e}", self.name)))?;
        let (id, state) = match &self.writer {
            Some(Writer::Ours { id, kept: true, .. }) => (Some(id.clone()), State::Kept),
            Some(Writer::Ours { id, .. }) => (Some(id.clone()), State::Held),
            _ => (None, State::Held),
        };
        Ok(Some(Holder {
            id,
            mode: Mode::Exclusive,
            token,
            group: self.writer.as_ref().and_then(Writer::name),
            note: Note::default(),
            expires: Some(Duration::from_micros(micros(heartbeat)) + self.term(duration)),
            granted_at,
            renewed_at: None,
            state,
        }))
    }
}

/// A lock and its row, as the rules see them.
#[derive(Debug)]
pub(super) struct Lock {
    key: Key,
    row: Option<LockRow>,
    duration: Duration,
}

/// What the rules make of a lock.
pub(super) struct Decided<T> {
    pub(super) reply: T,
    pub(super) changes: Vec<Mutation>,
    /// Whether the lock gets a new token: the time of the commit.
    pub(super) is_granted: bool,
}

impl Lock {
    pub(super) fn new(key: Key, row: Option<LockRow>, duration: Duration) -> Self {
        Self { key, row, duration }
    }

    /// The name of the claim row that a new token needs.
    pub(super) fn claim(&self) -> String {
        let without_row = || claims::name_without_row(self.key.as_str());
        self.row.as_ref().map_or_else(without_row, LockRow::claim)
    }

    /// Lets the rules decide. A new token needs the claim row of the old one, which must not exist yet, unless it is the one that
    /// is `passed`.
    ///
    /// # Errors
    /// `Corrupt` if the row cannot be read, and those of the rules.
    pub(super) fn decide<T>(
        &self,
        table: &TableName,
        now: Now,
        passed: Option<&str>,
        apply: impl FnOnce(&mut Table) -> Result<T>,
    ) -> Result<Decided<T>> {
        let before = self.row.as_ref().map(|row| row.holder(self.duration)).transpose()?.flatten();
        let mut rules = Table::default().with_margin(MARGIN);
        rules.insert(self.key.clone(), before.iter().cloned().collect());
        rules = rules.with_mark(before.as_ref().map_or(0, |holder| holder.token.get()));
        let reply = apply(&mut rules)?;
        let is_evicted = |holder: &&Holder| matches!(holder.state, State::Evicted(_));
        let after = rules.holders(&self.key).last().filter(|holder| !is_evicted(holder));
        let mut changes = Vec::new();
        let is_granted =
            after.is_some_and(|after| before.as_ref().is_none_or(|b| b.token != after.token));
        match (&self.row, after) {
            (None, None) => {}
            (_, Some(after)) if is_granted => {
                changes.push(claim(table, &self.claim(), passed, now)?);
                changes.push(self.write(table, after, true)?);
            }
            (_, Some(after)) if Some(after) != before.as_ref() => {
                changes.push(self.write(table, after, false)?);
            }
            (Some(row), None) if before.is_some() => changes.push(end(table, row)),
            _ => {}
        }
        Ok(Decided { reply, changes, is_granted })
    }

    /// Ends the lease of a leader of spindle, by a token that no client has: without one, its next heartbeat would revive it.
    /// `None` if it is not one. It needs the claim row of its token, as a new lease does.
    pub(super) fn depose(
        &self,
        table: &TableName,
        now: Now,
        passed: Option<&str>,
    ) -> Result<Option<Vec<Mutation>>> {
        let Some(row) = self.row.as_ref().filter(|row| !row.is_ours()) else { return Ok(None) };
        let claim = claim(table, &row.claim(), passed, now)?;
        let ended = Mutation::new_update_builder(table.as_str())
            .set("name")
            .to(&*row.name)
            .set("heartbeat")
            .to(None::<Timestamp>)
            .set("token")
            .to(OF_COMMIT)
            .set("writer")
            .to(row.writer.as_ref().map(Writer::left_behind))
            .build();
        Ok(Some(vec![claim, ended]))
    }

    /// Writes a holder: also a token, if that is new.
    fn write(&self, table: &TableName, holder: &Holder, is_new: bool) -> Result<Mutation> {
        let (Some(id), Some(expires)) = (&holder.id, holder.expires) else {
            return Err(Error::unexpected(format!(
                "a lease on {:?} has no id or no end",
                self.key
            )));
        };
        let kept = holder.state == State::Kept;
        let writer = Writer::Ours { name: holder.group.clone(), id: id.clone(), kept };
        let heartbeat = heartbeat(expires, self.duration)?;
        let row = match self.row {
            Some(_) => Mutation::new_update_builder(table.as_str()),
            None => Mutation::new_insert_builder(table.as_str()),
        };
        let row = row.set("name").to(self.key.as_str()).set("heartbeat").to(heartbeat);
        let row = row.set("writer").to(writer.text());
        Ok(if is_new { row.set("token").to(OF_COMMIT).build() } else { row.build() })
    }
}

/// Adds a claim row, with its age in the heartbeat: a claim row of spindle has none.
fn claim(table: &TableName, name: &str, passed: Option<&str>, now: Now) -> Result<Mutation> {
    let row = match passed {
        Some(passed) if passed == name => Mutation::new_insert_or_update_builder(table.as_str()),
        _ => Mutation::new_insert_builder(table.as_str()),
    };
    // Spanner takes no time that its own clock has not reached yet.
    let age = timestamp(now.boot.saturating_sub(MARGIN))?;
    Ok(row.set("name").to(name).set("heartbeat").to(age).build())
}

/// Ends a lease: without a heartbeat a lock is free, for a client of spindle too.
fn end(table: &TableName, row: &LockRow) -> Mutation {
    Mutation::new_update_builder(table.as_str())
        .set("name")
        .to(&*row.name)
        .set("heartbeat")
        .to(None::<Timestamp>)
        .set("writer")
        .to(row.writer.as_ref().map(Writer::left_behind))
        .build()
}

/// Removes a row.
pub(super) fn delete(table: &TableName, name: &str) -> Mutation {
    let row = RowKey::new(vec![name.into()]);
    Mutation::delete(table.as_str(), KeySet::builder().add_key(row).build())
}

/// The heartbeat of a lease of ours that ends then.
fn heartbeat(expires: Duration, duration: Duration) -> Result<Timestamp> {
    timestamp(expires.saturating_sub(duration + BACK))
}

fn micros(time: Timestamp) -> u64 {
    let seconds = u64::try_from(time.seconds()).unwrap_or_default();
    seconds * 1_000_000 + u64::from(time.nanos().unsigned_abs()) / 1_000
}

fn timestamp(at: Duration) -> Result<Timestamp> {
    let seconds = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    Timestamp::new(seconds, at.subsec_nanos().cast_signed())
        .map_err(|e| Error::unexpected(format!("the time {at:?} is out of range: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heartbeat_of_a_new_lease_is_two_milliseconds_old() {
        let (now, duration) = (Duration::from_secs(100), Duration::from_secs(5));
        let heartbeat = heartbeat(now + duration, duration).unwrap();
        assert_eq!(micros(heartbeat), 99_998_000);
    }
}
