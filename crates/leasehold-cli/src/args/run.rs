//! The options of `run`, and the plan that they make.

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use leasehold::{Acquiring, Guard, Key, Locker, Ttl, Wait};

use super::{long_help, values};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::Level;
use crate::run::Schedule;

const EXAMPLES: &str = "\
Examples:
  leasehold run backup -- pg_dump -f /backup/db.sql
  leasehold run -n cron:report -- ./report.sh
  leasehold run -w 10m --key db --key cache deploy -- ./deploy.sh
  leasehold run --permits 3 encoders -- ./encode.sh input.mkv

The command finds in its environment:
  LEASEHOLD_KEY          the key; several keys one a line
  LEASEHOLD_TOKEN        the fencing token, where the store has them
  LEASEHOLD_LEASE_FILE   a file with the lease as JSON";

/// Run a command while holding a lock.
///
/// Waits until the lock is free, for ever unless -n or -w says otherwise; runs the command in a process
/// group of its own; renews the lease while the command lives; releases the lock when the command and what
/// it left in its group have ended. stdin, stdout and stderr are the command's; signals are passed on to it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = long_help(EXAMPLES))]
pub(crate) struct RunArgs {
    /// What is locked
    #[arg(value_parser = values::key())]
    key: Key,

    /// Another key of the same lease; may be repeated
    #[arg(long = "key", value_name = "KEY", value_parser = values::key())]
    more_keys: Vec<Key>,

    /// Do not wait: fail at once if the lock is held
    #[arg(short, long, conflicts_with = "wait")]
    nonblock: bool,

    /// Wait at most this long
    #[arg(short, long, value_name = "DUR", value_parser = values::duration)]
    wait: Option<Duration>,

    /// How long the lock outlives a crash of leasehold; it is renewed at a third of this
    #[arg(long, value_name = "DUR", default_value = "30s", value_parser = values::ttl)]
    ttl: Ttl,

    /// Share the lock with other shared holders
    #[arg(short, long)]
    shared: bool,

    /// Share the lock with others while it has fewer than N holders
    #[arg(long, value_name = "N", value_parser = values::permits)]
    permits: Option<u32>,

    /// Keep the lock taken for at least this long, even if the command ends earlier
    #[arg(long, value_name = "DUR", value_parser = values::positive_duration)]
    min_hold: Option<Duration>,

    /// End the command when it has held the lock for this long
    #[arg(long, value_name = "DUR", value_parser = values::positive_duration)]
    max_hold: Option<Duration>,

    /// Keep the lock this much longer in the store than the command is allowed to rely on
    #[arg(long, value_name = "DUR", value_parser = values::positive_duration)]
    lock_delay: Option<Duration>,

    /// Why the lock is held, for people to read
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,

    /// The time from asking the command to end to killing it, below a third of the TTL
    /// [default: the smaller of 5s and a sixth of the TTL]
    #[arg(short, long, value_name = "DUR", value_parser = values::duration)]
    kill_after: Option<Duration>,

    /// What becomes of the command when the lease is lost
    #[arg(long, value_name = "ACTION", default_value = "kill")]
    on_lost: OnLost,

    /// The exit code for a lock that is held by somebody else
    #[arg(short = 'E', long, value_name = "N", default_value_t = Exit::NOT_ACQUIRED.code())]
    conflict_exit_code: u8,

    /// Say nothing: the exit code tells all
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,

    /// Say what is done; twice, also each renewal
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What becomes of the command when the lease is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// It is asked to end, and killed before the term ends
    Kill,
    /// It is asked to end
    Signal,
    /// Nothing; a message is written
    Ignore,
}

/// What `run` is to do, checked as far as it can be before anything is done.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) keys: Vec<Key>,
    pub(crate) command: Vec<OsString>,
    pub(crate) schedule: Schedule,
    pub(crate) on_lost: OnLost,
    pub(crate) conflict: Exit,
    lock: Lock,
}

#[derive(Debug)]
struct Lock {
    wait: Wait,
    ttl: Ttl,
    shared: bool,
    permits: Option<u32>,
    min_hold: Option<Duration>,
    max_hold: Option<Duration>,
    lock_delay: Option<Duration>,
    comment: Option<String>,
}

impl RunArgs {
    /// How much is to be said.
    pub(crate) fn level(&self) -> Level {
        match (self.quiet, self.verbose) {
            (true, _) => Level::Silent,
            (false, 0) => Level::Problems,
            (false, 1) => Level::Steps,
            (false, _) => Level::Renewals,
        }
    }

    /// Checks what must fit together.
    pub(crate) fn plan(self) -> Result<Plan, Failure> {
        let schedule = Schedule::new(self.ttl, self.max_hold, self.kill_after)?;
        let mut keys = vec![self.key];
        for key in self.more_keys {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let wait = match (self.nonblock, self.wait) {
            (true, _) => Wait::No,
            (false, Some(limit)) => Wait::UpTo(limit),
            (false, None) => Wait::Forever,
        };
        Ok(Plan {
            keys,
            command: self.command,
            schedule,
            on_lost: self.on_lost,
            conflict: Exit::custom(self.conflict_exit_code),
            lock: Lock {
                wait,
                ttl: self.ttl,
                shared: self.shared,
                permits: self.permits,
                min_hold: self.min_hold,
                max_hold: self.max_hold,
                lock_delay: self.lock_delay,
                comment: self.comment,
            },
        })
    }
}

impl Plan {
    /// The lock that is asked for.
    pub(crate) fn acquiring(&self, locker: &Locker) -> Acquiring<Guard> {
        let lock = &self.lock;
        let mut acquiring = locker.lock_all(&self.keys).ttl(lock.ttl).wait(lock.wait);
        acquiring = match lock.permits {
            Some(permits) => acquiring.permits(permits),
            None if lock.shared => acquiring.shared(),
            None => acquiring,
        };
        if let Some(min_hold) = lock.min_hold {
            acquiring = acquiring.min_hold(min_hold);
        }
        if let Some(max_hold) = lock.max_hold {
            acquiring = acquiring.max_hold(max_hold);
        }
        if let Some(lock_delay) = lock.lock_delay {
            acquiring = acquiring.lock_delay(lock_delay);
        }
        match &lock.comment {
            Some(comment) => acquiring.comment(comment),
            None => acquiring,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn plan(line: &str) -> Result<Plan, String> {
        let words = ["leasehold", "run"].into_iter().chain(line.split_ascii_whitespace());
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Run(args) => args.plan().map_err(|failure| failure.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn waits_for_ever_unless_told_otherwise() {
        assert_eq!(plan("k -- c").unwrap().lock.wait, Wait::Forever);
        assert_eq!(plan("-n k -- c").unwrap().lock.wait, Wait::No);
        let wait = plan("-w 2s k -- c").unwrap().lock.wait;
        assert_eq!(wait, Wait::UpTo(Duration::from_secs(2)));
    }

    #[test]
    fn keys_are_named_once_and_the_command_is_taken_as_it_is() {
        let plan = plan("b --key a --key b -- sh -c -n --key").unwrap();
        assert_eq!(plan.keys, [Key::new("b").unwrap(), Key::new("a").unwrap()]);
        assert_eq!(plan.command, ["sh", "-c", "-n", "--key"]);
    }

    #[test]
    fn mistakes_are_refused() {
        for (line, said) in [
            ("-- c", "<KEY>"),
            ("k", "COMMAND"),
            ("k --", "COMMAND"),
            ("k c", "unexpected argument"),
            ("-n -w 1s k -- c", "cannot be used with"),
            ("-q -v k -- c", "cannot be used with"),
            ("--ttl 0s k -- c", "10 ms to 10 years"),
            ("--ttl=-1s k -- c", "such as 30s"),
            ("--ttl 100years k -- c", "at most 10 years"),
            ("--permits 0 k -- c", "from 1 to"),
            ("-E 256 k -- c", "256 is not in"),
            ("--kill-after 10s k -- c", "below a third of the TTL"),
            ("--kill-after 1s --max-hold 3s k -- c", "--max-hold"),
            ("--min-hold 0s k -- c", "longer than zero"),
            ("--on-lost hope k -- c", "possible values: kill, signal, ignore"),
        ] {
            let error = plan(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn keys_that_are_no_keys_are_refused() {
        use std::os::unix::ffi::OsStringExt as _;

        let long = "k".repeat(1_025).into_bytes();
        for (key, said) in [
            (b"".to_vec(), "the key is empty"),
            (b"a\xff".to_vec(), "not UTF-8"),
            (b"a\nb".to_vec(), "control character"),
            (long, "1025 bytes"),
        ] {
            let words = ["leasehold".into(), "run".into(), OsString::from_vec(key)];
            let words = words.into_iter().chain(["--".into(), "c".into()]);
            let error = Cli::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
