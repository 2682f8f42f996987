//! The options that `run` and `elect` share.

use std::convert::Infallible;
use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, ValueEnum as _};
use leasehold::inspect::Note;
use leasehold::{Ttl, Wait};

use super::environment::Environment;
use super::values;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::plan::{Hold, OnLost, Schedule};

pub(super) const WAITING: &str = "The wait";

pub(super) const LEASE: &str = "The lease";

pub(super) const COMMAND: &str = "The command";

const DEFAULT_TTL: Duration = Duration::from_secs(30);

/// How long to wait for the lock.
#[derive(Debug, Default, Args)]
pub(super) struct WaitArgs {
    /// Do not wait: exit with 1 at once if the lock is held
    #[arg(short, long, conflicts_with = "wait", help_heading = WAITING)]
    nonblock: bool,

    /// Wait at most this long, then exit with 124; a number alone is seconds [default: without end]
    #[arg(short, long, value_name = "DUR", value_parser = values::wait, help_heading = WAITING)]
    wait: Option<Duration>,

    /// Do not wait: exit with 0 and no message if the lock is held
    #[arg(long, conflicts_with_all = ["nonblock", "wait", "conflict_exit_code"], help_heading = WAITING)]
    skip: bool,

    /// The exit code if the lock is not free, at once or within --wait [default: 1, or 124 after a wait]
    #[arg(short = 'E', long, value_name = "N", help_heading = WAITING)]
    conflict_exit_code: Option<u8>,
}

impl WaitArgs {
    /// That of what need not be waited for.
    pub(super) fn none() -> Self {
        Self { nonblock: true, ..Self::default() }
    }

    /// The wait that is requested, else that of the environment.
    fn wait(&self, environment: &Environment) -> Result<Wait, Failure> {
        match self.wait {
            _ if self.nonblock || self.skip => Ok(Wait::No),
            Some(limit) => Ok(Wait::UpTo(limit)),
            None => {
                let limit = environment.option("WAIT", values::wait)?;
                Ok(limit.map_or(Wait::Forever, Wait::UpTo))
            }
        }
    }
}

/// The command, and how it ends.
#[derive(Debug, Default, Args)]
pub(super) struct CommandArgs {
    /// The time between TERM and KILL, less than a third of the TTL
    /// [default: the smaller of 5s and a sixth of the TTL]
    #[arg(short, long, value_name = "DUR", value_parser = values::duration, help_heading = COMMAND)]
    kill_after: Option<Duration>,

    /// Kill the command this long after a TERM, INT or QUIT that was passed on to it [default: never]
    #[arg(long, value_name = "DUR", value_parser = values::duration, help_heading = COMMAND)]
    kill_after_signal: Option<Duration>,

    /// What happens to the command when the lease is lost; unless it is ignored, the exit code is 123 [default: kill]
    #[arg(long, value_name = "ACTION", help_heading = COMMAND)]
    on_lost: Option<OnLost>,

    /// A line for /bin/sh, in place of COMMAND
    #[arg(short = 'c', long = "command", value_name = "LINE", conflicts_with = "command", help_heading = COMMAND)]
    shell: Option<OsString>,

    /// The command and its arguments
    #[arg(last = true, required_unless_present = "shell", value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How to hold the lock, and the command to run meanwhile.
#[derive(Debug, Args)]
pub(super) struct HoldArgs {
    #[command(flatten)]
    wait: WaitArgs,

    /// How long the lock outlives a crash of leasehold, 10ms to 10 years or `never`; it is renewed after a third of
    /// this [default: 30s, or the longest that the store accepts]
    #[arg(long, value_name = "DUR", value_parser = values::ttl, help_heading = LEASE)]
    ttl: Option<Ttl>,

    /// End the command when it has held the lock for this long, and exit with 123 [default: never]
    #[arg(long, value_name = "DUR", value_parser = values::positive_duration, help_heading = LEASE)]
    max_hold: Option<Duration>,

    /// After a loss, keep the lock taken in the store for this much longer [default: 0s]
    #[arg(long, value_name = "DUR", value_parser = values::positive_duration, help_heading = LEASE)]
    lock_delay: Option<Duration>,

    /// A comment for people, shown by `leasehold list`
    #[arg(long, value_name = "TEXT", help_heading = LEASE)]
    comment: Option<String>,

    /// After a loss, acquire again, and start the command again
    #[arg(long, help_heading = WAITING)]
    again: bool,

    #[command(flatten)]
    command: CommandArgs,
}

impl HoldArgs {
    /// Those of a hold that has no other options.
    pub(super) fn new(
        wait: WaitArgs,
        ttl: Option<Ttl>,
        comment: Option<String>,
        command: CommandArgs,
    ) -> Self {
        Self { wait, ttl, max_hold: None, lock_delay: None, comment, again: false, command }
    }

    /// Checks the options against each other, and takes those that are not given from the environment.
    pub(super) fn checked(self, environment: &Environment) -> Result<Hold, Failure> {
        let ttl = self.ttl.map_or_else(|| environment.option("TTL", values::ttl), some)?;
        let is_ttl_given = ttl.is_some();
        let default = || Ttl::new(DEFAULT_TTL).map_err(leasehold::Error::from);
        let ttl = ttl.map_or_else(default, Ok)?;
        let nothing = Environment::default();
        let CommandArgs { kill_after, kill_after_signal, on_lost, shell, command } = self.command;
        let is_of_command = shell.is_some() || !command.is_empty();
        let of_command = if is_of_command { environment } else { &nothing };
        let positive = |given: Option<Duration>, environment: &Environment, name| {
            given.map_or_else(|| environment.option(name, values::positive_duration), some)
        };
        let max_hold = positive(self.max_hold, of_command, "MAX_HOLD")?;
        let lock_delay = positive(self.lock_delay, of_command, "LOCK_DELAY")?;
        let kill_after =
            kill_after.map_or_else(|| of_command.option("KILL_AFTER", values::duration), some)?;
        let parse = |text: &str| OnLost::from_str(text, false);
        let on_lost = on_lost.map_or_else(|| of_command.option("ON_LOST", parse), some)?;
        let code = |text: &str| text.parse().map_err(|_| "it must be a number from 0 to 255");
        let conflict = self
            .wait
            .conflict_exit_code
            .map_or_else(|| environment.option("CONFLICT_EXIT_CODE", code), some)?;
        let comment = |text: &str| Ok::<_, Infallible>(text.to_owned());
        let comment = self.comment.map_or_else(|| environment.option("COMMENT", comment), some)?;
        let wait = self.wait.wait(environment)?;
        let schedule = Schedule::new(ttl, max_hold, kill_after)?;
        let command = match shell {
            Some(line) => vec!["/bin/sh".into(), "-c".into(), line],
            None => command,
        };
        let program = command.first().map(|name| name.to_string_lossy().into_owned());
        Ok(Hold {
            program: program.filter(|name| Note::default().with_program(name).is_ok()),
            pid: None,
            command,
            schedule,
            on_lost: on_lost.unwrap_or(OnLost::Kill),
            conflict: conflict.map(Exit::custom),
            wait,
            skip: self.wait.skip,
            again: self.again,
            ttl,
            is_ttl_given,
            kill_after,
            kill_after_signal,
            max_hold,
            lock_delay,
            comment,
        })
    }
}

/// An option that is given.
fn some<T>(value: T) -> Result<Option<T>, Failure> {
    Ok(Some(value))
}
