//! The options of a hold without a command: `acquire`, `renew`, `release`, `held` and `wait`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use leasehold::{Key, Ttl};

use super::environment::Environment;
use super::hold::{CommandArgs, HoldArgs, LEASE, WaitArgs};
use super::values;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::handed_over::HandedOver;
use crate::plan::{Plan, Sought};

/// Acquire a lock and leave it held.
///
/// Prints the lease as JSON, or writes it to a file that only this user can read. Without --keep-alive nothing renews it:
/// it ends after its TTL unless `leasehold renew` is called in time. `leasehold release` ends it earlier. Whoever has the lease holds the
/// lock. The listing shows the process that has called this one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold acquire --ttl 10m deploy -o deploy.lease && leasehold renew deploy.lease
  lease=$(leasehold acquire --ttl 10m deploy) || exit
  leasehold acquire --keep-alive $$ deploy -o deploy.lease
  echo \"$lease\" | leasehold release -")]
pub(crate) struct AcquireArgs {
    /// The keys of the lease
    #[arg(required = true, value_name = "KEY", value_parser = values::key())]
    keys: Vec<Key>,

    /// Write the lease to this file, which must not exist, and print nothing
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Share the lock with other shared holders
    #[arg(short, long, help_heading = LEASE)]
    shared: bool,

    /// Share the lock with others while it has fewer than N holders
    #[arg(long, value_name = "N", value_parser = values::permits, help_heading = LEASE)]
    permits: Option<u32>,

    /// How long the lease holds unless it is renewed, 10ms to 10 years or `never`
    /// [default: 30s, or the longest that the store accepts]
    #[arg(long, value_name = "DUR", value_parser = values::ttl, help_heading = LEASE)]
    ttl: Option<Ttl>,

    /// A comment for people, shown by `leasehold list`
    #[arg(long, value_name = "TEXT", help_heading = LEASE)]
    comment: Option<String>,

    /// Leave a process behind that renews the lease until the process PID ends, and releases it then; `$$` is a script
    #[arg(long, value_name = "PID", help_heading = LEASE)]
    pub(crate) keep_alive: Option<u32>,

    #[command(flatten)]
    wait: WaitArgs,
}

impl AcquireArgs {
    /// Checks the options against each other.
    pub(crate) fn plan(self, environment: &Environment) -> Result<Plan, Failure> {
        let Self { keys, shared, permits, ttl, comment, wait, .. } = self;
        let mut seen = Vec::new();
        for key in keys {
            if !seen.contains(&key) {
                seen.push(key);
            }
        }
        let hold = HoldArgs::new(wait, ttl, comment, CommandArgs::default());
        let hold = hold.checked(environment)?;
        if hold.skip || hold.conflict == Some(Exit::SUCCESS) {
            return Err(Failure::usage(
                "a script takes exit code 0 of acquire for a lock that it has; --skip and the code 0 for a conflict are not \
                 allowed",
            ));
        }
        Ok(Plan {
            keys: seen,
            hold,
            sought: Sought::Lock { shared, permits, min_hold: None },
            once_per: None,
            supersede: None,
        })
    }
}

/// Run a command under a lease that `leasehold acquire` left held.
///
/// Takes the lease over: removes FILE, renews the lease while the command lives, and releases it then. The command runs as
/// under `leasehold run`. The exit code is 123 if the lease is lost. A lease with --keep-alive stays with that process.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold acquire --ttl 10m deploy -o deploy.lease
  leasehold adopt deploy.lease -- ./deploy.sh")]
pub(crate) struct AdoptArgs {
    /// The file with the lease as JSON; `-` is stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,

    #[command(flatten)]
    command: CommandArgs,
}

impl AdoptArgs {
    /// Checks the options against each other, and against the lease.
    pub(crate) fn plan(
        self,
        handed_over: HandedOver,
        environment: &Environment,
    ) -> Result<Plan, Failure> {
        let lease = &handed_over.lease;
        let hold = HoldArgs::new(WaitArgs::none(), Some(lease.ttl), None, self.command);
        Ok(Plan {
            keys: lease.claims.keys().cloned().collect(),
            hold: hold.checked(&environment.of_command())?,
            sought: Sought::HandedOver(Box::new(handed_over)),
            once_per: None,
            supersede: None,
        })
    }
}

/// Renew a lease, and show what is left of it.
///
/// The exit code is 123 if it is lost.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold renew deploy.lease")]
pub(crate) struct RenewArgs {
    /// The file with the lease as JSON; `-` is stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Release a lease.
///
/// Then removes FILE. The exit code is 123 if it was not held any more.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold release deploy.lease
  echo \"$lease\" | leasehold release -")]
pub(crate) struct ReleaseArgs {
    /// The file with the lease as JSON; `-` is stdin
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

/// Show whether a lease still holds its keys.
///
/// The exit code is 0 if it does, and 123 if it does not. In a command that runs under a lock the lease is its own.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold held deploy.lease
  leasehold run report -c 'step1 && leasehold held && step2'")]
pub(crate) struct HeldArgs {
    /// The file with the lease as JSON; `-` is stdin [default: that of the command under a lock, LEASEHOLD_LEASE_FILE]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// Wait until nobody holds the keys.
///
/// Takes nothing: another process may get a key first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold wait deploy && ./next.sh
  leasehold wait -w 10m report:daily report:monthly")]
pub(crate) struct WaitForArgs {
    /// The keys
    #[arg(required = true, value_name = "KEY", value_parser = values::key())]
    pub(crate) keys: Vec<Key>,

    /// Wait at most this long, then exit with 124; a number alone is seconds [default: without end]
    #[arg(short, long, value_name = "DUR", value_parser = values::wait)]
    pub(crate) wait: Option<Duration>,
}
