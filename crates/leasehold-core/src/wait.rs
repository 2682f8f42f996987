//! When to try again.

use std::time::Duration;

/// How long a caller waits for a lock that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "tries or time bound a wait, or nothing does")]
pub enum Wait {
    /// One try.
    No,
    /// Until this long after the call. A request in flight ends with it. If the time ends during a pause or in the queue,
    /// one last try is made, which takes at most the limit of one operation (10 s unless the store answers).
    UpTo(Duration),
    /// Exactly this many tries (0 counts as 1), with a pause between two.
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
