//! How long a holder may trust its lease, and when it renews.

use std::time::Duration;

use crate::Remaining;

/// Microseconds, rounded up: what a store keeps.
pub fn micros_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// Microseconds, rounded down: an instant that is compared with what a store keeps.
pub fn micros_down(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// What is subtracted from a term because two clocks may run at different rates: a fraction in thousandths and a
/// fixed margin. By default 1 % and 2 ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Drift {
    permille: u32,
    margin: Duration,
}

impl Default for Drift {
    fn default() -> Self {
        Self { permille: Self::PERMILLE, margin: Self::MARGIN }
    }
}

impl Drift {
    /// The thousandths that are subtracted by default.
    pub const PERMILLE: u32 = 10;
    /// The fixed margin that is subtracted by default.
    pub const MARGIN: Duration = Duration::from_millis(2);

    /// Subtracts `permille` thousandths (at most 1,000) and `margin`.
    pub fn new(permille: u32, margin: Duration) -> Self {
        Self { permille: permille.min(1_000), margin }
    }

    /// The local instant until which a holder may trust a lease, if a request sent at `sent` showed that
    /// `remaining` is left at the store; `None` for ever. It counts from before the request was sent (F4).
    pub fn deadline(&self, sent: Duration, remaining: Remaining) -> Option<Duration> {
        let left = remaining.duration()?;
        let believed = left / 1_000 * (1_000 - self.permille);
        Some(sent.saturating_add(believed.saturating_sub(self.margin)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn deadline_is_early_by_drift_and_never_late() {
        let drift = Drift::default();
        let sent = 100 * S;
        assert_eq!(
            drift.deadline(sent, Remaining::For(10 * S)),
            Some(sent + Duration::from_millis(9_898))
        );
        assert_eq!(drift.deadline(sent, Remaining::Never), None);
        assert_eq!(drift.deadline(sent, Remaining::For(Duration::from_millis(1))), Some(sent));
    }

    #[test]
    fn micros_round_both_ways() {
        let term = Duration::from_nanos(1_001);
        assert_eq!((micros_up(term), micros_down(term)), (2, 1));
    }
}
