//! The options of `run`.

use std::time::Duration;

use clap::Args;
use leasehold::Key;

use super::help::long_help;
use super::hold::HoldArgs;
use super::values;
use crate::failure::Failure;
use crate::plan::{Plan, Sought};
use crate::report::Level;

const EXAMPLES: &str = "\
Examples:
  leasehold run backup -- pg_dump -f /backup/db.sql
  leasehold run -n cron:report -- ./report.sh
  leasehold run -w 10m --key db --key cache deploy -- ./deploy.sh
  leasehold run --permits 3 encoders -- ./encode.sh input.mkv

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
    #[arg(long = "key", value_name = "KEY", value_parser = values::key())]
    more_keys: Vec<Key>,

    /// Share the lock with other shared holders
    #[arg(short, long)]
    shared: bool,

    /// Share the lock with others while it has fewer than N holders
    #[arg(long, value_name = "N", value_parser = values::permits)]
    permits: Option<u32>,

    /// Keep the lock taken for at least this long, even if the command ends earlier
    #[arg(long, value_name = "DUR", value_parser = values::positive_duration)]
    min_hold: Option<Duration>,

    #[command(flatten)]
    hold: HoldArgs,
}

impl RunArgs {
    /// How much to report.
    pub(crate) fn level(&self) -> Level {
        self.hold.level()
    }

    /// Checks the options against each other.
    pub(crate) fn plan(self) -> Result<Plan, Failure> {
        let mut keys = vec![self.key];
        for key in self.more_keys {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        Ok(Plan {
            keys,
            hold: self.hold.checked()?,
            again: false,
            sought: Sought::Lock {
                shared: self.shared,
                permits: self.permits,
                min_hold: self.min_hold,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::Parser as _;
    use leasehold::Wait;

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
    fn waits_for_ever_by_default() {
        assert_eq!(plan("k -- c").unwrap().hold.wait, Wait::Forever);
        assert_eq!(plan("-n k -- c").unwrap().hold.wait, Wait::No);
        let wait = plan("-w 2s k -- c").unwrap().hold.wait;
        assert_eq!(wait, Wait::UpTo(Duration::from_secs(2)));
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
