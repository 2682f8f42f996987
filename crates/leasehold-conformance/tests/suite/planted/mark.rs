//! One mark in place of a counter for each key.

use leasehold_core::{Error, Key, RenewEntry, Result};

use super::bug::Bug;
use super::rows::{At, Rows};

const HOUR: u64 = 3_600_000_000;

impl Rows {
    /// The key under which the counter of a key is kept.
    pub(crate) fn counted(&self, key: &Key) -> Key {
        if self.marked { Key::new("mark").expect("it is a key") } else { key.clone() }
    }

    pub(crate) fn mark(&self) -> u64 {
        self.counters.values().copied().max().unwrap_or(0)
    }

    pub(crate) fn admit_raise(&self, renewal: &RenewEntry) -> Result<()> {
        let most = self.mark().max(1 << 52) + (1 << 32);
        let is_high = renewal.raise().is_some_and(|raise| raise.get() > most);
        if self.marked && is_high && !self.has(Bug::RaiseUsesUpAllTokens) {
            return Err(Error::invalid_input("a raise far above all tokens"));
        }
        Ok(())
    }

    /// Forgets what ended an hour ago.
    pub(crate) fn forget(&mut self, at: At) {
        if self.marked && !self.has(Bug::EndedLeaseIsRememberedForLong) {
            self.rows.retain(|row| row.until.saturating_add(HOUR) > at.boot);
        }
    }
}
