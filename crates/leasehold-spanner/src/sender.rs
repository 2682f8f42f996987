//! Who sends requests, on connections of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use google_cloud_spanner::Error as Failure;
use google_cloud_spanner::client::DatabaseClient;
use leasehold_core::term::micros_up;
use leasehold_core::{BoxFuture, Clock as _, Result};
use leasehold_driver::{Deadline, SystemClock, outliving};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, oneshot};

use crate::error;

/// Connects to the database.
pub(crate) type Connect = Arc<dyn Fn() -> BoxFuture<'static, Result<DatabaseClient>> + Send + Sync>;

/// After how long a client may be replaced although it has answered others: one of its channels may be dead.
const AGAIN_AFTER: Duration = Duration::from_secs(30);

/// The driver's client, which is replaced after a request without an answer: the driver does not notice by itself that a connection is
/// dead, and would use it until the operating system gives it up. Cheap to clone; clones share the client.
#[derive(Clone)]
pub(crate) struct Sender {
    connection: Arc<Mutex<Connection>>,
    connect: Connect,
    /// Counts the clients that shall not be used any more.
    retired: Arc<AtomicU64>,
    /// When Spanner last answered.
    answered: Arc<AtomicU64>,
    /// When a client was last retired.
    replaced: Arc<AtomicU64>,
    clock: Arc<SystemClock>,
    lanes: Arc<Semaphore>,
}

struct Connection {
    number: u64,
    client: DatabaseClient,
    /// Ends the task of [`RetiresAtTheEnd`].
    _stays: oneshot::Sender<()>,
}

/// Retires a client when the runtime ends that drives its connections: a task of it drops this.
struct RetiresAtTheEnd {
    number: u64,
    retired: Arc<AtomicU64>,
}

impl Drop for RetiresAtTheEnd {
    fn drop(&mut self) {
        self.retired.fetch_max(self.number + 1, Ordering::Relaxed);
    }
}

impl Connection {
    async fn new(connect: &Connect, number: u64, retired: &Arc<AtomicU64>) -> Result<Self> {
        let client = connect().await?;
        let (stays, gone) = oneshot::channel();
        let retires = RetiresAtTheEnd { number, retired: Arc::clone(retired) };
        drop(outliving(async move {
            let _retires = retires;
            drop(gone.await);
            Ok(())
        }));
        Ok(Self { number, client, _stays: stays })
    }
}

impl Sender {
    /// Connects. At most so many transactions are under way, with those of others that share `lanes`.
    pub(crate) async fn new(connect: Connect, lanes: Arc<Semaphore>) -> Result<Self> {
        let retired = Arc::default();
        let connection = Arc::new(Mutex::new(Connection::new(&connect, 0, &retired).await?));
        Ok(Self {
            connection,
            connect,
            retired,
            answered: Arc::default(),
            replaced: Arc::default(),
            clock: Arc::default(),
            lanes,
        })
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
                    *connection = Connection::new(&self.connect, retired, &self.retired).await?;
                }
                Ok((connection.number, connection.client.clone()))
            })
            .await
    }

    /// Notes that Spanner has answered something.
    pub(crate) fn note_answer(&self) {
        self.answered.fetch_max(self.micros(), Ordering::Relaxed);
    }

    /// Now, for [`judge`](Self::judge).
    pub(crate) fn micros(&self) -> u64 {
        micros_up(self.clock.now())
    }

    /// Judges the client of this number by a request that began then, and has ended with or without a failure, or not in time.
    /// If the client has answered another request meanwhile, either Spanner is slow or one channel of several is dead: it is replaced,
    /// but not all the time.
    pub(crate) fn judge(&self, number: u64, begun: u64, ended: Option<Option<&Failure>>) {
        let is_dead = match ended {
            Some(None) => false,
            Some(Some(failure)) if error::is_session_gone(failure) => true,
            Some(Some(failure)) if !error::is_unanswered(failure) => false,
            _ => {
                let again_from = self.replaced.load(Ordering::Relaxed) + micros_up(AGAIN_AFTER);
                self.answered.load(Ordering::Relaxed) < begun || again_from < self.micros()
            }
        };
        if is_dead {
            self.replaced.fetch_max(self.micros(), Ordering::Relaxed);
            self.retired.fetch_max(number + 1, Ordering::Relaxed);
        } else if matches!(ended, Some(None)) {
            self.note_answer();
        }
    }
}
