use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Clock;
use leasehold_driver::SystemClock;

use super::error::LockError;

/// How a table is made.
///
/// ```
/// use leasehold_local::locks::{LocalLocks, LocksConfig};
/// use std::time::Duration;
///
/// let config = LocksConfig::new().sweep_every(Duration::from_secs(60)).sweep_batch(1_000);
/// let locks: LocalLocks<u64> = LocalLocks::with_config(config)?;
/// # Ok::<(), leasehold_local::locks::LockError>(())
/// ```
#[derive(Clone)]
pub struct LocksConfig {
    pub(super) shards: usize,
    pub(super) sweep_interval: Option<Duration>,
    pub(super) sweep_batch: usize,
    pub(super) barging: bool,
    pub(super) ages: bool,
    pub(super) clock: Arc<dyn Clock>,
}

impl LocksConfig {
    /// 64 shards; every 5 minutes a sweep in batches of 100; fair; the machine's clocks.
    pub fn new() -> Self {
        Self {
            shards: 64,
            sweep_interval: Some(Duration::from_secs(300)),
            sweep_batch: 100,
            barging: false,
            ages: false,
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// How many parts the table has, each with a mutex of its own: a power of two up to 65,536.
    #[must_use]
    pub fn shards(mut self, shards: usize) -> Self {
        self.shards = shards;
        self
    }

    /// The pause between two sweeps for stale locks, at least 1 ms.
    ///
    /// A sweep finds locks that nobody asks for; whoever asks for a stale lock gets it at once.
    #[must_use]
    pub fn sweep_every(mut self, interval: Duration) -> Self {
        self.sweep_interval = Some(interval);
        self
    }

    /// Makes no sweeps of its own: stale locks go when somebody asks for them, or calls
    /// [`LocalLocks::sweep`](super::LocalLocks::sweep).
    #[must_use]
    pub fn sweep_never(mut self) -> Self {
        self.sweep_interval = None;
        self
    }

    /// How many keys a sweep looks at before it lets others at them, at least 1.
    #[must_use]
    pub fn sweep_batch(mut self, keys: usize) -> Self {
        self.sweep_batch = keys;
        self
    }

    /// Lets newcomers overtake waiters.
    ///
    /// A release then frees the key and wakes the first waiter, which tries again. Whoever runs already gets the key
    /// sooner than a waiter could wake up: more locks in the same time, and longer waits. A waiter for one key that
    /// tried 16 times in vain is handed the key next; there is no such bound for several keys.
    #[must_use]
    pub fn barging(mut self, barging: bool) -> Self {
        self.barging = barging;
        self
    }

    /// Reads the clock for every lock, so that [`LocalLocks::entries`](super::LocalLocks::entries) shows the age also of
    /// locks that are [never stale](super::Options::never_stale).
    ///
    /// That costs such a lock about 30 ns more. Other locks read the clock in any case.
    #[must_use]
    pub fn ages(mut self, ages: bool) -> Self {
        self.ages = ages;
        self
    }

    /// The clock that decides time-outs and waits.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    pub(super) fn check(&self) -> Result<(), LockError> {
        let refuse = |message: String| Err(LockError::Invalid(message.into()));
        if !self.shards.is_power_of_two() || self.shards > 65_536 {
            return refuse(format!(
                "the table is to have {} shards; it must be a power of two up to 65536",
                self.shards
            ));
        }
        if self.sweep_interval.is_some_and(|interval| interval < Duration::from_millis(1)) {
            return refuse(format!(
                "the sweep interval is {:?}; it must be at least 1 ms, or sweep_never",
                self.sweep_interval.unwrap_or_default()
            ));
        }
        if self.sweep_batch == 0 {
            return refuse("the sweep batch is 0; it must be at least 1 key".into());
        }
        Ok(())
    }

    /// What differs in `other`.
    pub(super) fn difference(&self, other: &Self) -> Option<String> {
        let differs = |what: &str, ours: &dyn fmt::Debug, theirs: &dyn fmt::Debug| {
            Some(format!("{what} is {ours:?}, and {theirs:?} was asked for"))
        };
        if self.shards != other.shards {
            differs("its number of shards", &self.shards, &other.shards)
        } else if self.sweep_interval != other.sweep_interval {
            differs("its sweep interval", &self.sweep_interval, &other.sweep_interval)
        } else if self.sweep_batch != other.sweep_batch {
            differs("its sweep batch", &self.sweep_batch, &other.sweep_batch)
        } else if self.barging != other.barging {
            differs("whether newcomers overtake", &self.barging, &other.barging)
        } else if self.ages != other.ages {
            differs("whether it knows the ages of all locks", &self.ages, &other.ages)
        } else {
            let clocks = [self, other].map(|config| format!("{:?}", config.clock));
            let same = Arc::ptr_eq(&self.clock, &other.clock) || clocks[0] == clocks[1];
            if same { None } else { differs("its clock", &self.clock, &other.clock) }
        }
    }
}

impl Default for LocksConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LocksConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocksConfig")
            .field("shards", &self.shards)
            .field("sweep_interval", &self.sweep_interval)
            .field("sweep_batch", &self.sweep_batch)
            .field("barging", &self.barging)
            .field("ages", &self.ages)
            .field("clock", &self.clock)
            .finish()
    }
}
