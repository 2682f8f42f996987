//! Keys as the rules see them: their table has one mark, and here each key has a counter.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::table::may_forget;
use leasehold_core::{EvictReply, EvictRequest, EvictScope, FencingToken, Key, Now, Table};

use crate::document::Entry;
use crate::record::no_token;

/// Some keys, for a rule to change.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) table: Table,
    /// Of the keys that have a document.
    counters: BTreeMap<Key, u64>,
}

impl Keys {
    /// These keys, for the rules of an empty table.
    pub(crate) fn new(rules: &Table, keys: impl IntoIterator<Item = (Key, Entry)>) -> Self {
        let (mut table, mut counters) = (rules.clone(), BTreeMap::new());
        for (key, entry) in keys {
            counters.insert(key.clone(), entry.counter);
            table.insert(key, entry.holders);
        }
        let mark = counters.values().copied().max().unwrap_or(0);
        Self { table: table.with_mark(mark), counters }
    }

    /// The key after the rule: a new token of its holders is its highest. `None` if nothing is left to remember.
    pub(crate) fn entry(&self, key: &Key) -> Option<Entry> {
        let (counter, holders) = (self.counters.get(key), self.table.holders(key));
        if counter.is_none() && holders.is_empty() {
            return None;
        }
        let tokens = holders.iter().map(|holder| holder.token).filter(|token| *token != no_token());
        let highest = tokens.map(FencingToken::get).max().unwrap_or(0);
        let counter = counter.copied().unwrap_or(0).max(highest);
        Some(Entry { counter, holders: holders.to_vec() })
    }

    /// Evicts, and forgets the counters of keys without a record that are old enough (C7).
    pub(crate) fn evict(
        &mut self,
        request: &EvictRequest,
        forget_after: Option<Duration>,
        now: Now,
    ) -> EvictReply {
        let mut reply = self.table.evict(request, now);
        let EvictScope::Expired(filter) = request.scope() else { return reply };
        let (table, limit) = (&self.table, request.limit());
        let mut done = reply.removed.len();
        self.counters.retain(|key, counter| {
            let forget = table.holders(key).is_empty()
                && filter.matches_counter(key)
                && may_forget(*counter, now.wall_micros, forget_after)
                && done < limit;
            done += usize::from(forget);
            !forget
        });
        reply.counters_forgotten = done - reply.removed.len();
        reply.more = done == limit;
        reply
    }
}
