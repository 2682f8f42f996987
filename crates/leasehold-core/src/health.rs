use std::fmt;
use std::time::Duration;

use crate::Ttl;

/// What [`Store::check`](crate::Store::check) found on the server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The level that the store supports under its present settings.
    pub level: Level,
    /// The longest term that `level` is for; longer terms have L0. `None` if it is for every term, as L0 is.
    pub level_max_ttl: Option<Duration>,
    /// What lowers the level or may surprise: one sentence each, with what to do.
    pub hazards: Vec<String>,
    /// The schema found; `None` if [`prepare`](crate::Store::prepare) has not run.
    pub schema: Option<u32>,
    /// How far the store's wall clock is ahead of ours (negative: behind), in microseconds.
    pub clock_difference_us: Option<i64>,
    /// Every acknowledged write survives every crash of the server, including the writes from before its last start.
    /// False if only the operator can know this and has not confirmed it.
    pub durable: bool,
    /// After a start that may have lost leases, the store grants nothing for this long.
    pub quarantine: Duration,
    /// A replica may take over without the last writes.
    pub fails_over: bool,
    /// The server's software and its version, where it reports them.
    pub server: Option<String>,
    /// Identifies the server itself rather than its URL, so that one server does not count twice.
    pub identity: Option<String>,
}

impl Health {
    /// A healthy store of this level; everything else is unknown.
    pub fn new(level: Level) -> Self {
        Self {
            level,
            level_max_ttl: None,
            hazards: Vec::new(),
            schema: None,
            clock_difference_us: None,
            durable: false,
            quarantine: Duration::ZERO,
            fails_over: false,
            server: None,
            identity: None,
        }
    }

    /// The level of leases with this term.
    pub fn level_of(&self, ttl: Ttl) -> Level {
        let is_longer = |max| ttl.duration().is_none_or(|ttl| ttl > max);
        if self.level_max_ttl.is_some_and(is_longer) { Level::BestEffort } else { self.level }
    }
}

/// What a lock on a store guarantees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the four levels of the contract")]
pub enum Level {
    /// L0: usually one holder.
    BestEffort,
    /// L1: at most one exclusive guard that is valid by its own clock, given bounded clock rates, no forward
    /// step of the store's clock, and a durable, linearizable store.
    Lease,
    /// L2: L1, and tokens that strictly grow per key.
    Fenced,
    /// L3: token check and write are one transaction in the same store.
    FencedWrite,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BestEffort => "L0 best effort",
            Self::Lease => "L1 lease",
            Self::Fenced => "L2 fenced",
            Self::FencedWrite => "L3 fenced write",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_level_is_for_terms_up_to_its_longest() {
        let mut health = Health::new(Level::Fenced);
        assert_eq!(health.level_of(Ttl::NEVER), Level::Fenced);
        health.level_max_ttl = Some(9 * S);
        for (ttl, level) in [
            (Ttl::new(9 * S).unwrap(), Level::Fenced),
            (Ttl::new(10 * S).unwrap(), Level::BestEffort),
            (Ttl::NEVER, Level::BestEffort),
        ] {
            assert_eq!(health.level_of(ttl), level, "{ttl}");
        }
    }

    #[test]
    fn levels_are_ordered_by_what_they_guarantee() {
        let levels = [Level::BestEffort, Level::Lease, Level::Fenced, Level::FencedWrite];
        assert!(levels.is_sorted());
        let shown = levels.map(|level| level.to_string());
        assert_eq!(shown, ["L0 best effort", "L1 lease", "L2 fenced", "L3 fenced write"]);
    }
}
