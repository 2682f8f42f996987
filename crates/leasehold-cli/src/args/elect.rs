//! The options of `elect`.

use clap::Args;
use leasehold::{GroupName, Key};

use super::environment::Environment;
use super::help::long_help;
use super::hold::{HoldArgs, LEASE};
use super::values;
use crate::failure::Failure;
use crate::plan::{Plan, Sought};

const EXAMPLES: &str = "\
Examples:
  leasehold elect scheduler -- ./scheduler
  leasehold elect scheduler --candidate-name node-3 --ttl 10s --again -- ./scheduler

A duration DUR is written as 250ms, 30s, 5m or 1h30m.

The command finds in its environment:
  LEASEHOLD_KEY          the name of the election
  LEASEHOLD_TOKEN        the fencing token, where the store has them
  LEASEHOLD_LEASE_FILE   a file with the lease as JSON";

/// Run a command while leading in an election.
///
/// Campaigns until elected, without a time limit unless -n or -w sets one. Runs the command as `leasehold run` does,
/// and leads while it runs. Resigns when the command and the processes that it left in its group have ended. The leader
/// is the holder of the lock NAME: `leasehold leader NAME` shows it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = long_help(EXAMPLES))]
pub(crate) struct ElectArgs {
    /// The name of the election
    #[arg(value_parser = values::key())]
    name: Key,

    /// The name of this candidate, for people to read [default: a random one]
    #[arg(long, value_name = "NAME", help_heading = LEASE)]
    candidate_name: Option<GroupName>,

    #[command(flatten)]
    hold: HoldArgs,
}

impl ElectArgs {
    /// Checks the options against each other.
    pub(crate) fn plan(self, environment: &Environment) -> Result<Plan, Failure> {
        Ok(Plan {
            keys: vec![self.name.clone()],
            hold: self.hold.checked(environment)?,
            sought: Sought::Leadership { name: self.name, candidate_name: self.candidate_name },
            once_per: None,
            supersede: None,
        })
    }
}
