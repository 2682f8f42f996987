use std::time::{Duration, Instant};

use leasehold_core::Now;

/// The suite's own view of a clock that cannot be moved. Only differences are compared with the store's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RealTime(Instant);

impl RealTime {
    #[expect(
        clippy::disallowed_methods,
        reason = "the suite has no clock to ask, and sleeps rarely"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }

    /// The time since the start as a clock shows it, plus an hour, so that earlier instants can be represented.
    pub(crate) fn now(self) -> Now {
        let boot = Duration::from_secs(3_600) + self.0.elapsed();
        Now { boot, wall_micros: leasehold_core::term::micros_down(boot) }
    }
}
