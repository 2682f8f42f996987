//! When to try again.

use std::time::Duration;

/// How long a caller waits for a lock that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "tries or time bound a wait, or nothing does")]
pub enum Wait {
    /// One try, which takes at most as long as the store lets an operation take, or the limit of the `Locker` (10 s). A
    /// request whose reply is lost at once is sent again, for at most a second.
    No,
    /// Until this long after the call. A try in flight ends with it, and is finished in the background. If the time ends
    /// during a pause or in the queue, one last try is made, which takes at most 250 ms and at most as long as the wait.
    /// Zero is one try with the limits of [`No`](Wait::No).
    UpTo(Duration),
    /// Exactly this many tries (0 counts as 1), each as with [`No`](Wait::No), with a pause between two.
    Attempts(u32),
    /// Until it is granted or fails.
    Forever,
}

impl Default for Wait {
    /// 30 seconds.
    fn default() -> Self {
        Self::UpTo(Duration::from_secs(30))
    }
}

impl From<Duration> for Wait {
    fn from(limit: Duration) -> Self {
        Self::UpTo(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_the_longest_wait() {
        let limit = Duration::from_secs(30);
        assert_eq!(
            (Wait::default(), Wait::from(limit / 2)),
            (Wait::UpTo(limit), Wait::UpTo(limit / 2))
        );
    }
}
