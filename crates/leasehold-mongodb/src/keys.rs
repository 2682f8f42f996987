//! Keys as the rules see them: their table has one mark, and here each key has a counter.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use leasehold_core::table::may_forget;
use leasehold_core::{
    EvictReply, EvictRequest, EvictScope, FencingToken, Key, Now, RenewReply, RenewRequest, Table,
};

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

    /// Renews. A raise has no bound here: the counters of other keys are their own (C7).
    pub(crate) fn renew(&mut self, request: &RenewRequest, now: Now) -> RenewReply {
        self.table = mem::take(&mut self.table).with_mark(FencingToken::MAX);
        self.table.renew(request, now)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold_core::{
        AcquireReply, AcquireRequest, Claims, EvictRequest, FencingToken, Filter, LeaseId, Mode,
        RenewEntry, RenewOutcome, RenewRequest, Ttl,
    };

    use super::*;

    const NOW: Now = Now { boot: Duration::from_secs(100), wall_micros: 100_000_000 };

    fn key(name: &str) -> Key {
        Key::new(name).unwrap()
    }

    /// Keys with these counters, and no holders.
    fn keys(counters: &[(&str, u64)]) -> Keys {
        let entry = |counter| Entry { counter, holders: Vec::new() };
        let entries = counters.iter().map(|(name, counter)| (key(name), entry(*counter)));
        Keys::new(&Table::default(), entries)
    }

    fn claims(names: &[&str]) -> Claims {
        Claims::all(names.iter().map(|name| key(name)), Mode::Exclusive).unwrap()
    }

    fn grant(keys: &mut Keys, names: &[&str]) -> u64 {
        let ttl = Ttl::new(Duration::from_secs(9)).unwrap();
        let id = LeaseId::foreign(b"w").unwrap();
        let request = AcquireRequest::new(id, claims(names), ttl);
        match keys.table.acquire(&request, NOW).unwrap() {
            AcquireReply::Granted(granted) => granted.token.unwrap().get(),
            refused @ AcquireReply::Refused(_) => panic!("{refused:?}"),
        }
    }

    fn counters(keys: &Keys, names: &[&str]) -> Vec<Option<u64>> {
        names.iter().map(|name| keys.entry(&key(name)).map(|entry| entry.counter)).collect()
    }

    #[test]
    fn a_grant_is_above_the_counters_of_its_keys_and_raises_them() {
        let mut keys = keys(&[("a", 7), ("b", 200_000_000), ("c", 9)]);
        assert_eq!(grant(&mut keys, &["a", "b", "d"]), 200_000_001);
        let expected = [Some(200_000_001), Some(200_000_001), Some(9), Some(200_000_001), None];
        assert_eq!(counters(&keys, &["a", "b", "c", "d", "e"]), expected);
    }

    #[test]
    fn a_raise_raises_the_counters_of_the_keys_of_the_lease() {
        let mut keys = keys(&[("a", 7), ("b", 8)]);
        let token = grant(&mut keys, &["a"]);
        let id = LeaseId::foreign(b"w").unwrap();
        let ttl = Ttl::new(Duration::from_secs(9)).unwrap();
        let renewal = RenewEntry::extend(id, claims(&["a"]), ttl)
            .with_token_raised_to(FencingToken::new(token + 5).unwrap());
        keys.renew(&RenewRequest::new(vec![renewal]), NOW);
        assert_eq!(counters(&keys, &["a", "b"]), [Some(token + 5), Some(8)]);
    }

    /// Unlike a raise of the mark of all keys: it concerns no other key.
    #[test]
    fn a_raise_may_go_to_the_last_token() {
        let mut keys = keys(&[("a", 7), ("b", 8)]);
        grant(&mut keys, &["a"]);
        let id = LeaseId::foreign(b"w").unwrap();
        let ttl = Ttl::new(Duration::from_secs(9)).unwrap();
        let last = FencingToken::new(FencingToken::MAX).unwrap();
        let renewal = RenewEntry::extend(id, claims(&["a"]), ttl).with_token_raised_to(last);
        let reply = keys.renew(&RenewRequest::new(vec![renewal]), NOW);
        assert!(matches!(reply.leases[..], [RenewOutcome::Held(_)]), "{reply:?}");
        assert_eq!(counters(&keys, &["a", "b"]), [Some(last.get()), Some(8)]);
    }

    #[test]
    fn only_old_counters_of_free_keys_are_forgotten() {
        let mut keys = keys(&[("new", 99_000_000), ("old", 98_999_999), ("none", 0), ("last", 1)]);
        grant(&mut keys, &["held"]);
        let purge = EvictRequest::expired(Filter::default()).with_limit(2);
        let after = Some(Duration::from_secs(1));
        let reply = keys.evict(&purge, after, NOW);
        assert_eq!((reply.counters_forgotten, reply.more), (2, true));
        let reply = keys.evict(&purge, after, NOW);
        assert_eq!((reply.counters_forgotten, reply.more), (1, false));
        assert_eq!(
            counters(&keys, &["new", "old", "none", "last"]),
            [Some(99_000_000), None, None, None]
        );
        assert!(keys.entry(&key("held")).is_some());
        assert_eq!(keys.evict(&purge, None, NOW).counters_forgotten, 0);
    }
}
