//! What all operations share.

use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::Duration;

use leasehold_core::{Capabilities, Feature, Key, Mode, Now, Result, Table, Wakeups};
use leasehold_driver::Deadline;

use crate::commands::Commands;
use crate::record::Skew;
use crate::server::Server;
use crate::shapes::Shapes;
use crate::wakeups::Watch;

/// The store's name, as in its URL.
pub(crate) const NAME: &str = "mongodb";

pub(crate) struct Inner {
    pub(crate) commands: Commands,
    pub(crate) server: Server,
    pub(crate) skew: Skew,
    pub(crate) forget_after: Option<Duration>,
    pub(crate) max_holders: NonZeroU32,
    /// Where the next purge continues, so that a small one need not begin at the start.
    pub(crate) purged_to: Mutex<Option<Key>>,
    pub(crate) watch: Watch,
    pub(crate) shapes: Shapes,
}

impl Inner {
    pub(crate) fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::all(NAME);
        // Connecting refuses an unfit server, and each write names the index that it needs.
        can.checks_on_use = true;
        can.many_keys = self.server.is_replicated;
        can.notifications = self.server.is_replicated;
        // Another client's garbage collection may forget a counter at any time.
        can.raise = self.skew.0.is_zero();
        can.margin = self.skew.0;
        can.text_ids = true;
        can.max_holders = Some(self.max_holders);
        can.reasons = REASONS;
        can
    }

    /// The rules for the keys of the collection.
    pub(crate) fn rules(&self) -> Table {
        Table::default().with_margin(self.skew.0).with_max_holders(Some(self.max_holders))
    }

    /// Whether a term that ended then was over when its renewal was written. The server reads its clock before it waits for
    /// other writers of a document (C6), so a command that took long asks for the time again.
    pub(crate) async fn was_over(
        &self,
        ended: Option<Duration>,
        now: Now,
        took: Duration,
        until: Deadline,
    ) -> Result<bool> {
        match ended {
            Some(ended) if now.boot + took >= ended => {
                Ok(self.commands.now(until).await?.boot >= ended)
            }
            _ => Ok(false),
        }
    }

    pub(crate) async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        if !self.server.is_replicated {
            return Ok(Wakeups::none());
        }
        self.watch.subscribe(keys).await
    }

    pub(crate) fn limited(&self, mode: Mode) -> Mode {
        mode.limited_to(Some(self.max_holders))
    }
}

const REASONS: &[(Feature, &str)] = &[
    (
        Feature::ManyKeys,
        "a server that is no member of a replica set has no transactions; make it a replica set of one",
    ),
    (
        Feature::Raise,
        "clients of mongo-lock delete counters; state by the option skew=0 that none is left in the collection",
    ),
];

/// What was left of a term that ends at `end`, when the server looked.
pub(crate) fn rest(end: Duration, now: Now) -> Duration {
    end.saturating_sub(now.boot)
}
