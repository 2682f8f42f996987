//! When to try again.

use std::fmt;
use std::time::Duration;

use crate::{Error, Key, Record};

/// How long a caller waits for a lock that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the four ways to wait")]
pub enum Wait {
    /// One try.
    No,
    /// Until this long after the call; when it is over during a pause or in line, one last try is made.
    UpTo(Duration),
    /// Exactly this many tries (0 counts as 1) with a pause between two.
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

/// What a caller who got no lock should know.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WaitReport {
    /// The first key that was refused, or the first asked for.
    pub key: Key,
    /// How long the call took.
    pub waited: Duration,
    /// How many tries were made.
    pub tries: u32,
    /// What the last try met.
    pub cause: WaitCause,
    /// Who held the key when that was last told.
    pub holder: Option<Box<Record>>,
}

/// What ended a try.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_enums, reason = "callers must handle every cause")]
pub enum WaitCause {
    /// Somebody holds the key.
    Held,
    /// It was granted, but the reply came after the term that could be believed.
    GrantedTooLate,
    /// The store failed.
    Store(Error),
    /// The caller's back-off said to stop.
    Exhausted,
}

impl WaitReport {
    /// A report of a wait that ended.
    pub fn new(key: Key, waited: Duration, tries: u32, cause: WaitCause) -> Self {
        Self { key, waited, tries, cause, holder: None }
    }

    /// Says who held the key when that was last told.
    #[must_use]
    pub fn with_holder(mut self, holder: Option<Box<Record>>) -> Self {
        self.holder = holder;
        self
    }
}

impl fmt::Display for WaitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tries = if self.tries == 1 { "try" } else { "tries" };
        write!(f, "{:?} was not free", self.key)?;
        write!(f, " after {} {tries} in {:.3} s: ", self.tries, self.waited.as_secs_f64())?;
        match &self.cause {
            WaitCause::Held => f.write_str("it is held")?,
            WaitCause::GrantedTooLate => {
                f.write_str("it was granted too late for its term to be believed")?;
            }
            WaitCause::Store(error) => write!(f, "{error}")?,
            WaitCause::Exhausted => f.write_str("the back-off ended the wait")?,
        }
        match &self.holder {
            Some(holder) => write!(f, "; its holder is {}", holder.who()),
            None => Ok(()),
        }
    }
}
