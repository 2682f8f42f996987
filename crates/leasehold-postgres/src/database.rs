//! What the server carries out: one exchange each.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{AcquireReply, Effect, EvictTarget, Reason, Result};
use leasehold_driver::Deadline;
use leasehold_driver::sql::{Done, Entry, Old, Position, Purge, SqlServer, Stored, locked};
use tokio_postgres::Row;

use crate::call::{Statement, is_locked, micros};
use crate::calls::acquire::{self, Acquire, AcquireBatch, AcquireOne};
use crate::calls::evict::{Evict, Remove, Scan, positions};
use crate::calls::list::{LookUp, Page, stored};
use crate::calls::release::{self, Release, ReleaseBatch, ReleaseOne};
use crate::calls::renew::{self, Renew, RenewBatch, RenewOne};
use crate::error;
use crate::pool::{Links, Unanswered};
use crate::row_waits::{BRIEF, Turns};
use crate::sql::Sql;

pub(crate) struct Database {
    pub(crate) links: Links,
    pub(crate) sql: Arc<Sql>,
    /// In microseconds.
    forget_after: Option<i64>,
}

impl Database {
    pub(crate) fn new(links: Links, sql: Arc<Sql>, forget_after: Option<Duration>) -> Self {
        Self { links, sql, forget_after: forget_after.map(micros) }
    }

    /// The rows of a statement that waits for no row, on a connection of its own.
    pub(crate) async fn read(&self, statement: &impl Statement) -> Result<Vec<Row>> {
        let (links, until) = (&self.links, self.links.deadline());
        let call = statement.call(&self.sql, &None);
        loop {
            let link = links.get(until).await?;
            match links.ask(link, until, &call).await.1 {
                Err(Unanswered::Server(e)) if error::is_conflict(&e) => {}
                rows => return rows.map_err(|failure| failure.into_error(&links.server)),
            }
        }
    }

    /// The rows of a statement on a connection of its own. `None` if somebody else's transaction held a row for the whole
    /// time limit. One that is not answered within `first` is sent again, on another connection.
    async fn patiently(
        &self,
        statement: &impl Statement,
        turns: &Turns,
        until: Deadline,
        mut first: Option<Duration>,
    ) -> Result<Option<Vec<Row>>> {
        let links = &self.links;
        // To wait for a row, or to try again.
        let mut held = (turns.waits.try_acquire().ok(), None);
        while !until.left().is_zero() {
            let turn = until.bound(turns.connections.acquire()).await;
            let Some(turn) = turn else { return Err(links.no_turn(until)) };
            let link = links.get(until).await?;
            let (is_last, step) = match first.take() {
                Some(first) => (false, until.within(first)),
                None => (true, until),
            };
            // The server gives up first, so that the outcome is known.
            let most = step.earlier().left();
            let patience = if held.0.is_some() { most } else { most.min(BRIEF) };
            let for_each_lock = Some(patience.as_millis().max(1).to_string());
            let call = statement.call(&self.sql, &for_each_lock);
            match links.ask_patiently(link, step, patience, &call).await {
                Ok(None) if held.0.is_none() || !is_last => {}
                Ok(rows) => return Ok(rows),
                // Rolled back because of another transaction, which is about to end.
                Err(Unanswered::Server(e)) if error::is_conflict(&e) => continue,
                // The older connections are retired.
                Err(Unanswered::Late(_)) if !is_last => continue,
                Err(failure) => return Err(failure.into_error(&links.server)),
            }
            drop((turn, held));
            let next = async {
                tokio::select! {
                    biased;
                    wait = turns.waits.acquire() => (wait.ok(), None),
                    again = turns.again() => (None, again),
                }
            };
            match until.earlier().bound(next).await {
                Some(next) => held = next,
                None => break,
            }
        }
        Ok(None)
    }

    /// The rows of a statement on a reserved connection, or `None` if it was rolled back because of somebody else's
    /// transaction, or there was no connection until `begin`.
    async fn briefly(
        &self,
        statement: &impl Statement,
        begin: Deadline,
    ) -> Option<Result<Vec<Row>>> {
        let link = match self.links.reserved(begin).await {
            Ok(link) => link,
            Err(_) if begin.left().is_zero() => return None,
            Err(error) => return Some(Err(error)),
        };
        let (until, patience) = (self.links.deadline(), self.links.patience());
        let call = statement.call(&self.sql, &patience);
        let (link, rows) = self.links.ask(link, until, &call).await;
        link.into_iter().for_each(|link| self.links.reserve(link));
        match rows {
            Ok(rows) => Some(Ok(rows)),
            Err(Unanswered::Server(e)) if error::is_conflict(&e) || error::is_locked(&e) => None,
            Err(failure) => Some(Err(failure.into_error(&self.links.server))),
        }
    }

    /// The outcome of each of `count` members; `None` for one that has no row.
    async fn each<T>(
        &self,
        count: usize,
        statement: &impl Statement,
        begin: Deadline,
        outcome: impl Fn(&str, &Row) -> Result<T>,
    ) -> Vec<Option<Result<T>>> {
        let none = || (0..count).map(|_| None).collect();
        let rows = match self.briefly(statement, begin).await {
            Some(Ok(rows)) => rows,
            // Each is tried alone.
            None => return none(),
            Some(Err(error)) if error.effect() == Effect::NotApplied => return none(),
            Some(Err(error)) => return (0..count).map(|_| Some(Err(error.clone()))).collect(),
        };
        let mut outcomes: Vec<Option<Result<T>>> = none();
        for row in rows {
            let nth =
                row.try_get::<_, i64>("o_nth").ok().and_then(|nth| usize::try_from(nth - 1).ok());
            if let Some(place) = nth.and_then(|nth| outcomes.get_mut(nth)) {
                *place = Some(outcome(&self.links.server, &row));
            }
        }
        outcomes
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
        let rows = match entry {
            Entry::Acquire(request) => self.briefly(&AcquireOne::new(request), begin).await?,
            Entry::Renew(lease) => self.briefly(&RenewOne::new(lease), begin).await?,
            Entry::Release(lease) => self.briefly(&ReleaseOne::new(lease), begin).await?,
            _ => return None,
        };
        match rows {
            Ok(rows) if is_locked(&rows) => None,
            rows => Some(rows.and_then(|rows| self.done(entry, &rows))),
        }
    }

    async fn send_together(
        &self,
        entries: &[Arc<Entry>],
        begin: Deadline,
    ) -> Vec<Option<Result<Done>>> {
        let count = entries.len();
        match entries.first().map(|entry| &**entry) {
            Some(Entry::Acquire(_)) => {
                let batch = AcquireBatch::new(entries.iter().filter_map(|entry| match &**entry {
                    Entry::Acquire(request) => Some(request),
                    _ => None,
                }));
                let granted = |server: &str, row: &Row| {
                    let granted = acquire::granted(server, row, true)?;
                    Ok(Done::Acquired(AcquireReply::Granted(granted)))
                };
                self.each(count, &batch, begin, granted).await
            }
            Some(Entry::Renew(_)) => {
                let batch = RenewBatch::new(entries.iter().filter_map(|entry| match &**entry {
                    Entry::Renew(lease) => Some(lease),
                    _ => None,
                }));
                let held = |server: &str, row: &Row| renew::held(server, row).map(Done::Renewed);
                self.each(count, &batch, begin, held).await
            }
            Some(Entry::Release(_)) => {
                let batch = ReleaseBatch::new(entries.iter().filter_map(|entry| match &**entry {
                    Entry::Release(lease) => Some(lease),
                    _ => None,
                }));
                let ended =
                    |server: &str, row: &Row| release::ended(server, row).map(Done::Released);
                self.each(count, &batch, begin, ended).await
            }
            _ => (0..count).map(|_| None).collect(),
        }
    }

    async fn send_apart(&self, entry: &Entry, until: Deadline) -> Result<Option<Done>> {
        let (acquires, others) =
            (self.links.row_waits.of_acquires(), self.links.row_waits.of_others());
        let rows = match entry {
            Entry::Acquire(request) => {
                self.patiently(&Acquire::new(request), acquires, until, None).await?
            }
            // Late, it revives nothing (C6) and shortens nothing.
            Entry::Renew(lease) => {
                let first = entry.patience(self.links.timeout);
                self.patiently(&Renew::new(lease), others, until, Some(first)).await?
            }
            Entry::Release(lease) => {
                self.patiently(&Release::new(lease), others, until, None).await?
            }
            _ => None,
        };
        rows.map(|rows| self.done(entry, &rows)).transpose()
    }

    async fn look_up(&self, keys: &[String]) -> Result<Vec<(i64, Stored)>> {
        let rows = self.read(&LookUp { keys }).await?;
        Ok(rows.iter().filter_map(stored).collect())
    }

    async fn page(&self, after: &Position, most: usize) -> Result<(Vec<(i64, Stored)>, bool)> {
        let rows = self.read(&Page::new(after, most)).await?;
        Ok((rows.iter().filter_map(stored).collect(), rows.len() == most))
    }

    async fn evict(&self, targets: &[EvictTarget], reason: Option<&Reason>) -> Result<Vec<i64>> {
        let rows = self
            .patiently(
                &Evict::new(targets, reason),
                self.links.row_waits.of_others(),
                self.links.deadline(),
                None,
            )
            .await?;
        positions(&self.links.server, &rows.ok_or_else(|| locked(&self.links.server))?)
    }

    async fn scan(
        &self,
        keys: Option<&[String]>,
        after: &Position,
        most: usize,
    ) -> Result<(Vec<Old>, Option<Position>)> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = self.read(&Scan { keys, after, most, forget_after: self.forget_after }).await?;
        let (mut old, mut next) = (Vec::new(), None);
        for row in &rows {
            let Some((now, stored)) = stored(row) else { continue };
            if row.get(2) {
                next = Some(Position::of(&stored));
            }
            old.extend(Old::of(now, stored, row.get(3), row.get(4)));
        }
        Ok((old, next))
    }

    async fn purge(&self, purge: &Purge) -> Result<Vec<i64>> {
        positions(&self.links.server, &self.read(&Remove(purge)).await?)
    }

    fn name(&self) -> &str {
        &self.links.server
    }

    fn timeout(&self) -> Duration {
        self.links.timeout
    }
}

impl Database {
    /// What the rows of a statement about one entry say.
    fn done(&self, entry: &Entry, rows: &[Row]) -> Result<Done> {
        let server = &self.links.server;
        match entry {
            Entry::Acquire(request) => acquire::reply(server, request, rows).map(Done::Acquired),
            Entry::Renew(lease) => renew::outcome(server, lease, rows).map(Done::Renewed),
            Entry::Release(_) => release::outcome(server, rows).map(Done::Released),
            _ => Err(error::odd(server, "to a request that was not sent")),
        }
    }
}
