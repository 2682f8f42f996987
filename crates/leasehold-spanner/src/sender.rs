//! Who sends requests, on connections of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use google_cloud_spanner::client::DatabaseClient;
use leasehold_core::{BoxFuture, Result};
use leasehold_driver::Deadline;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

/// Connects to the database.
pub(crate) type Connect = Arc<dyn Fn() -> BoxFuture<'static, Result<DatabaseClient>> + Send + Sync>;

/// The driver's client, which is replaced after a request without an answer: the driver does not notice by itself that a connection is
/// dead, and would use it until the operating system gives it up. Cheap to clone; clones share the client.
#[derive(Clone)]
pub(crate) struct Sender {
    connection: Arc<Mutex<Connection>>,
    connect: Connect,
    /// Counts the clients that shall not be used any more.
    retired: Arc<AtomicU64>,
    lanes: Arc<Semaphore>,
}

struct Connection {
    number: u64,
    client: DatabaseClient,
}

impl Sender {
    /// Connects. At most so many transactions are under way, with those of others that share `lanes`.
    pub(crate) async fn new(connect: Connect, lanes: Arc<Semaphore>) -> Result<Self> {
        let connection = Arc::new(Mutex::new(Connection { number: 0, client: connect().await? }));
        Ok(Self { connection, connect, retired: Arc::default(), lanes })
    }

    /// A place for a transaction; `None` if there is none in time.
    pub(crate) async fn lane(&self, until: Deadline) -> Option<OwnedSemaphorePermit> {
        until.bound(Arc::clone(&self.lanes).acquire_owned()).await?.ok()
    }

    /// The client, and its number; a new one if the last one is retired. `None` if there is none in time.
    pub(crate) async fn client(&self, until: Deadline) -> Option<Result<(u64, DatabaseClient)>> {
        until
            .bound(async {
                let mut connection = self.connection.lock().await;
                let retired = self.retired.load(Ordering::Relaxed);
                if connection.number < retired {
                    *connection = Connection { number: retired, client: (self.connect)().await? };
                }
                Ok((connection.number, connection.client.clone()))
            })
            .await
    }

    /// Lets no later request use the client of this number.
    pub(crate) fn retire(&self, number: u64) {
        self.retired.fetch_max(number + 1, Ordering::Relaxed);
    }

    /// Lets no later request use the present client.
    pub(crate) fn retire_present(&self) {
        if let Ok(connection) = self.connection.try_lock() {
            self.retire(connection.number);
        }
    }
}
