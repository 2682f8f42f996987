//! What a dead `leasehold` leaves: its lease, which the shim releases when the command has ended.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::time::Duration;

use leasehold::backoff::{Backoff as _, Exponential};
use leasehold::store::{Clock as _, SystemClock};
use leasehold::{ErrorKind, Lease, Locker, Result};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::background;
use crate::folder::{LEASE_FILE, STORE_FILE};
use crate::process::Assignment;

/// The longest pause between two tries to reach the store.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long to try for a lease whose term is longer.
const LONGEST: Duration = Duration::from_secs(3_600);

/// How long the connections have to end.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// The lease, and where it is held.
#[derive(Debug)]
pub(super) struct Estate {
    lease: Lease,
    url: String,
    keep_until: Duration,
    lock_delay: Duration,
}

impl Estate {
    /// Reads it from the runtime folder, before the command could change what is there; `None` if it is not all there, as where
    /// only `leasehold` itself can use the store.
    pub(super) fn read(folder: &Path, assignment: &Assignment) -> Option<Self> {
        let read = |name| std::fs::read_to_string(folder.join(name)).ok();
        Some(Self {
            lease: serde_json::from_str(&read(LEASE_FILE)?).ok()?,
            url: read(STORE_FILE)?.trim_end().to_owned(),
            keep_until: assignment.keep_until,
            lock_delay: assignment.lock_delay,
        })
    }

    /// How long the lease may be held, from now on.
    pub(super) fn longest(&self) -> Duration {
        self.lease.ttl.duration().unwrap_or(Duration::MAX)
    }

    /// Releases the lease, with tries until the instant `until`: then its term is over. Nothing of the command may run any more.
    pub(super) fn release(self, until: Duration) {
        // Whoever reads what the command has written need not wait for this.
        if leave_streams().is_ok() {
            // Without a thread the lease ends with its term.
            drop(background::wait_for(self.try_until(until)));
        }
    }

    async fn try_until(self, until: Duration) {
        let clock = SystemClock::new();
        let until = until.min(clock.now().saturating_add(LONGEST));
        let mut pauses = Exponential::default();
        for tries in 0.. {
            match self.try_once(&clock).await {
                Err(error) if error.kind() == ErrorKind::Unavailable && clock.now() < until => {
                    let pause = pauses.next(tries).unwrap_or(LONGEST_PAUSE);
                    tokio::time::sleep(pause.min(LONGEST_PAUSE)).await;
                }
                _ => return,
            }
        }
    }

    async fn try_once(&self, clock: &SystemClock) -> Result<()> {
        let locker = Locker::connect_unchecked(&self.url).await?;
        let rest = self.keep_until.saturating_sub(clock.now());
        // A store that cannot keep the keys taken refuses it, and they stay taken for the term.
        let released = locker.release(&self.lease, rest.max(self.lock_delay)).await;
        // What is left ends with this process.
        drop(locker.close(CLOSE_LIMIT).await);
        released.map(drop)
    }
}

/// Gives up stdin, stdout and stderr.
fn leave_streams() -> io::Result<()> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(())
}
