//! Every rule of the contract that a store's state decides, as `apply(request, now) -> reply`.
//!
//! [`Table`] is the executable specification: the stores in process, in SQLite and in Spanner take the named keys into one,
//! under a mutex or inside a transaction, and the conformance oracle compares every store with one.
//!
//! A table keeps one high-water mark for all keys and not a counter for each, so nothing remains of a key that
//! nobody holds (C7).

mod acquire;
mod entry;
mod evict;
mod list;
mod release;
mod renew;
#[cfg(test)]
mod tests;

pub use acquire::grant_unheld;
pub use entry::{Holder, State};

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::{Key, LeaseId, Now};

/// How long a store with a counter per key keeps it after the last grant of the key, by default: 30 days.
pub const FORGET_AFTER: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The longest time for which the mark of an evicted lease is kept for its holder.
const TELL_EVICTED_FOR: Duration = Duration::from_secs(60 * 60);

/// The longest time for which a table remembers a lease after its term, to tell its holder how it ended.
pub const TELL_EXPIRED_FOR: Duration = Duration::from_secs(60 * 60);

/// The greatest token that the wall clock alone gives, in the year 2112: half of all tokens remain above it.
const MOST_OF_CLOCK: u64 = 1 << 52;

/// By how much a raise may exceed the mark, or what the clock may give: one value near the end would end every key.
const MOST_RAISE: u64 = 1 << 32;

/// The holders of keys, and the high-water mark of all tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Table {
    mark: u64,
    /// Keys with a record.
    keys: BTreeMap<Key, Vec<Holder>>,
    margin: Duration,
    max_holders: Option<NonZeroU32>,
}

impl Table {
    /// Sets the mark: the next token is above it (C7).
    #[must_use]
    pub fn with_mark(mut self, mark: u64) -> Self {
        self.mark = mark;
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

    /// Sets the records of one key, at most one for each lease, and replaces what was there.
    pub fn insert(&mut self, key: Key, holders: Vec<Holder>) {
        if holders.is_empty() {
            self.keys.remove(&key);
        } else {
            self.keys.insert(key, holders);
        }
    }

    /// The highest token of any key; 0 if there never was one.
    pub fn mark(&self) -> u64 {
        self.mark
    }

    /// The records of one key, in the order of their grants.
    pub fn holders(&self, key: &Key) -> &[Holder] {
        self.keys.get(key).map_or(&[], Vec::as_slice)
    }

    /// All keys that have a record, in key order.
    pub fn entries(&self) -> impl Iterator<Item = (&Key, &[Holder])> {
        self.keys.iter().map(|(key, holders)| (key, holders.as_slice()))
    }

    /// Takes the table apart: all keys that have a record, in key order, with their records.
    pub fn into_entries(self) -> impl Iterator<Item = (Key, Vec<Holder>)> {
        self.keys.into_iter()
    }

    /// Removes what is remembered of leases whose term ended [`TELL_EXPIRED_FOR`] ago. Looks at every key.
    pub fn forget(&mut self, now: Now) {
        self.retain(|_, holder| !holder.is_forgotten(now));
    }

    /// True if a record of this table excludes others.
    pub fn excludes(&self, holder: &Holder, now: Now) -> bool {
        holder.excludes(now, self.margin)
    }

    /// The holder record of `id` on each of `keys`, in their order.
    fn of_lease<'a>(
        &'a self,
        id: &'a LeaseId,
        keys: impl Iterator<Item = &'a Key> + 'a,
    ) -> impl Iterator<Item = Option<&'a Holder>> + 'a {
        keys.map(move |key| self.holders(key).iter().find(|holder| holder.id.as_ref() == Some(id)))
    }

    fn of_lease_mut(&mut self, id: &LeaseId, key: &Key) -> Option<&mut Holder> {
        let mut holders = self.keys.get_mut(key)?.iter_mut();
        holders.find(|holder| holder.id.as_ref() == Some(id))
    }

    /// Drops the records of `id` on `keys` that `gone` selects.
    fn drop_holders<'a>(
        &mut self,
        id: &LeaseId,
        keys: impl Iterator<Item = &'a Key>,
        gone: impl Fn(&Holder) -> bool,
    ) {
        for key in keys {
            if let Some(holders) = self.keys.get_mut(key) {
                holders.retain(|holder| holder.id.as_ref() != Some(id) || !gone(holder));
                if holders.is_empty() {
                    self.keys.remove(key);
                }
            }
        }
    }

    fn retain(&mut self, mut keep: impl FnMut(&Key, &Holder) -> bool) {
        self.keys.retain(|key, holders| {
            holders.retain(|holder| keep(key, holder));
            !holders.is_empty()
        });
    }
}

/// Whether a store with a counter per key may forget one of this value (C7). Its value is a time; one in the future is kept.
pub fn may_forget(counter: u64, wall_micros: u64, forget_after: Option<Duration>) -> bool {
    forget_after
        .is_some_and(|after| counter.saturating_add(crate::term::micros_up(after)) < wall_micros)
}
