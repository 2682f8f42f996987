use std::time::Duration;

use leasehold_core::Clock;

/// When, and in which process, a try starts.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub(super) now: Duration,
    pub(super) process: u32,
    /// The Keeper's task runs on the runtime of the try.
    pub(super) has_keeper: bool,
}

impl Start {
    pub(super) fn at(now: Duration) -> Self {
        Self { now, process: std::process::id(), has_keeper: false }
    }

    /// The same after a wait, during which the process may have been forked.
    pub(super) fn after_wait(self, clock: &dyn Clock) -> Self {
        Self { now: clock.now(), process: std::process::id(), ..self }
    }
}
