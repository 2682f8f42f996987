//! Who may keep a connection while it waits for a row.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// How long a request may keep a connection that waits for a row, unless it has a turn to wait.
pub(crate) const BRIEF: Duration = Duration::from_millis(100);

/// The turns of requests on connections of their own. Each may have to wait for a row that somebody else's transaction
/// holds. At least one connection, of more than one, is never kept by such a wait and never used by an acquire, so that
/// renewals, releases, lists, evictions and checks continue.
#[derive(Debug, Clone)]
pub(crate) struct RowWaits {
    acquires: Arc<Turns>,
    others: Arc<Turns>,
}

/// The turns of one kind of requests.
#[derive(Debug)]
pub(crate) struct Turns {
    /// To use a connection.
    pub(crate) connections: Semaphore,
    /// To wait for a row with it.
    pub(crate) waits: Semaphore,
    /// To try again after a brief wait in vain.
    retries: Semaphore,
}

impl Turns {
    fn new(connections: usize, waits: usize) -> Arc<Self> {
        let [connections, waits, retries] = [connections, waits, 1].map(Semaphore::new);
        Arc::new(Self { connections, waits, retries })
    }

    /// A turn to try again, one request after the other. Between their tries the connection is free for as long as a
    /// try may keep it.
    pub(crate) async fn again(&self) -> Option<SemaphorePermit<'_>> {
        let turn = self.retries.acquire().await.ok()?;
        tokio::time::sleep(BRIEF).await;
        Some(turn)
    }
}

impl RowWaits {
    /// For so many connections, of which so many may be kept by waits.
    pub(crate) fn new(connections: usize, waits: usize) -> Self {
        Self {
            acquires: Turns::new(connections.saturating_sub(1).max(1), waits.saturating_sub(1)),
            others: Turns::new(Semaphore::MAX_PERMITS, waits.min(1)),
        }
    }

    pub(crate) fn of_acquires(&self) -> &Turns {
        &self.acquires
    }

    pub(crate) fn of_others(&self) -> &Turns {
        &self.others
    }
}
