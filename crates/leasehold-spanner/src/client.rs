//! How requests reach Spanner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use google_cloud_spanner::client::DatabaseClient;
use google_cloud_spanner::mutation::Mutation;
use google_cloud_spanner::result::Row;
use google_cloud_spanner::statement::Statement;
use google_cloud_spanner::transaction::{BasicTransactionRetryPolicy, ReadWriteTransaction};
use google_cloud_spanner::types;
use leasehold_core::{Effect, Error, Result};
use leasehold_driver::{Deadline, outliving};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error;
use crate::rows::Rows;
use crate::table::Sql;

/// How long a rollback may take, which only ends locks sooner.
const ROLLBACK: Duration = Duration::from_secs(1);

/// The database, and who sends.
pub(crate) struct Client {
    pub(crate) requests: DatabaseClient,
    /// Renewals have channels of their own, so that load cannot starve a holder.
    pub(crate) renewals: DatabaseClient,
    pub(crate) sql: Arc<Sql>,
    pub(crate) server: String,
    pub(crate) timeout: Duration,
    /// How many transactions may be under way.
    pub(crate) lanes: Arc<Semaphore>,
}

/// A place among the transactions that are under way.
pub(crate) struct Lane(
    #[expect(dead_code, reason = "its drop gives it back")] OwnedSemaphorePermit,
);

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
        let message = format!("{} did not answer within {limit:?}", self.server);
        Error::unavailable(effect, message)
    }

    /// A place among the transactions that are under way.
    pub(crate) async fn lane(&self, begin: Deadline) -> Result<Lane> {
        let lane = begin.bound(Arc::clone(&self.lanes).acquire_owned()).await;
        let unanswered = || self.unanswered(begin.limit(), Effect::NotApplied);
        lane.and_then(Result::ok).map(Lane).ok_or_else(unanswered)
    }

    /// Reads the rows of some keys and writes what `decide` changes, in one transaction. A transaction that is aborted begins anew
    /// until the deadline. It runs on if its caller goes: a transaction that is dropped keeps its locks.
    pub(crate) async fn transact<T: Send + 'static>(
        &self,
        (lane, until): (Lane, Deadline),
        database: &DatabaseClient,
        keys: Vec<String>,
        decide: impl Fn(&Rows) -> Result<Decision<T>> + Send + Sync + 'static,
    ) -> Result<T> {
        let runner = database
            .read_write_transaction()
            .with_transaction_timeout(until.left())
            .with_rollback_attempt_timeout(ROLLBACK)
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
                    let statement = Statement::builder(&*sql.lock)
                        .add_typed_param("keys", keys.clone(), types::array(types::string()))
                        .build();
                    let mut found = transaction.execute_query(statement).await?;
                    let mut rows = Rows::default();
                    while let Some(row) = found.next().await.transpose()? {
                        if let Err(error) = rows.add(&row) {
                            return Ok(Err(error));
                        }
                    }
                    Ok(match decide(&rows) {
                        Ok(Decision { reply, changes }) => {
                            commits.store(!changes.is_empty(), Ordering::Relaxed);
                            transaction.buffer(changes)?;
                            Ok(reply)
                        }
                        Err(error) => Err(error),
                    })
                }
            });
            match Box::pin(decided).await {
                Ok(done) => done.into_inner(),
                Err(error) => Err(error::of(&server, error, commits.load(Ordering::Relaxed))),
            }
        }))
        .await
    }

    /// The rows of a statement, as they are at one instant.
    pub(crate) async fn read(&self, statement: Statement, until: Deadline) -> Result<Vec<Row>> {
        let reading = Box::pin(async {
            let read = self.requests.single_use().build();
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
