//! The options of `run`.

use std::time::Duration;

use clap::Args;
use leasehold::{Key, Wait};

use super::environment::Environment;
use super::help::long_help;
use super::hold::{HoldArgs, LEASE, WAITING};
use super::values;
use crate::failure::Failure;
use crate::plan::{Plan, Sought, Supersede};

const EXAMPLES: &str = "\
Examples:
  leasehold run backup -- pg_dump -f /backup/db.sql
  leasehold run -n cron:report -- ./report.sh
  leasehold run -w 10m --key db --key cache deploy -- ./deploy.sh
  leasehold run --permits 3 encoders -- ./encode.sh input.mkv
  leasehold run --skip cleanup -c './sweep old | ./archive'

A duration DUR is written as 250ms, 30s, 5m or 1h30m. Options that are not given are taken from
LEASEHOLD_TTL, LEASEHOLD_WAIT, LEASEHOLD_KILL_AFTER, LEASEHOLD_ON_LOST, LEASEHOLD_LOCK_DELAY,
LEASEHOLD_MAX_HOLD, LEASEHOLD_COMMENT and LEASEHOLD_CONFLICT_EXIT_CODE.

The command finds in its environment:
  LEASEHOLD_KEY          the key; several keys are one per line
  LEASEHOLD_TOKEN        the fencing token, where the store has them
  LEASEHOLD_LEASE_FILE   a file with the lease as JSON";

/// Run a command while holding a lock.
///
/// Waits until the lock is free, without a time limit unless -n or -w sets one; runs the command in its own
/// process group; renews the lease while the command lives; releases the lock when the command and the processes
/// that it left in its group have ended. The command has stdin, stdout and stderr; signals are passed on to it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = long_help(EXAMPLES))]
pub(crate) struct RunArgs {
    /// The key to lock
    #[arg(value_parser = values::key())]
    key: Key,

    /// Another key of the same lease; may be repeated
    #[arg(long = "key", value_name = "KEY", value_parser = values::key(), help_heading = LEASE)]
    more_keys: Vec<Key>,

    /// Share the lock with other shared holders
    #[arg(short, long, help_heading = LEASE)]
    shared: bool,

    /// Share the lock with others while it has fewer than N holders
    #[arg(long, value_name = "N", value_parser = values::permits, help_heading = LEASE)]
    permits: Option<u32>,

    /// Keep the lock taken for at least this long, even if the command ends earlier
    #[arg(long, value_name = "DUR", value_parser = values::positive_duration, help_heading = LEASE)]
    min_hold: Option<Duration>,

    /// After a success, keep the lock taken for this long from the end of the command, so that no other run begins; a
    /// failure frees it at once
    #[arg(long, value_name = "DUR", value_parser = values::positive_duration, conflicts_with_all = ["shared", "permits"], help_heading = LEASE)]
    once_per: Option<Duration>,

    /// End the lease that holds the lock, and run as soon as its term is over: until then its holder may run on. With
    /// `=now` at once, beside it: only the token protects then
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true, default_missing_value = "after-term", conflicts_with_all = ["skip", "shared", "permits"], help_heading = WAITING)]
    supersede: Option<Supersede>,

    #[command(flatten)]
    hold: HoldArgs,
}

impl RunArgs {
    /// Checks the options against each other.
    pub(crate) fn plan(self, environment: &Environment) -> Result<Plan, Failure> {
        let mut keys = vec![self.key];
        for key in self.more_keys {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let hold = self.hold.checked(environment)?;
        if self.supersede == Some(Supersede::AfterTerm) && hold.wait == Wait::No {
            return Err(Failure::usage(
                "--supersede waits until the holder has ended; give --supersede=now, or no --nonblock",
            ));
        }
        Ok(Plan {
            keys,
            hold,
            sought: Sought::Lock {
                shared: self.shared,
                permits: self.permits,
                min_hold: self.min_hold,
            },
            once_per: self.once_per,
            supersede: self.supersede,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::plan::OnLost;
    use clap::Parser as _;

    fn plan(line: &str) -> Result<Plan, String> {
        plan_in(&[], line)
    }

    fn plan_in(variables: &[(&str, &str)], line: &str) -> Result<Plan, String> {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let environment = variables.collect();
        let words = ["leasehold", "run"].into_iter().chain(line.split_ascii_whitespace());
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Run(args) => args.plan(&environment).map_err(|failure| failure.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn waits_for_ever_by_default() {
        assert_eq!(plan("k -- c").unwrap().hold.wait, Wait::Forever);
        assert_eq!(plan("-n k -- c").unwrap().hold.wait, Wait::No);
        let wait = plan("-w 2s k -- c").unwrap().hold.wait;
        assert_eq!(wait, Wait::UpTo(Duration::from_secs(2)));
    }

    #[test]
    fn what_is_given_comes_before_the_environment() {
        let variables = [
            ("LEASEHOLD_WAIT", "5"),
            ("LEASEHOLD_TTL", "1m"),
            ("LEASEHOLD_ON_LOST", "ignore"),
            ("LEASEHOLD_COMMENT", "nightly"),
            ("LEASEHOLD_CONFLICT_EXIT_CODE", "75"),
        ];
        let hold = |line| plan_in(&variables, line).unwrap().hold;
        let set = hold("k -- c");
        assert_eq!(set.wait, Wait::UpTo(Duration::from_secs(5)));
        assert_eq!((set.ttl(), set.is_ttl_given), (Duration::from_secs(60), true));
        assert_eq!((set.on_lost, set.comment.as_deref()), (OnLost::Ignore, Some("nightly")));
        assert_eq!(set.conflict.unwrap().code(), 75);
        assert_eq!(hold("-n k -- c").wait, Wait::No);
        assert_eq!(hold("--skip k -- c").wait, Wait::No);
        let given = hold("-w 1s --ttl 9s --on-lost kill --comment x -E 3 k -- c");
        assert_eq!(given.wait, Wait::UpTo(Duration::from_secs(1)));
        assert_eq!((given.ttl(), given.on_lost), (Duration::from_secs(9), OnLost::Kill));
        assert_eq!(given.comment.as_deref(), Some("x"));
        let error = plan_in(&[("LEASEHOLD_MAX_HOLD", "0s")], "k -- c").unwrap_err();
        assert!(error.contains("LEASEHOLD_MAX_HOLD is \"0s\": it must be longer"), "{error}");
    }

    #[test]
    fn a_line_for_the_shell_takes_the_place_of_the_command() {
        let hold = plan("k -c exit").unwrap().hold;
        assert_eq!(hold.command, ["/bin/sh", "-c", "exit"]);
        assert_eq!(hold.program.as_deref(), Some("/bin/sh"));
    }

    #[test]
    fn a_key_may_be_named_once_and_the_command_is_kept_verbatim() {
        let plan = plan("b --key a --key b -- sh -c -n --key").unwrap();
        assert_eq!(plan.keys, [Key::new("b").unwrap(), Key::new("a").unwrap()]);
        assert_eq!(plan.hold.command, ["sh", "-c", "-n", "--key"]);
    }

    #[test]
    fn mistakes_are_refused() {
        for (line, fragment) in [
            ("-- c", "<KEY>"),
            ("k", "COMMAND"),
            ("k --", "COMMAND"),
            ("k c", "unexpected argument"),
            ("-n -w 1s k -- c", "cannot be used with"),
            ("-q -v k -- c", "cannot be used with"),
            ("--once-per 0s k -- c", "longer than zero"),
            ("--once-per 1h -s k -- c", "cannot be used with"),
            ("--supersede -n k -- c", "--supersede=now"),
            ("--supersede --skip k -- c", "cannot be used with"),
            ("--supersede=soon k -- c", "possible values: after-term, now"),
            ("-n --skip k -- c", "cannot be used with"),
            ("--skip -E 3 k -- c", "cannot be used with"),
            ("-c exit k -- c", "cannot be used with"),
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
            assert!(error.contains(fragment), "{line}: {error}");
        }
    }

    #[test]
    fn invalid_keys_are_refused() {
        use std::os::unix::ffi::OsStringExt as _;

        let long = "k".repeat(1_025).into_bytes();
        for (key, fragment) in [
            (b"".to_vec(), "the key is empty"),
            (b"a\xff".to_vec(), "not UTF-8"),
            (b"a\nb".to_vec(), "control character"),
            (long, "1025 bytes"),
        ] {
            let words = ["leasehold".into(), "run".into(), OsString::from_vec(key)];
            let words = words.into_iter().chain(["--".into(), "c".into()]);
            let error = Cli::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains(fragment), "{error}");
        }
    }
}
