//! What all operations share.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Clock, Result};

use crate::config::{Location, NAME, SqliteConfig};
use crate::database::Database;
use crate::limit::Limit;
use crate::rows::Rows;
use crate::watch::Watch;
use crate::worker::Worker;

pub(crate) struct Inner {
    worker: Worker,
    pub(crate) location: Location,
    pub(crate) clock: Arc<dyn Clock>,
    timeout: Duration,
    pub(crate) watch: Watch,
}

impl Inner {
    pub(crate) async fn start(config: SqliteConfig) -> Result<Self> {
        let (location, clock, timeout) =
            (config.location.clone(), Arc::clone(&config.clock), config.timeout);
        let limit = Limit::start(&*clock, timeout);
        let open = move |limit| Database::open(config.clone(), limit);
        let worker = Worker::start(location.to_string(), Arc::clone(&clock), limit, open)
            .await
            .map_err(|e| e.with_context(NAME, "connect"))?;
        Ok(Self { worker, location, clock, timeout, watch: Watch::default() })
    }

    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Database, Limit) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run_within(self.limit(), job).await
    }

    /// Runs a job that writes inside a transaction, which it may share with others; if that is rolled back, it runs
    /// again.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        job: impl FnMut(&Rows<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.worker.write(self.limit(), job).await
    }

    pub(crate) async fn run_within<T: Send + 'static>(
        &self,
        limit: Limit,
        job: impl FnOnce(&mut Database, Limit) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let job = move |database: &mut Database| job(database, limit);
        self.worker.run(limit, job).await
    }

    pub(crate) fn limit(&self) -> Limit {
        Limit::start(&*self.clock, self.timeout)
    }

    /// Waits until everything sent is done, and closes the file until it is used again. A database in memory would be lost.
    pub(crate) async fn disconnect(&self) {
        match self.location {
            Location::Memory => drop(self.run(|_, _| Ok(())).await),
            Location::File(_) => {
                self.watch.closed().await;
                self.worker.disconnect(self.limit()).await;
            }
        }
    }

    pub(crate) async fn close(self) {
        self.watch.closed().await;
        self.worker.close().await;
    }
}
