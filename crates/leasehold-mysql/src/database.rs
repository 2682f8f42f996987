//! What the server carries out: one exchange each.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use leasehold_core::{Effect, EvictTarget, Reason, Result};
use leasehold_driver::Deadline;
use leasehold_driver::sql::{Done, Entry, Old, Position, Purge, SqlServer, Stored, locked};
use mysql_async::Row;

use crate::call::{Call, micros};
use crate::calls;
use crate::error;
use crate::link::Link;
use crate::pool::{Links, Unanswered};
use crate::rows::{column, required, stored};
use crate::sql::Sql;

/// The longest pauses, the first and the last, before the next try of a call whose rows somebody else has locked.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(200));

pub(crate) struct Database {
    pub(crate) links: Links,
    pub(crate) sql: Sql,
    /// The number of the last batch. They begin anywhere, so that no other store has the same ones.
    batches: AtomicI64,
    /// In microseconds.
    forget_after: Option<i64>,
}

impl Database {
    pub(crate) fn new(links: Links, sql: Sql, forget_after: Option<Duration>) -> Self {
        let batches = AtomicI64::new(fastrand::i64(..));
        let forget_after = forget_after.map(micros);
        Self { links, sql, batches, forget_after }
    }

    /// The rows of a call that waits for no row, on a connection of its own.
    pub(crate) async fn read(&self, deadline: Deadline, call: Call<'_>) -> Result<Vec<Row>> {
        let link = self.links.get(deadline).await?;
        let rows = self.links.ask(link, deadline, &self.sql, call).await.1;
        rows.map_err(|failure| failure.into_error(&self.links.server))
    }

    /// What the rows of a call say that finds nothing of it done while somebody else has locked one of its rows: tried on
    /// a connection of its own until that has ended. `None` if it did not end within the time limit. One that may be sent
    /// twice is sent again, on a new connection, after `first`.
    async fn patiently<T>(
        &self,
        deadline: Deadline,
        mut first: Option<Duration>,
        call: impl Fn() -> Call<'static>,
        read: impl Fn(&[Row]) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut pause = PAUSES.0;
        let mut was_locked = false;
        loop {
            // A try that there is no time for would leave its outcome unknown.
            if was_locked && deadline.left() < self.links.timeout / 10 {
                return Ok(None);
            }
            let link = match self.links.get(deadline).await {
                Ok(link) => link,
                Err(_) if was_locked && deadline.left().is_zero() => return Ok(None),
                Err(error) => return Err(error),
            };
            let (is_last, step) = match first.take() {
                Some(first) => (false, deadline.within(first)),
                None => (true, deadline),
            };
            match self.links.ask(link, step, &self.sql, call()).await.1 {
                Ok(rows) => {
                    if let Some(found) = read(&rows)? {
                        return Ok(Some(found));
                    }
                }
                Err(Unanswered::Conflict(_)) => {}
                Err(Unanswered::Failed(e)) if !is_last && e.effect() == Effect::Unknown => {
                    self.links.retire();
                    continue;
                }
                Err(failure) => return Err(failure.into_error(&self.links.server)),
            }
            was_locked = true;
            tokio::time::sleep(pause.mul_f64(fastrand::f64()).min(deadline.left())).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// The rows of a call on a reserved connection, or `None` if it was rolled back because of somebody else's
    /// transaction.
    async fn briefly(&self, link: Link, call: Call<'_>) -> Option<Result<Vec<Row>>> {
        let deadline = self.links.deadline();
        let (link, rows) = self.links.ask(link, deadline, &self.sql, call).await;
        if let Some(link) = link {
            self.links.reserve(link);
        }
        match rows {
            Ok(rows) => Some(Ok(rows)),
            Err(Unanswered::Conflict(_)) => None,
            Err(Unanswered::Failed(error)) => Some(Err(error)),
        }
    }

    /// The outcome of each of these entries; `None` for one that has no row.
    async fn batch(&self, entries: &[Arc<Entry>], begin: Deadline) -> Vec<Option<Result<Done>>> {
        let server = &self.links.server;
        let mut outcomes: Vec<Option<Result<Done>>> = entries.iter().map(|_| None).collect();
        let joined = entries
            .iter()
            .map(|entry| &**entry)
            .enumerate()
            .filter(|(_, one)| calls::may_join(&entries[0], one));
        let (places, members): (Vec<usize>, Vec<&Entry>) = joined.unzip();
        let reply = match self.links.reserved(begin).await {
            Ok(link) => {
                let call = if self.links.is_direct(&link) {
                    calls::together_direct(&self.sql, &members)
                } else {
                    calls::together(self.batches.fetch_add(1, Ordering::Relaxed), &members)
                };
                let Some(call) = call else { return outcomes };
                self.briefly(link, call).await
            }
            Err(error) => Some(Err(error)),
        };
        let rows = match reply {
            Some(Ok(rows)) => rows,
            // Each is tried alone.
            None => return outcomes,
            Some(Err(error)) if error.effect() == Effect::NotApplied => return outcomes,
            Some(Err(error)) => {
                places.iter().for_each(|place| outcomes[*place] = Some(Err(error.clone())));
                return outcomes;
            }
        };
        for row in rows {
            let key: Vec<u8> = required(server, &row, "key").unwrap_or_default();
            let nth = members.binary_search_by(|member| member.key().as_str().as_bytes().cmp(&key));
            if let Ok(nth) = nth {
                outcomes[places[nth]] = Some(calls::member(server, members[nth], &row));
            }
        }
        outcomes
    }

    /// What rows say, each with the clock of its reading.
    fn stored(&self, rows: &[Row]) -> Result<Vec<(i64, Stored)>> {
        let server = &self.links.server;
        let mut all = Vec::with_capacity(rows.len());
        for row in rows {
            all.push((required(server, row, "o_now")?, stored(server, row)));
        }
        Ok(all)
    }
}

impl SqlServer for Database {
    fn lanes(&self) -> usize {
        self.links.lanes
    }

    fn distrust(&self) {
        self.links.retire();
    }

    async fn send(&self, entry: &Entry, begin: Deadline) -> Option<Result<Done>> {
        let server = &self.links.server;
        let link = match self.links.reserved(begin).await {
            Ok(link) => link,
            Err(_) if begin.left().is_zero() => return None,
            Err(error) => return Some(Err(error)),
        };
        let rows = self.briefly(link, calls::one(entry)?).await?;
        rows.and_then(|rows| calls::done(server, entry, &rows)).transpose()
    }

    async fn send_together(
        &self,
        entries: &[Arc<Entry>],
        begin: Deadline,
    ) -> Vec<Option<Result<Done>>> {
        self.batch(entries, begin).await
    }

    async fn send_apart(&self, entry: &Entry, until: Deadline) -> Result<Option<Done>> {
        let server = &self.links.server;
        let call = || calls::apart(entry).unwrap_or_else(|| calls::look_up(&[]));
        // Late, a renewal revives nothing (C6) and shortens nothing.
        let first = matches!(entry, Entry::Renew(_)).then(|| entry.patience(self.links.timeout));
        self.patiently(until, first, call, |rows| calls::done(server, entry, rows)).await
    }

    async fn look_up(&self, keys: &[String]) -> Result<Vec<(i64, Stored)>> {
        self.stored(&self.read(self.links.deadline(), calls::look_up(keys)).await?)
    }

    async fn page(&self, after: &Position, most: usize) -> Result<(Vec<(i64, Stored)>, bool)> {
        let rows = self.read(self.links.deadline(), calls::page(after, most)).await?;
        Ok((self.stored(&rows)?, rows.len() == most))
    }

    async fn evict(&self, targets: &[EvictTarget], reason: Option<&Reason>) -> Result<Vec<i64>> {
        let server = &self.links.server;
        let until = self.links.deadline();
        let call = || calls::evict(targets, reason);
        let gone = self.patiently(until, None, call, |rows| calls::gone(server, rows)).await?;
        gone.ok_or_else(|| locked(server))
    }

    async fn scan(
        &self,
        keys: Option<&[String]>,
        after: &Position,
        most: usize,
    ) -> Result<(Vec<Old>, Option<Position>)> {
        let server = &self.links.server;
        let call = calls::scan(keys, after, most, self.forget_after);
        let rows = self.read(self.links.deadline(), call).await?;
        let (mut old, mut next) = (Vec::new(), None);
        for row in &rows {
            let stored = stored(server, row);
            let flag = |name| column::<i64>(server, row, name).map(|flag| flag == Some(1));
            if flag("o_more")? {
                next = Some(Position::of(&stored));
            }
            let now = required(server, row, "o_now")?;
            old.extend(Old::of(now, stored, flag("o_over")?, flag("o_old")?));
        }
        Ok((old, next))
    }

    async fn purge(&self, purge: &Purge) -> Result<Vec<i64>> {
        let server = &self.links.server;
        let rows = self.read(self.links.deadline(), calls::purge(purge)).await?;
        calls::gone(server, &rows)?.ok_or_else(|| error::odd(server, "a purge that waits"))
    }

    fn name(&self) -> &str {
        &self.links.server
    }

    fn timeout(&self) -> Duration {
        self.links.timeout
    }
}
