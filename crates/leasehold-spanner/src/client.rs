//! How requests reach Spanner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use google_cloud_gax::retry_policy::NeverRetry;
use google_cloud_spanner::Result as Driven;
use google_cloud_spanner::client::DatabaseClient;
use google_cloud_spanner::mutation::Mutation;
use google_cloud_spanner::result::Row;
use google_cloud_spanner::statement::Statement;
use google_cloud_spanner::transaction::{BasicTransactionRetryPolicy, ReadWriteTransaction};
use google_cloud_spanner::types;
use leasehold_core::{Effect, Error, Result};
use leasehold_driver::{Deadline, outliving};
use tokio::sync::Semaphore;

use crate::error;
use crate::rows::Rows;
use crate::table::Sql;

/// After so long a wait for the rows, Spanner's clock is read again: the statement read it before the wait.
const SOON: Duration = Duration::from_millis(50);

/// The database, and who sends.
pub(crate) struct Client {
    pub(crate) requests: Sender,
    /// Renewals have channels and places of their own, so that load cannot starve a holder.
    pub(crate) renewals: Sender,
    pub(crate) sql: Arc<Sql>,
    pub(crate) server: String,
    pub(crate) timeout: Duration,
}

/// Who sends, and how many transactions may be under way.
pub(crate) struct Sender {
    pub(crate) database: DatabaseClient,
    pub(crate) lanes: Arc<Semaphore>,
}

/// What a transaction decides.
pub(crate) struct Decision<T> {
    pub(crate) reply: T,
    pub(crate) changes: Vec<Mutation>,
}

impl Client {
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline::after(self.timeout)
    }

    pub(crate) fn unanswered(&self, limit: Duration, effect: Effect) -> Error {
        error::unanswered(&self.server, limit, effect == Effect::Unknown)
    }

    /// Reads the rows of some keys and writes what `decide` changes, in one transaction that begins before `begin` and ends
    /// before `until`. One that is aborted begins anew. It runs on if its caller goes.
    pub(crate) async fn transact<T: Send + 'static>(
        &self,
        sender: &Sender,
        (begin, until): (Deadline, Deadline),
        keys: Vec<String>,
        decide: impl Fn(&Rows) -> Result<Decision<T>> + Send + Sync + 'static,
    ) -> Result<T> {
        let lane = begin.bound(Arc::clone(&sender.lanes).acquire_owned()).await;
        let Some(Ok(lane)) = lane else {
            return Err(self.unanswered(begin.limit(), Effect::NotApplied));
        };
        let runner = sender
            .database
            .read_write_transaction()
            .with_transaction_timeout(until.left())
            .with_rollback_retry_policy(NeverRetry)
            .with_retry_policy(BasicTransactionRetryPolicy::new().with_total_timeout(until.left()))
            .build();
        let (sql, server) = (Arc::clone(&self.sql), self.server.clone());
        let shared = Arc::new((keys, decide));
        // Boxed: the driver's futures are large, and are moved on their way.
        outliving(Box::pin(async move {
            let _lane = lane;
            let commits = Arc::new(AtomicBool::new(false));
            let committing = Arc::clone(&commits);
            let decided = runner.run(move |transaction: ReadWriteTransaction| {
                let (shared, sql) = (Arc::clone(&shared), Arc::clone(&sql));
                let commits = Arc::clone(&committing);
                async move {
                    commits.store(false, Ordering::Relaxed);
                    let (keys, decide) = &*shared;
                    let decided = match lock(&transaction, &sql, keys.clone(), until).await? {
                        Ok(rows) => decide(&rows),
                        Err(error) => Err(error),
                    };
                    Ok(match decided {
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
            match decided {
                Some(Ok(done)) => done.into_inner(),
                Some(Err(error)) => Err(error::of(&server, error, commits)),
                None => Err(error::unanswered(&server, until.limit(), commits)),
            }
        }))
        .await
    }

    /// The rows of a statement, as they are at one instant.
    pub(crate) async fn read(&self, statement: Statement, until: Deadline) -> Result<Vec<Row>> {
        let reading = Box::pin(async {
            let read = self.requests.database.single_use().build();
            let mut found = read.execute_query(statement).await?;
            let mut rows = Vec::new();
            while let Some(row) = found.next().await.transpose()? {
                rows.push(row);
            }
            Ok(rows)
        });
        let rows = until.bound(reading).await;
        let rows = rows.ok_or_else(|| self.unanswered(until.limit(), Effect::NotApplied))?;
        rows.map_err(|error| error::of(&self.server, error, false))
    }
}

/// The rows of some keys, locked until the transaction ends.
async fn lock(
    transaction: &ReadWriteTransaction,
    sql: &Sql,
    keys: Vec<String>,
    until: Deadline,
) -> Driven<Result<Rows>> {
    let statement = Statement::builder(&*sql.lock)
        .add_typed_param("keys", keys, types::array(types::string()))
        .build();
    let begun = until.left();
    let mut found = transaction.execute_query(statement).await?;
    let mut rows = Rows::default();
    while let Some(row) = found.next().await.transpose()? {
        if let Err(error) = rows.add(&row) {
            return Ok(Err(error));
        }
    }
    if begun.saturating_sub(until.left()) < SOON {
        return Ok(Ok(rows));
    }
    let mut now = transaction.execute_query(Statement::builder(&*sql.now).build()).await?;
    let read = match now.next().await.transpose()? {
        Some(row) => rows.read_again(&row),
        None => Err(Error::unexpected("Spanner sent no row with its clock")),
    };
    Ok(read.map(|()| rows))
}
