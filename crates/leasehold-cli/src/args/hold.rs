//! The options that `run` and `elect` share.

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgAction, Args};
use leasehold::{Ttl, Wait};

use super::values;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::plan::{Hold, OnLost, Schedule};
use crate::report::Level;

const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// How to hold the lock, and the command to run meanwhile.
#[derive(Debug, Args)]
pub(super) struct HoldArgs {
    /// Do not wait: fail at once if the lock is held
    #[arg(short, long, conflicts_with = "wait")]
    nonblock: bool,

    /// Wait at most this long, such as 30s, 5m or 1h30m [default: for ever]
    #[arg(short, long, value_name = "DUR", value_parser = values::duration)]
    wait: Option<Duration>,

    /// How long the lock outlives a crash of leasehold; it is renewed after a third of this
    /// [default: 30s, or the longest that the store accepts]
    #[arg(long, value_name = "DUR", value_parser = values::ttl)]
    ttl: Option<Ttl>,

    /// End the command when it has held the lock for this long
    #[arg(long, value_name = "DUR", value_parser = values::positive_duration)]
    max_hold: Option<Duration>,

    /// After a loss, keep the lock taken in the store for this much longer
    #[arg(long, value_name = "DUR", value_parser = values::positive_duration)]
    lock_delay: Option<Duration>,

    /// A comment for people, shown by `leasehold list`
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,

    /// The time between TERM and KILL, less than a third of the TTL
    /// [default: the smaller of 5s and a sixth of the TTL]
    #[arg(short, long, value_name = "DUR", value_parser = values::duration)]
    kill_after: Option<Duration>,

    /// What happens to the command when the lease is lost
    #[arg(long, value_name = "ACTION", default_value = "kill")]
    on_lost: OnLost,

    /// The exit code if another process holds the lock
    #[arg(short = 'E', long, value_name = "N", default_value_t = Exit::NOT_ACQUIRED.code())]
    conflict_exit_code: u8,

    /// Print no messages
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,

    /// Print a message for each step; given twice, also for each renewal
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl HoldArgs {
    /// How much to report.
    pub(super) fn level(&self) -> Level {
        match (self.quiet, self.verbose) {
            (true, _) => Level::Silent,
            (false, 0) => Level::Problems,
            (false, 1) => Level::Steps,
            (false, _) => Level::Renewals,
        }
    }

    /// Checks the options against each other.
    pub(super) fn checked(self) -> Result<Hold, Failure> {
        let default = || Ttl::new(DEFAULT_TTL).map_err(leasehold::Error::from);
        let ttl = self.ttl.map_or_else(default, Ok)?;
        let schedule = Schedule::new(ttl, self.max_hold, self.kill_after)?;
        let wait = match (self.nonblock, self.wait) {
            (true, _) => Wait::No,
            (false, Some(limit)) => Wait::UpTo(limit),
            (false, None) => Wait::Forever,
        };
        Ok(Hold {
            command: self.command,
            schedule,
            on_lost: self.on_lost,
            conflict: Exit::custom(self.conflict_exit_code),
            wait,
            ttl,
            is_ttl_given: self.ttl.is_some(),
            kill_after: self.kill_after,
            max_hold: self.max_hold,
            lock_delay: self.lock_delay,
            comment: self.comment,
        })
    }
}
