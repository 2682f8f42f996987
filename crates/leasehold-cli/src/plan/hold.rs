//! How to hold a lock while a command runs.

use std::ffi::OsString;
use std::time::Duration;

use clap::ValueEnum;
use leasehold::{Result, Ttl, Wait};

use super::schedule::Schedule;
use crate::exit::Exit;

/// What happens to the command when the lease is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// It gets TERM, and KILL before the term ends
    Kill,
    /// It gets TERM
    Signal,
    /// Nothing; a message is printed
    Ignore,
}

/// How to hold the lock; checked as far as possible without I/O.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) command: Vec<OsString>,
    /// The command as a listing shows it: without its arguments, which may hold a password.
    pub(crate) program: Option<String>,
    /// The process for which it is held, if that is another one.
    pub(crate) pid: Option<u32>,
    pub(crate) schedule: Schedule,
    pub(crate) on_lost: OnLost,
    /// If the lock is not free, in place of the usual one.
    pub(crate) conflict: Option<Exit>,
    pub(crate) wait: Wait,
    /// A lock that is held is no failure.
    pub(crate) skip: bool,
    /// After a loss, acquire again and start the command again.
    pub(crate) again: bool,
    pub(crate) ttl: Ttl,
    /// Otherwise it is the default.
    pub(crate) is_ttl_given: bool,
    pub(crate) kill_after: Option<Duration>,
    /// When to kill the command after it was asked to end.
    pub(crate) kill_after_signal: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) lock_delay: Option<Duration>,
    pub(crate) comment: Option<String>,
}

impl Hold {
    /// Takes a TTL that the caller did not give from what the store accepts.
    ///
    /// # Errors
    /// `InvalidInput` if `kill_after` is too long for it.
    pub(crate) fn fit(&mut self, longest: Duration) -> Result<()> {
        if !self.is_ttl_given && self.ttl() > longest {
            self.ttl = Ttl::new(longest)?;
            self.schedule = Schedule::new(self.ttl, self.max_hold, self.kill_after)?;
        }
        Ok(())
    }

    /// How long the lock outlives a crash.
    pub(crate) fn ttl(&self) -> Duration {
        self.ttl.duration().unwrap_or(Duration::MAX)
    }
}
