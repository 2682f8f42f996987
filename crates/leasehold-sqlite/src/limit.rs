use std::time::Duration;

use leasehold_core::Clock;

/// The time limit of an operation, counted from its call on the store's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    total: Duration,
    end: Duration,
}

impl Limit {
    /// Starts now.
    pub(crate) fn start(clock: &dyn Clock, total: Duration) -> Self {
        Self { total, end: clock.now().saturating_add(total) }
    }

    /// What is left; `None` if it has passed.
    pub(crate) fn left(self, clock: &dyn Clock) -> Option<Duration> {
        self.end.checked_sub(clock.now()).filter(|left| !left.is_zero())
    }

    /// The whole limit.
    pub(crate) fn total(self) -> Duration {
        self.total
    }

    /// When it passes, on the same clock.
    pub(crate) fn end(self) -> Duration {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::ManualClock;

    use super::*;

    #[test]
    fn a_limit_has_passed_at_exactly_its_end() {
        let clock = ManualClock::new();
        let second = Duration::from_secs(1);
        let limit = Limit::start(&clock, second);
        assert_eq!(limit.left(&clock), Some(second));
        clock.advance(second - Duration::from_nanos(1));
        assert_eq!(limit.left(&clock), Some(Duration::from_nanos(1)));
        clock.advance(Duration::from_nanos(1));
        assert_eq!(limit.left(&clock), None);
        assert!(Limit::start(&clock, Duration::MAX).left(&clock).is_some());
    }
}
