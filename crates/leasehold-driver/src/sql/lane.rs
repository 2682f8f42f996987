//! The requests that travel together, on the connection that is reserved for them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Key, Result};
use tokio::time::Instant;

use super::entry::{Done, Entry, EntryKind};
use super::server::SqlServer;
use crate::combiner::now;
use crate::{Combine, Deadline};

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
    /// With the deadline of its caller.
    type Request = (Arc<Entry>, Deadline);
    type Reply = Done;
    type Kind = EntryKind;

    fn kind((entry, _): &Self::Request) -> EntryKind {
        entry.kind()
    }

    fn key((entry, _): &Self::Request) -> &Key {
        entry.key()
    }

    /// A late renewal revives nothing (C6), shortens nothing and reaches no lease of another id. A late acquire would take
    /// the key after its release, and a late release would end what was acquired after it.
    fn may_pass((entry, _): &Self::Request, (earlier, _): &Self::Request) -> bool {
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

    async fn send(&self, (entry, until): &Self::Request) -> Option<Result<Done>> {
        self.server.send(entry, until.earlier()).await
    }

    async fn send_together(&self, requests: &[Self::Request]) -> Vec<Option<Result<Done>>> {
        let (entries, deadlines): (Vec<_>, Vec<_>) = requests.iter().cloned().unzip();
        // What has no connection by then can still be sent apart, and did not act.
        let first = deadlines.into_iter().min_by_key(|until| until.left());
        let Some(until) = first else { return Vec::new() };
        self.server.send_together(&entries, until.earlier()).await
    }
}
