//! The requests that travel together, on the connection that is reserved for them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Key, Result};
use tokio::time::Instant;

use super::entry::{Done, Entry, EntryKind};
use super::server::SqlServer;
use crate::Combine;
use crate::combiner::now;

pub(super) struct Lane<S> {
    server: Arc<S>,
    /// When its connections were last distrusted.
    distrusted: Mutex<Option<Instant>>,
}

impl<S> Lane<S> {
    pub(super) fn new(server: Arc<S>) -> Self {
        Self { server, distrusted: Mutex::default() }
    }
}

impl<S: SqlServer> Combine for Lane<S> {
    type Request = Arc<Entry>;
    type Reply = Done;
    type Kind = EntryKind;

    fn kind(entry: &Arc<Entry>) -> EntryKind {
        entry.kind()
    }

    fn key(entry: &Arc<Entry>) -> &Key {
        entry.key()
    }

    /// A late renewal revives nothing (C6), shortens nothing and reaches no lease of another id. A late acquire would take
    /// the key after its release, and a late release would end what was acquired after it.
    fn may_pass(entry: &Arc<Entry>, earlier: &Arc<Entry>) -> bool {
        let renews = entry.kind() == EntryKind::Renew;
        match &**earlier {
            // A later lease of its id may get its term, but not for ever.
            Entry::Renew(lease) => renews || lease.to().duration().is_some(),
            Entry::Acquire(_) | Entry::Release(_) => renews && entry.id() != earlier.id(),
        }
    }

    fn limit(&self) -> Duration {
        // For the connection, and for the exchange.
        2 * self.server.timeout()
    }

    fn distrust(&self) {
        let (now, pause) = (now(), self.server.timeout() / 5);
        let mut distrusted = self.distrusted.lock().unwrap_or_else(PoisonError::into_inner);
        // A server that is only slow must find the time to accept new ones.
        if distrusted.is_none_or(|last| now.saturating_duration_since(last) >= pause) {
            *distrusted = Some(now);
            drop(distrusted);
            self.server.distrust();
        }
    }

    async fn send(&self, entry: &Arc<Entry>) -> Option<Result<Done>> {
        self.server.send(entry).await
    }

    async fn send_together(&self, entries: &[Arc<Entry>]) -> Vec<Option<Result<Done>>> {
        self.server.send_together(entries).await
    }
}
