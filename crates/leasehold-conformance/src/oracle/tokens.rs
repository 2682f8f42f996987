use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::table::{Holder, may_forget};
use leasehold_core::term::micros_down;
use leasehold_core::{Claims, FencingToken, Filter, Key, LeaseId, Now, Table};

use crate::Observation;

/// The greatest token that the wall clock alone gives.
const MOST_OF_CLOCK: u64 = 1 << 52;

/// The highest token of each key. A store may choose its tokens: the next one must be above this.
#[derive(Debug, Clone, Default)]
pub(super) struct Tokens {
    of_keys: BTreeMap<Key, u64>,
    /// When the store forgets the counter of a key, if it keeps counters and it is known.
    forget_after: Option<Duration>,
}

impl Tokens {
    pub(super) fn new(forget_after: Option<Duration>) -> Self {
        Self { of_keys: BTreeMap::new(), forget_after }
    }

    /// The highest of all.
    pub(super) fn highest(&self) -> u64 {
        self.of_keys.values().copied().max().unwrap_or(0)
    }

    /// Judges the token of a new grant of these keys, and remembers it.
    pub(super) fn granted(
        &mut self,
        claims: &Claims,
        token: FencingToken,
        least: u64,
    ) -> Result<(), String> {
        let earlier = claims.keys().filter_map(|key| self.of_keys.get(key)).max().copied();
        if earlier.is_some_and(|earlier| token.get() <= earlier) {
            return Err(format!("the token: {token} is not above {earlier:?}, the highest before"));
        }
        if token.get() < least {
            return Err(format!("the token: {token} is below {least}, the store's wall clock"));
        }
        self.raised(claims, token);
        Ok(())
    }

    /// Remembers a raise of the tokens of these keys.
    pub(super) fn raised(&mut self, claims: &Claims, to: FencingToken) {
        for key in claims.keys() {
            let highest = self.of_keys.entry(key.clone()).or_default();
            *highest = to.get().max(*highest);
        }
    }

    /// Forgets what a store with counters forgets at a purge; returns how many.
    pub(super) fn forget(&mut self, filter: &Filter, table: &Table, now: Now) -> usize {
        let before = self.of_keys.len();
        self.of_keys.retain(|key, counter| {
            !table.holders(key).is_empty()
                || !filter.matches_counter(key)
                || !may_forget(*counter, now.wall_micros, self.forget_after)
        });
        before - self.of_keys.len()
    }

    /// Judges what the store remembers of its tokens: one mark above all, or exactly the highest of each key.
    pub(super) fn observed(&self, seen: &Observation) -> Result<(), String> {
        let (counters, highest) = (&seen.counters, self.highest());
        match seen.mark {
            Some(mark) if mark >= highest && counters.is_empty() => Ok(()),
            Some(mark) => {
                Err(format!("the mark {mark}, and counters {counters:?}, after {highest}"))
            }
            None if *counters == self.of_keys => Ok(()),
            None => Err(format!("the counters: expected {:?}, found {counters:?}", self.of_keys)),
        }
    }
}

/// The least token that a store may give at this time, if its wall clock counts in these units.
pub(super) fn least(now: Now, unit: Duration) -> u64 {
    let unit = micros_down(unit).max(1);
    (now.wall_micros - now.wall_micros % unit).min(MOST_OF_CLOCK)
}

/// Gives the lease the token that the store chose.
pub(super) fn choose(table: &mut Table, id: &LeaseId, claims: &Claims, token: FencingToken) {
    for key in claims.keys() {
        let chosen = |holder: &Holder| match &holder.id {
            Some(of) if of == id => Holder { token, ..holder.clone() },
            _ => holder.clone(),
        };
        table.insert(key.clone(), table.holders(key).iter().map(chosen).collect());
    }
}
