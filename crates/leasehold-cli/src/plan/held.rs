//! What is held while the command runs.

use std::time::Duration;

use leasehold::{Guard, Leadership, ReleaseReport, Result};

/// A lock, or the leadership of an election, which holds its lock.
#[derive(Debug)]
pub(crate) enum Held {
    Lock(Guard),
    Leadership(Leadership),
}

impl Held {
    /// The guard of the lock.
    pub(crate) fn guard(&self) -> &Guard {
        match self {
            Self::Lock(guard) => guard,
            Self::Leadership(leadership) => leadership.guard(),
        }
    }

    /// Leaves it held: nothing renews or releases it any more.
    pub(crate) fn detach(self) {
        match self {
            Self::Lock(guard) => drop(guard.detach()),
            Self::Leadership(leadership) => drop(leadership),
        }
    }

    /// Releases it; the keys of a lock stay taken for `keep`.
    pub(crate) async fn release(self, keep: Duration) -> Result<ReleaseReport> {
        match self {
            Self::Lock(guard) => guard.release_keeping(keep).await,
            Self::Leadership(leadership) => leadership.resign().await,
        }
    }
}
