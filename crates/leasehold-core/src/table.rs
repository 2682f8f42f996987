//! Every rule of the contract that a store's state decides, as `apply(request, now) -> reply`.
//!
//! [`Table`] is the executable specification: the in-process store keeps one, the SQLite store loads the
//! named keys into one inside its transaction, and the conformance oracle compares every store with one.

mod acquire;
mod entry;
mod evict;
mod list;
mod release;
mod renew;
#[cfg(test)]
mod tests;

pub use entry::{Entry, Holder, State};

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::{Key, LeaseId, Now};

/// How long a counter is kept after the last grant of its key, by default: 30 days.
pub const FORGET_AFTER: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The longest time for which the mark of an evicted lease is kept for its holder.
const TELL_EVICTED_FOR: Duration = Duration::from_secs(60 * 60);

/// Keys, their counters and their holders.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Table {
    keys: BTreeMap<Key, Entry>,
    forget_after: Option<Duration>,
    margin: Duration,
    max_holders: Option<NonZeroU32>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            keys: BTreeMap::new(),
            forget_after: Some(FORGET_AFTER),
            margin: Duration::ZERO,
            max_holders: None,
        }
    }
}

impl Table {
    /// Sets how long a counter is kept; `None` for ever (C7).
    #[must_use]
    pub fn with_forget_after(mut self, forget_after: Option<Duration>) -> Self {
        self.forget_after = forget_after;
        self
    }

    /// Sets how long a record excludes others after its term has ended for its holder (C5).
    #[must_use]
    pub fn with_margin(mut self, margin: Duration) -> Self {
        self.margin = margin;
        self
    }

    /// Sets the most shared holders of one key; `None` is no limit (C9).
    #[must_use]
    pub fn with_max_holders(mut self, max_holders: Option<NonZeroU32>) -> Self {
        self.max_holders = max_holders;
        self
    }

    /// Sets the state of one key and replaces what was there.
    pub fn insert(&mut self, key: Key, entry: Entry) {
        self.keys.insert(key, entry);
    }

    /// The state of one key, if it has any.
    pub fn entry(&self, key: &Key) -> Option<&Entry> {
        self.keys.get(key)
    }

    /// All keys that have a state, in key order.
    pub fn entries(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.keys.iter()
    }

    /// True if a record of this table excludes others.
    pub fn excludes(&self, holder: &Holder, now: Now) -> bool {
        holder.excludes(now, self.margin)
    }

    /// The holder record of `id` on each of `keys`, in their order.
    fn holders<'a>(
        &'a self,
        id: &'a LeaseId,
        keys: impl Iterator<Item = &'a Key> + 'a,
    ) -> impl Iterator<Item = Option<&'a Holder>> + 'a {
        keys.map(move |key| self.keys.get(key).and_then(|entry| entry.holder(id)))
    }

    /// Drops the records of `id` on `keys` that `gone` selects.
    fn drop_holders<'a>(
        &mut self,
        id: &LeaseId,
        keys: impl Iterator<Item = &'a Key>,
        gone: impl Fn(&Holder) -> bool,
    ) {
        for key in keys {
            if let Some(entry) = self.keys.get_mut(key) {
                entry.holders.retain(|holder| holder.id.as_ref() != Some(id) || !gone(holder));
            }
        }
    }
}

/// Whether a counter of this value may be forgotten (C7). Its value is a time; one in the future is kept.
pub fn may_forget(counter: u64, wall_micros: u64, forget_after: Option<Duration>) -> bool {
    forget_after
        .is_some_and(|after| counter.saturating_add(crate::term::micros_up(after)) < wall_micros)
}
