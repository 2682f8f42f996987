//! What travels together: requests about an exclusive lease of one key.

use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::{
    AcquireReply, AcquireRequest, Effect, Key, ReleaseEntry, ReleaseOutcome, RenewEntry,
    RenewOutcome, Result,
};
use leasehold_driver::Combine;
use tokio_postgres::Row;

use crate::call::Statement;
use crate::calls::acquire::{self, AcquireBatch, AcquireOne};
use crate::calls::release::{self, ReleaseBatch, ReleaseOne};
use crate::calls::renew::{self, RenewBatch, RenewOne};
use crate::error;
use crate::pool::{Link, Links, Unanswered};
use crate::sql::Sql;

/// A request, or a part of one, about one lease.
#[derive(Debug)]
pub(crate) enum Entry {
    Acquire(AcquireRequest),
    Renew(RenewEntry),
    Release(ReleaseEntry),
}

/// The reply to an [`Entry`].
#[derive(Debug)]
pub(crate) enum Done {
    Acquired(AcquireReply),
    Renewed(RenewOutcome),
    Released(ReleaseOutcome),
}

/// The reserved connection, and how entries travel on it.
pub(crate) struct Lane {
    links: Links,
    sql: Arc<Sql>,
    reserved: Mutex<Option<Link>>,
}

impl Lane {
    pub(crate) fn new(links: Links, sql: Arc<Sql>) -> Self {
        Self { links, sql, reserved: Mutex::default() }
    }

    /// Rows, or `None` if the statement was rolled back because of somebody else's transaction.
    async fn ask(&self, statement: &impl Statement) -> Option<Result<Vec<Row>>> {
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner).take();
        let link = match reserved.filter(Link::is_open) {
            Some(link) => link,
            None => match self.links.get().await {
                Ok(link) => link,
                Err(error) => return Some(Err(error)),
            },
        };
        let patience = self.links.patience();
        let call = statement.call(&self.sql, &patience);
        let (link, rows) = self.links.ask(link, self.links.timeout, &call).await;
        *self.reserved.lock().unwrap_or_else(PoisonError::into_inner) = link;
        match rows {
            Ok(rows) => Some(Ok(rows)),
            Err(Unanswered::Server(e)) if error::is_conflict(&e) || error::is_locked(&e) => None,
            Err(failure) => Some(Err(failure.into_error(&self.links.server))),
        }
    }

    /// The outcome of each of `count` members; `None` for one that has no row.
    async fn ask_batch<T>(
        &self,
        count: usize,
        statement: &impl Statement,
        outcome: impl Fn(&str, &Row) -> Result<T>,
    ) -> Vec<Option<Result<T>>> {
        let server = &self.links.server;
        let none = || (0..count).map(|_| None).collect();
        let rows = match self.ask(statement).await {
            Some(Ok(rows)) => rows,
            // Rolled back: each is tried alone.
            None => return none(),
            Some(Err(error)) if error.effect() == Effect::NotApplied => return none(),
            Some(Err(error)) => return (0..count).map(|_| Some(Err(error.clone()))).collect(),
        };
        let mut outcomes: Vec<Option<Result<T>>> = none();
        for row in rows {
            let nth =
                row.try_get::<_, i64>("o_nth").ok().and_then(|nth| usize::try_from(nth - 1).ok());
            if let Some(place) = nth.and_then(|nth| outcomes.get_mut(nth)) {
                *place = Some(outcome(server, &row));
            }
        }
        outcomes
    }
}

/// The kinds of entries.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Acquire,
    Renew,
    Release,
}

impl Combine for Lane {
    type Request = Entry;
    type Reply = Done;
    type Kind = Kind;

    fn kind(entry: &Entry) -> Kind {
        match entry {
            Entry::Acquire(_) => Kind::Acquire,
            Entry::Renew(_) => Kind::Renew,
            Entry::Release(_) => Kind::Release,
        }
    }

    fn key(entry: &Entry) -> &Key {
        match entry {
            Entry::Acquire(request) => &request.claims().first().key,
            Entry::Renew(lease) => &lease.claims().first().key,
            Entry::Release(lease) => &lease.keys()[0],
        }
    }

    async fn send(&self, entry: &Entry) -> Option<Result<Done>> {
        let server = &self.links.server;
        let done = |rows: Result<Vec<Row>>, read: &dyn Fn(&[Row]) -> Result<Done>| {
            rows.and_then(|rows| read(&rows))
        };
        match entry {
            Entry::Acquire(request) => {
                let rows = self.ask(&AcquireOne::new(request)).await?;
                Some(done(rows, &|rows| acquire::reply(server, request, rows).map(Done::Acquired)))
            }
            Entry::Renew(lease) => {
                let rows = self.ask(&RenewOne::new(lease)).await?;
                Some(done(rows, &|rows| renew::outcome(server, lease, rows).map(Done::Renewed)))
            }
            Entry::Release(lease) => {
                let rows = self.ask(&ReleaseOne::new(lease)).await?;
                Some(done(rows, &|rows| release::outcome(server, rows).map(Done::Released)))
            }
        }
    }

    async fn send_together(&self, entries: &[Entry]) -> Vec<Option<Result<Done>>> {
        let count = entries.len();
        match entries.first() {
            Some(Entry::Acquire(_)) => {
                let batch = AcquireBatch::new(entries.iter().filter_map(|entry| match entry {
                    Entry::Acquire(request) => Some(request),
                    _ => None,
                }));
                let granted = |server: &str, row: &Row| {
                    acquire::granted(server, row, true)
                        .map(AcquireReply::Granted)
                        .map(Done::Acquired)
                };
                self.ask_batch(count, &batch, granted).await
            }
            Some(Entry::Renew(_)) => {
                let batch = RenewBatch::new(entries.iter().filter_map(|entry| match entry {
                    Entry::Renew(lease) => Some(lease),
                    _ => None,
                }));
                self.ask_batch(count, &batch, |server, row| {
                    renew::held(server, row).map(Done::Renewed)
                })
                .await
            }
            Some(Entry::Release(_)) => {
                let batch = ReleaseBatch::new(entries.iter().filter_map(|entry| match entry {
                    Entry::Release(lease) => Some(lease),
                    _ => None,
                }));
                let ended =
                    |server: &str, row: &Row| release::ended(server, row).map(Done::Released);
                self.ask_batch(count, &batch, ended).await
            }
            None => Vec::new(),
        }
    }
}
