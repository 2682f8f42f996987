use std::time::Duration;

use leasehold_core::term::micros_up;

use super::rows::NeneRow;

const SECOND: i64 = 1_000_000;

/// How much earlier than its row a lease ends for its holder, and how much later than its end a row may be taken over:
/// one second, because times are whole seconds, and the difference of the clocks of the server and of a PHP host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Margin(i64);

impl Margin {
    /// The margin for hosts whose clocks differ from the server's by at most `skew`.
    pub(super) fn of(skew: Duration) -> Self {
        Self(SECOND + i64::try_from(micros_up(skew)).unwrap_or(i64::MAX / 4))
    }

    /// How long after the end of a lease others may still be refused.
    pub(super) fn between_holder_and_others(self) -> Duration {
        micros(2 * self.0)
    }

    /// The `expires_at` of a lease with this term, in microseconds, that begins at `now`.
    pub(super) fn expires_at(self, now: i64, term: i64) -> i64 {
        let end = now.saturating_add(term).saturating_add(self.0);
        end.div_euclid(SECOND) + i64::from(end.rem_euclid(SECOND) > 0)
    }

    /// When a lease ends for its holder, in microseconds.
    pub(super) fn end(self, row: &NeneRow) -> i64 {
        row.expires_at.saturating_mul(SECOND) - self.0
    }

    /// What remains of a lease for its holder; zero once it has ended.
    pub(super) fn left(self, row: &NeneRow, now: i64) -> Duration {
        micros(self.end(row) - now)
    }

    /// How long until a row may be taken over; zero once it may.
    pub(super) fn until_free(self, row: &NeneRow, now: i64) -> Duration {
        micros(row.expires_at.saturating_mul(SECOND).saturating_add(self.0) - now)
    }
}

/// How long it is until an instant in whole seconds, as `expires_at` is; zero once it has come.
pub(super) fn until(seconds: i64, now: i64) -> Duration {
    micros(seconds.saturating_mul(SECOND).saturating_sub(now))
}

/// How long ago an instant in whole seconds was.
pub(super) fn since(seconds: i64, now: i64) -> Duration {
    micros(now.saturating_sub(seconds.saturating_mul(SECOND)))
}

pub(super) fn seconds(micros: i64) -> i64 {
    micros.div_euclid(SECOND)
}

fn micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(expires_at: i64) -> NeneRow {
        NeneRow { resource: "r".into(), owner: "o".into(), expires_at, acquired_at: 0 }
    }

    #[test]
    fn the_holder_stops_before_and_others_begin_after_the_end_of_the_row() {
        let margin = Margin::of(Duration::from_millis(500));
        // 10.2 s + 3 s + 1.5 s, rounded up.
        assert_eq!(margin.expires_at(10_200_000, 3_000_000), 15);
        assert_eq!(margin.expires_at(10_500_000, 3_000_000), 15);
        assert_eq!(margin.expires_at(10_500_001, 3_000_000), 16);
        let row = row(15);
        assert_eq!(margin.left(&row, 10_500_000), Duration::from_secs(3));
        assert_eq!(margin.left(&row, 13_499_999), Duration::from_micros(1));
        assert_eq!(margin.left(&row, 13_500_000), Duration::ZERO);
        assert_eq!(until(row.expires_at, 14_999_999), Duration::from_micros(1));
        assert_eq!(until(row.expires_at, 15_000_000), Duration::ZERO);
        assert_eq!(since(row.expires_at, 15_000_001), Duration::from_micros(1));
        assert_eq!(margin.until_free(&row, 16_499_999), Duration::from_micros(1));
        assert_eq!(margin.until_free(&row, 16_500_000), Duration::ZERO);
        assert_eq!(margin.between_holder_and_others(), Duration::from_secs(3));
    }
}
