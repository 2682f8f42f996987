//! What all operations share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::{Effect, Error, Result};
use leasehold_driver::Combiner;
use tokio_postgres::Row;

use crate::call::{Statement, micros};
use crate::error;
use crate::lane::{Done, Entry, Lane};
use crate::listener::Listener;
use crate::pool::{Links, Unanswered};
use crate::position::Position;
use crate::server::Server;
use crate::sql::{SchemaName, Sql};

/// The store's name, as in its URL.
pub(crate) const NAME: &str = "postgres";

/// The most requests that travel together.
const MOST: usize = 1_000;

pub(crate) struct Inner {
    pub(crate) links: Links,
    pub(crate) sql: Arc<Sql>,
    lane: Combiner<Lane>,
    pub(crate) listener: Option<Listener>,
    /// In microseconds.
    pub(crate) forget_after: Option<i64>,
    /// Where the next purge continues, so that a small one need not begin at the start.
    pub(crate) purged_to: Mutex<Position>,
}

impl Inner {
    pub(crate) fn new(
        links: Links,
        schema: SchemaName,
        forget_after: Option<Duration>,
        waker: Option<Server>,
    ) -> Self {
        let sql = Arc::new(Sql::new(schema));
        let lane = Combiner::new(Lane::new(links.clone(), Arc::clone(&sql)), MOST);
        let listener = waker.map(|server| Listener::new(server, links.clone(), Arc::clone(&sql)));
        let (forget_after, purged_to) = (forget_after.map(micros), Mutex::default());
        Self { links, sql, lane, listener, forget_after, purged_to }
    }

    /// Sends an entry with others. `None` if it did not act, and must be sent apart.
    pub(crate) async fn together(&self, entry: Entry) -> Option<Result<Done>> {
        let limit = self.links.timeout;
        match tokio::time::timeout(limit, self.lane.send(entry)).await {
            Ok(done) => done,
            Err(_) => {
                self.lane.restart();
                Some(Err(error::unanswered(&self.links.server, limit)))
            }
        }
    }

    /// The rows of a statement that has a connection for itself; it runs to its end even if this future is dropped
    /// (C15). `None` if somebody else's transaction held the row for the whole time limit.
    pub(crate) async fn apart(
        self: &Arc<Self>,
        statement: impl Statement,
    ) -> Result<Option<Vec<Row>>> {
        let this = Arc::clone(self);
        #[expect(clippy::disallowed_methods, reason = "a request outlives its caller (C15)")]
        let task = tokio::spawn(async move { this.patiently(&statement).await });
        task.await.unwrap_or_else(|e| {
            Err(Error::unavailable(Effect::Unknown, "the request's task ended").with_source(e))
        })
    }

    /// As [`apart`](Self::apart), for statements that wait for no row.
    pub(crate) async fn read(self: &Arc<Self>, statement: impl Statement) -> Result<Vec<Row>> {
        let rows = self.apart(statement).await?;
        rows.ok_or_else(|| locked(&self.links.server))
    }

    async fn patiently(&self, statement: &impl Statement) -> Result<Option<Vec<Row>>> {
        let server = &self.links.server;
        let end = tokio::time::sleep(self.links.timeout);
        tokio::pin!(end);
        loop {
            let left = end.deadline().saturating_duration_since(now());
            if left.is_zero() {
                return Err(locked(server));
            }
            let link = self.links.get().await?;
            // The server gives up first, so that the outcome is known.
            let patience = Some((left * 3 / 4).as_millis().max(1).to_string());
            let call = statement.call(&self.sql, &patience);
            match self.links.ask(link, left, &call).await.1 {
                Ok(rows) => return Ok(Some(rows)),
                // Rolled back because of another transaction, which is about to end.
                Err(Unanswered::Server(e)) if error::is_conflict(&e) => {}
                Err(Unanswered::Server(e)) if error::is_locked(&e) => return Ok(None),
                Err(failure) => return Err(failure.into_error(server)),
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the driver's own timers count on this clock")]
fn now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// The error of a request that waited for a row in vain.
pub(crate) fn locked(server: &str) -> Error {
    let message = format!("{server}: another transaction holds the row of the key for too long");
    Error::unavailable(Effect::NotApplied, message)
}
