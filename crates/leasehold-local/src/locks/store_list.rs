//! What a store does with all keys: in batches, in key order.

use std::collections::BinaryHeap;
use std::ops::Bound;

use leasehold_core::{
    Cursor, EvictReply, EvictRequest, Filter, Key, ListReply, ListRequest, Result, Table as Rules,
};

use super::leases::Leased;
use super::store_table::StoreTable;
use super::sync::Ordering;
use super::table::Table;

/// How many keys are looked at before others get at them.
const BATCH: usize = 100;

impl StoreTable {
    pub(crate) fn list(&self, request: &ListRequest) -> Result<ListReply> {
        let cursor = request.cursor().map(Cursor::position).transpose()?;
        let mut from = cursor.map_or(Bound::Unbounded, |(key, _)| Bound::Included(key));
        let mut left = request.clone();
        let mut list = ListReply::new(Vec::new(), None);
        loop {
            let most = left.limit().max(BATCH);
            let keys = self.batch(request.filter(), &from, most, |_| true, true);
            for batch in keys.chunks(BATCH) {
                let read = |rules: &Rules, now| rules.list(&left, now);
                let mut page = self.table.look_at_all(&self.claims(batch), read)?;
                for lock in page.records.iter_mut().filter(|record| record.id.is_none()) {
                    (lock.token, lock.age) = (None, None);
                }
                list.append(page);
                if list.next.is_some() {
                    return Ok(list);
                }
                left = left.with_limit(request.limit() - list.records.len());
                if let Some(last) = list.records.last() {
                    left = left.with_cursor(Cursor::after(last));
                }
            }
            let Some(last) = keys.into_iter().nth(most - 1) else { return Ok(list) };
            from = Bound::Excluded(last);
        }
    }

    /// Removes expired records that match.
    pub(crate) fn purge(&self, filter: &Filter, limit: usize) -> EvictReply {
        let (now, mut from) = (self.table.now(), Bound::Unbounded);
        let mut removed = Vec::new();
        loop {
            let keys = self.batch(filter, &from, BATCH, |leased| leased.has_ended(now), false);
            let request = EvictRequest::expired(filter.clone()).with_limit(limit - removed.len());
            let evict = |rules: &mut Rules, now| rules.evict(&request, now);
            removed.extend(self.table.decide(&self.claims(&keys), evict).removed);
            let last = keys.into_iter().nth(BATCH - 1).filter(|_| removed.len() < limit);
            match last {
                Some(last) => from = Bound::Excluded(last),
                None => {
                    let more = removed.len() == limit;
                    return EvictReply::new(removed, 0, more);
                }
            }
        }
    }

    /// A copy of the leases.
    pub(crate) fn snapshot(&self) -> Rules {
        self.table.snapshot()
    }

    /// The first keys that are leased as `is_wanted` says, or locked if `locked`: so many, or all that are left. All keys of
    /// the table are looked at to find them.
    fn batch(
        &self,
        filter: &Filter,
        from: &Bound<Key>,
        most: usize,
        is_wanted: impl Fn(&Leased<Key>) -> bool,
        locked: bool,
    ) -> Vec<Key> {
        let mut batch = Batch { filter, from, most, first: BinaryHeap::new() };
        if let Some(keys) = filter.keys() {
            keys.iter().for_each(|key| batch.add(key));
            return batch.first.into_sorted_vec();
        }
        for shard in &self.table.shards {
            let shard = shard.lock();
            let leased = shard.leases.iter().filter(|leased| is_wanted(leased));
            leased.for_each(|leased| batch.add(&leased.key));
            if locked {
                shard.held.iter().for_each(|held| batch.add(&held.key));
            }
        }
        batch.first.into_sorted_vec()
    }
}

/// The first keys that may match.
struct Batch<'a> {
    filter: &'a Filter,
    from: &'a Bound<Key>,
    most: usize,
    first: BinaryHeap<Key>,
}

impl Batch<'_> {
    fn add(&mut self, key: &Key) {
        let is_full = self.first.len() == self.most;
        if is_full && self.first.peek().is_some_and(|last| key >= last) {
            return;
        }
        let is_later = match self.from {
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
            Bound::Unbounded => true,
        };
        if !is_later || !self.filter.matches_name(key.as_str()) {
            return;
        }
        self.first.push(key.clone());
        if is_full {
            self.first.pop();
        }
    }
}

impl Table<Key> {
    fn snapshot(&self) -> Rules {
        let mut rules = Rules::default();
        for shard in &self.shards {
            let shard = shard.lock();
            for leased in shard.leases.iter() {
                rules.insert(leased.key.clone(), leased.records.clone());
            }
        }
        rules.with_mark(self.mark.load(Ordering::Relaxed))
    }
}
