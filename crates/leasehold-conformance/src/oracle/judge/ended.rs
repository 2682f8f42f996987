//! What a store still knows of leases that have ended. It may forget at the latest an hour after the term.

use std::collections::BTreeSet;

use leasehold_core::table::{Holder, State, TELL_EXPIRED_FOR};
use leasehold_core::{EvictTarget, Key, LeaseId, LostReason, RenewEntry};

use super::{Comparison, Judge, Name, differs, same};

impl Judge<'_> {
    pub(super) fn lost(
        &mut self,
        lease: &RenewEntry,
        found: Option<&LostReason>,
        expected: Option<&LostReason>,
    ) -> Comparison {
        let marked = |key: &Key| self.marks.get(&(key.clone(), lease.id().clone()));
        // A mark that the table itself may drop at any time need not exist.
        let is_marked = |key: &Key| {
            self.table.holders(key).iter().any(|holder| {
                holder.id.as_ref() == Some(lease.id())
                    && matches!(holder.state, State::Evicted(_))
                    && holder.expires.is_none_or(|end| self.now.boot < end)
            })
        };
        let must_tell = match expected {
            Some(LostReason::Evicted(_)) => {
                self.reports.evicted && lease.claims().keys().any(is_marked)
            }
            Some(LostReason::Expired) => {
                self.can.reports_expired && self.remembers(lease.id(), lease.claims().keys())
            }
            _ => false,
        };
        self.replies.0.push(match expected {
            Some(LostReason::Evicted(_)) => "lost: evicted",
            Some(LostReason::Expired) => "lost: expired",
            _ => "lost",
        });
        match found {
            found if found == expected => Ok(()),
            None | Some(LostReason::Gone) if !must_tell => Ok(()),
            // Of a lease whose mark is gone, other keys may have a record that is over.
            Some(LostReason::Expired) if !must_tell && self.has_expired(lease) => Ok(()),
            Some(LostReason::Evicted(why))
                if lease.claims().keys().any(|key| marked(key) == Some(why)) =>
            {
                Ok(())
            }
            found => differs(&found, &expected),
        }
    }

    /// Both name the same records; a store that does not remember expired ones may name fewer.
    pub(super) fn targets(
        &self,
        found: &[EvictTarget],
        expected: &[EvictTarget],
        gone: &BTreeSet<Name>,
    ) -> Comparison {
        let names = |targets: &[EvictTarget]| -> BTreeSet<Name> {
            targets.iter().map(|target| (target.key.clone(), target.id.clone())).collect()
        };
        let (found, mut expected) = (names(found), names(expected));
        if !self.can.reports_expired && found.is_subset(&expected) {
            return Ok(());
        }
        expected.retain(|name| found.contains(name) || !gone.contains(name));
        same("what was removed", found, expected)
    }

    /// The records that a store may have forgotten by now, however well it remembers.
    pub(super) fn may_be_gone(&self) -> BTreeSet<Name> {
        let records = self.table.entries().flat_map(|(key, holders)| {
            holders
                .iter()
                .filter(|holder| self.is_forgotten(holder))
                .map(move |holder| (key, holder))
        });
        records.map(|(key, holder)| (key.clone(), holder.id.clone())).collect()
    }

    fn is_forgotten(&self, holder: &Holder) -> bool {
        holder.expires.is_some_and(|end| end + TELL_EXPIRED_FOR <= self.now.boot + self.slack)
    }

    fn has_expired(&self, lease: &RenewEntry) -> bool {
        lease.claims().keys().flat_map(|key| self.table.holders(key)).any(|holder| {
            holder.id.as_ref() == Some(lease.id())
                && holder.state == State::Held
                && holder.expires.is_some_and(|end| end <= self.now.boot)
        })
    }

    /// Whether the lease ended so recently on one of the keys that the store must remember it.
    pub(super) fn remembers<'a>(
        &self,
        id: &LeaseId,
        mut keys: impl Iterator<Item = &'a Key>,
    ) -> bool {
        keys.any(|key| {
            self.table.holders(key).iter().any(|holder| {
                holder.id.as_ref() == Some(id)
                    && holder.expires.is_some_and(|end| end <= self.now.boot)
                    && !self.is_forgotten(holder)
            })
        })
    }
}
