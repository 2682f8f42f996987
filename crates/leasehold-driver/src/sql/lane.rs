//! The requests that travel together, on the connection that is reserved for them.

use std::sync::Arc;

use leasehold_core::{Key, Result};

use super::entry::{Done, Entry, EntryKind};
use super::server::SqlServer;
use crate::Combine;

pub(super) struct Lane<S>(pub(super) Arc<S>);

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

    async fn send(&self, entry: &Arc<Entry>) -> Option<Result<Done>> {
        self.0.send(entry).await
    }

    async fn send_together(&self, entries: &[Arc<Entry>]) -> Vec<Option<Result<Done>>> {
        self.0.send_together(entries).await
    }
}
