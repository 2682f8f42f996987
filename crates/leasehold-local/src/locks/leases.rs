use std::num::NonZeroU32;

use hashbrown::HashTable;
use leasehold_core::Mode;
use leasehold_core::table::{Holder as Record, State};

use super::holder::{Instant, NEVER, nanos};
use super::keys::Claim;
use super::room::trim;

/// The records that a store keeps of its leases on the keys of one shard. An expired or evicted one excludes nobody.
#[derive(Debug)]
pub(super) struct Leases<K>(HashTable<Leased<K>>);

/// A key with records of leases.
#[derive(Debug)]
pub(super) struct Leased<K> {
    pub(super) key: K,
    pub(super) hash: u64,
    pub(super) records: Vec<Record>,
}

impl<K> Default for Leases<K> {
    fn default() -> Self {
        Self(HashTable::new())
    }
}

impl<K: Eq + Clone> Leases<K> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The records of a key; a table without a store looks nothing up.
    pub(super) fn of(&self, claim: &Claim<K>) -> &[Record] {
        if self.is_empty() {
            return &[];
        }
        let leased = self.0.find(claim.hash, |leased| leased.key == claim.key);
        leased.map_or(&[], |leased| &leased.records)
    }

    /// True if there is a record of the key, live or not.
    #[inline]
    pub(super) fn has(&self, claim: &Claim<K>) -> bool {
        !self.is_empty() && !self.of(claim).is_empty()
    }

    /// Takes the records of a key out.
    pub(super) fn take(&mut self, claim: &Claim<K>) -> Vec<Record> {
        match self.0.find_entry(claim.hash, |leased| leased.key == claim.key) {
            Ok(leased) => leased.remove().0.records,
            Err(_) => Vec::new(),
        }
    }

    /// Takes the only record of a key out if `is_it`; true if it was.
    pub(super) fn take_only(
        &mut self,
        hash: u64,
        key: &K,
        is_it: impl FnOnce(&Record) -> bool,
    ) -> bool {
        let Ok(leased) = self.0.find_entry(hash, |leased| leased.key == *key) else { return false };
        let is_it = matches!(&leased.get().records[..], [only] if is_it(only));
        if is_it {
            leased.remove();
            self.trim();
        }
        is_it
    }

    /// Puts the records of a key back, of which there are none.
    pub(super) fn put(&mut self, key: K, hash: u64, records: Vec<Record>) {
        self.0.insert_unique(hash, Leased { key, hash, records }, |leased| leased.hash);
    }

    /// Gives room back after a peak.
    pub(super) fn trim(&mut self) {
        trim(&mut self.0, |leased| leased.hash);
    }

    /// C9: whether the live leases of a key, beside so many `others`, admit one more holder in this mode.
    pub(super) fn admit(
        &self,
        claim: &Claim<K>,
        others: impl FnOnce() -> usize,
        now: impl FnOnce() -> Instant,
    ) -> bool {
        let records = self.of(claim);
        if records.is_empty() {
            return true;
        }
        let now = now();
        let mut live = records.iter().filter(|record| is_live(record, now));
        let Mode::Shared { max } = claim.mode else { return live.next().is_none() };
        let below = |max: NonZeroU32, live: usize| {
            usize::try_from(max.get()).is_ok_and(|max| live + others() < max)
        };
        live.clone().all(|record| record.mode.is_shared())
            && max.is_none_or(|max| below(max, live.count()))
    }

    /// When the first of the live leases of a key ends.
    pub(super) fn first_end(&self, claim: &Claim<K>, now: impl FnOnce() -> Instant) -> Instant {
        let records = self.of(claim);
        if records.is_empty() {
            return NEVER;
        }
        let now = now();
        let live = records.iter().filter(|record| is_live(record, now));
        live.map(ends).min().unwrap_or(NEVER)
    }

    /// All keys with records.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Leased<K>> {
        self.0.iter()
    }
}

impl<K> Leased<K> {
    pub(super) fn is_live(&self, now: Instant) -> bool {
        self.records.iter().any(|record| is_live(record, now))
    }

    /// True if a term was over by then.
    pub(super) fn has_ended(&self, by: Instant) -> bool {
        self.records.iter().any(|record| ends(record) <= by)
    }
}

impl<K: Clone> Leased<K> {
    pub(super) fn claim(&self) -> Claim<K> {
        Claim { key: self.key.clone(), hash: self.hash, mode: Mode::Exclusive }
    }
}

/// C5: at exactly its term a lease has ended.
fn is_live(record: &Record, now: Instant) -> bool {
    !matches!(record.state, State::Evicted(_)) && now < ends(record)
}

fn ends(record: &Record) -> Instant {
    record.expires.map_or(NEVER, nanos)
}
