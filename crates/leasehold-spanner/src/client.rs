//! How requests reach Spanner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use google_cloud_gax::retry_policy::NeverRetry;
use google_cloud_spanner::Result as Driven;
use google_cloud_spanner::mutation::Mutation;
use google_cloud_spanner::result::Row;
use google_cloud_spanner::statement::Statement;
use google_cloud_spanner::transaction::{BasicTransactionRetryPolicy, ReadWriteTransaction};
use leasehold_core::{Effect, Error, Result};
use leasehold_driver::{Deadline, outliving};

use crate::columns;
use crate::error;
use crate::refusals::Refusals;
use crate::sender::Sender;

/// The database, and who sends.
pub(crate) struct Client {
    pub(crate) requests: Sender,
    /// Renewals have channels and places of their own, so that load cannot starve a holder.
    pub(crate) renewals: Sender,
    pub(crate) clock: SpannerClock,
    pub(crate) refusals: Refusals,
    pub(crate) server: String,
    pub(crate) timeout: Duration,
}

/// How Spanner's clock is read.
#[derive(Clone)]
pub(crate) struct SpannerClock {
    /// The statement.
    pub(crate) now: Arc<str>,
    /// After so long a wait for the rows, the clock is read again.
    pub(crate) read_again_after: Duration,
}

/// When a transaction begins and ends at the latest.
#[derive(Clone, Copy)]
pub(crate) struct Times {
    /// No attempt begins later: not the first, and none after Spanner has aborted one.
    pub(crate) begin: Deadline,
    pub(crate) end: Deadline,
    /// It ends while others may still have an answer: one that it does not get shows nothing about the connection.
    pub(crate) gives_way: bool,
}

impl Times {
    /// Those of a transaction that is the whole operation.
    pub(crate) fn until(end: Deadline) -> Self {
        Self { begin: end, end, gives_way: false }
    }
}

/// What a transaction has read.
pub(crate) struct Found {
    /// Spanner's clock, in microseconds since 1970, read after the rows were locked.
    pub(crate) now: i64,
    pub(crate) rows: Vec<Row>,
}

/// What a transaction decides.
pub(crate) struct Decision<T> {
    pub(crate) reply: T,
    pub(crate) changes: Vec<Mutation>,
}

/// What a transaction has decided, and when it was committed, in microseconds since 1970.
pub(crate) struct Committed<T> {
    pub(crate) reply: T,
    pub(crate) at: Option<i64>,
}

impl Client {
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    pub(crate) fn unanswered(&self, limit: Duration, effect: Effect) -> Error {
        error::unanswered(&self.server, limit, effect == Effect::Unknown)
    }

    /// Reads by a statement that locks its rows, each with Spanner's clock as `now`, and writes what `decide` changes, in one
    /// transaction that begins and ends in time. One that is aborted begins anew. It runs on if its caller goes.
    pub(crate) async fn transact<T: Send + 'static>(
        &self,
        sender: &Sender,
        Times { begin, end: until, gives_way }: Times,
        lock: Statement,
        decide: impl Fn(&Found) -> Result<Decision<T>> + Send + Sync + 'static,
    ) -> Result<Committed<T>> {
        let unanswered = || self.unanswered(begin.limit(), Effect::NotApplied);
        if begin.left().is_zero() {
            return Err(unanswered());
        }
        let begun = sender.micros();
        let lane = sender.lane(begin).await.ok_or_else(unanswered)?;
        let (number, database) = sender.client(begin).await.ok_or_else(unanswered)??;
        let runner = database
            .read_write_transaction()
            .with_transaction_timeout(until.left())
            .with_rollback_retry_policy(NeverRetry)
            .with_retry_policy(BasicTransactionRetryPolicy::new().with_total_timeout(begin.left()))
            .build();
        let (clock, server, sender) = (self.clock.clone(), self.server.clone(), sender.clone());
        let shared = Arc::new((lock, decide));
        // Boxed: the driver's futures are large, and are moved on their way.
        outliving(Box::pin(async move {
            let _lane = lane;
            let commits = Arc::new(AtomicBool::new(false));
            let committing = Arc::clone(&commits);
            let answering = sender.clone();
            let decided = runner.run(move |transaction: ReadWriteTransaction| {
                let (shared, clock) = (Arc::clone(&shared), clock.clone());
                let (commits, answering) = (Arc::clone(&committing), answering.clone());
                async move {
                    commits.store(false, Ordering::Relaxed);
                    let (lock, decide) = &*shared;
                    let found = find(&transaction, lock.clone(), &clock, until).await?;
                    answering.note_answer();
                    Ok(match found.and_then(|found| decide(&found)) {
                        Ok(Decision { reply, changes }) => {
                            commits.store(!changes.is_empty(), Ordering::Relaxed);
                            transaction.buffer(changes)?;
                            Ok(reply)
                        }
                        Err(error) => Err(error),
                    })
                }
            });
            // The driver's own limits do not hold while it connects, or reads what has begun to arrive.
            let decided = until.bound(Box::pin(decided)).await;
            let commits = commits.load(Ordering::Relaxed);
            let ended = decided.as_ref().map(|done| done.as_ref().err());
            if !gives_way || ended.is_some_and(|failure| !failure.is_some_and(error::is_unanswered))
            {
                sender.judge(number, begun, ended);
            }
            match decided {
                Some(Ok(done)) => {
                    let at = done.commit_timestamp();
                    let at = at.map(|at| at.seconds() * 1_000_000 + i64::from(at.nanos()) / 1_000);
                    done.into_inner().map(|reply| Committed { reply, at })
                }
                Some(Err(error)) => Err(error::of(&server, error, commits)),
                None => Err(error::unanswered(&server, until.limit(), commits)),
            }
        }))
        .await
    }

    /// The rows of a statement with Spanner's clock, as they are at one instant.
    pub(crate) async fn look(&self, statement: Statement, until: Deadline) -> Result<Found> {
        let rows = self.read(statement, until).await?;
        Ok(Found { now: now(&rows)?, rows })
    }

    /// The rows of a statement, as they are at one instant.
    pub(crate) async fn read(&self, statement: Statement, until: Deadline) -> Result<Vec<Row>> {
        let sender = &self.requests;
        let unanswered = || self.unanswered(until.limit(), Effect::NotApplied);
        let begun = sender.micros();
        let (number, database) = sender.client(until).await.ok_or_else(unanswered)??;
        let reading = Box::pin(async {
            let read = database.single_use().build();
            let mut found = read.execute_query(statement).await?;
            let mut rows = Vec::new();
            while let Some(row) = found.next().await.transpose()? {
                rows.push(row);
            }
            Ok(rows)
        });
        let rows = until.bound(reading).await;
        sender.judge(number, begun, rows.as_ref().map(|rows| rows.as_ref().err()));
        rows.ok_or_else(unanswered)?.map_err(|error| error::of(&self.server, error, false))
    }
}

/// Spanner's clock, as the first of these rows has it.
fn now(rows: &[Row]) -> Result<i64> {
    let row =
        rows.first().ok_or_else(|| Error::unexpected("Spanner sent no row with its clock"))?;
    columns::now(row)
}

/// The rows of a statement, locked until the transaction ends.
async fn find(
    transaction: &ReadWriteTransaction,
    lock: Statement,
    clock: &SpannerClock,
    until: Deadline,
) -> Driven<Result<Found>> {
    let begun = until.left();
    let mut found = transaction.execute_query(lock).await?;
    let mut rows = Vec::new();
    while let Some(row) = found.next().await.transpose()? {
        rows.push(row);
    }
    let now = if begun.saturating_sub(until.left()) < clock.read_again_after {
        now(&rows)
    } else {
        let mut read = transaction.execute_query(Statement::builder(&*clock.now).build()).await?;
        now(read.next().await.transpose()?.as_slice())
    };
    Ok(now.map(|now| Found { now, rows }))
}
