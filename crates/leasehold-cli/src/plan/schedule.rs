//! When a command must end because its lease does.

use std::time::Duration;

use leasehold::store::{Clock as _, SystemClock};
use leasehold::{Error, Guard, Remaining, Result, Ttl};

/// How long before the end of a term the command is killed, and how long before that it is asked to end.
///
/// The kill takes effect before the term ends, with a margin for the time that a signal takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    kill_after: Duration,
    margin: Duration,
}

impl Schedule {
    const LONGEST_DEFAULT: Duration = Duration::from_secs(5);
    const LONGEST_MARGIN: Duration = Duration::from_millis(250);
    /// Unless the term is shorter than four times this.
    const SHORTEST_MARGIN: Duration = Duration::from_millis(50);

    /// The schedule for leases of `ttl` that are held no longer than `max_hold`. `kill_after` defaults to a sixth
    /// of the TTL, at most 5 s.
    ///
    /// # Errors
    /// `InvalidInput` unless `kill_after` is below a third of the TTL, and of `max_hold` too: renewals are sent at
    /// a third, and there must be time for another try before the command is given up.
    pub(crate) fn new(
        ttl: Ttl,
        max_hold: Option<Duration>,
        kill_after: Option<Duration>,
    ) -> Result<Self> {
        let ttl = ttl.duration().unwrap_or(Duration::MAX);
        let (name, term) = match max_hold {
            Some(max_hold) if max_hold < ttl => ("--max-hold", max_hold),
            _ => ("the TTL", ttl),
        };
        match kill_after {
            Some(kill_after) if kill_after >= term / 3 => Err(Error::invalid_input(format!(
                "--kill-after is {kill_after:?}; it must be below a third of {name}, which is {term:?}, so below {}",
                humantime::format_duration(Duration::from_millis(
                    u64::try_from((term / 3).as_millis()).unwrap_or(u64::MAX)
                ))
            ))),
            given => Ok(Self {
                kill_after: given.unwrap_or(Self::LONGEST_DEFAULT.min(term / 6)),
                margin: (term / 20)
                    .min(Self::LONGEST_MARGIN)
                    .max(Self::SHORTEST_MARGIN.min(term / 4)),
            }),
        }
    }

    /// The time between asking and killing.
    pub(crate) fn kill_after(&self) -> Duration {
        self.kill_after
    }

    /// How long before the end of a term the command is asked to end.
    pub(crate) fn lead(&self) -> Duration {
        self.kill_after.saturating_add(self.margin)
    }

    /// How long from now the command must be killed if `left` remains of the term; zero for now.
    fn kill_in(&self, left: Remaining) -> Duration {
        left.duration().unwrap_or(Duration::MAX).saturating_sub(self.margin)
    }

    /// The instant of boot time by which the command must be dead; zero if it has passed.
    pub(crate) fn deadline(&self, guard: &Guard) -> Duration {
        // Read first: a pause between the two reads must make the deadline earlier, not later.
        let now = SystemClock::new().now();
        match self.kill_in(guard.remaining()) {
            Duration::ZERO => Duration::ZERO,
            pause => now.saturating_add(pause),
        }
    }

    /// How long after that the shim may still take: this much of the margin is left to act in its place.
    pub(crate) fn grace(&self) -> Duration {
        self.margin / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn ttl(duration: Duration) -> Ttl {
        Ttl::new(duration).unwrap()
    }

    #[test]
    fn defaults() {
        assert_eq!(Schedule::new(ttl(30 * S), None, None).unwrap().kill_after, 5 * S);
        assert_eq!(Schedule::new(ttl(6 * S), None, None).unwrap().kill_after, S);
        assert_eq!(Schedule::new(Ttl::NEVER, None, None).unwrap().kill_after, 5 * S);
        let short = Schedule::new(ttl(30 * S), Some(3 * S), None).unwrap();
        assert_eq!(short.kill_after, S / 2);
    }

    #[test]
    fn kill_after_is_below_a_third() {
        assert!(Schedule::new(ttl(30 * S), None, Some(10 * S)).is_err());
        assert!(Schedule::new(ttl(30 * S), None, Some(Duration::from_millis(9_999))).is_ok());
        assert!(Schedule::new(Ttl::NEVER, None, Some(3_600 * S)).is_ok());
        let error = Schedule::new(ttl(30 * S), Some(3 * S), Some(S)).unwrap_err().to_string();
        assert!(error.contains("--max-hold") && error.contains("below 1s"), "{error}");
        let error = Schedule::new(ttl(3 * S), None, Some(2 * S)).unwrap_err().to_string();
        assert!(error.contains("the TTL, which is 3s") && error.contains("below 1s"), "{error}");
    }

    #[test]
    fn killed_before_the_term_ends() {
        let schedule = Schedule::new(ttl(30 * S), None, Some(2 * S)).unwrap();
        assert_eq!(schedule.kill_in(Remaining::For(10 * S)), Duration::from_millis(9_750));
        assert_eq!(schedule.kill_in(Remaining::For(Duration::ZERO)), Duration::ZERO);
        assert_eq!(schedule.kill_in(Remaining::Never), Duration::MAX - schedule.margin);
        assert!(schedule.grace() < schedule.margin);
        let margin = |ms| Schedule::new(ttl(Duration::from_millis(ms)), None, None).unwrap().margin;
        let margins = [10_000, 5_000, 2_000, 1_000, 200, 100].map(|ms| margin(ms).as_millis());
        assert_eq!(margins, [250, 250, 100, 50, 50, 25]);
    }
}
