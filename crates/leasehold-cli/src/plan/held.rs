//! What is held while the command runs.

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

    /// Releases it.
    pub(crate) async fn release(self) -> Result<ReleaseReport> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Leadership(leadership) => leadership.resign().await,
        }
    }
}
