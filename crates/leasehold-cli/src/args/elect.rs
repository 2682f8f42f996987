//! The options of `elect`.

use clap::Args;
use leasehold::{GroupName, Key};

use super::help::long_help;
use super::hold::HoldArgs;
use super::values;
use crate::failure::Failure;
use crate::plan::{Plan, Sought};
use crate::report::Level;

const EXAMPLES: &str = "\
Examples:
  leasehold elect scheduler -- ./scheduler
  leasehold elect scheduler --candidate-name node-3 --ttl 10s --again -- ./scheduler

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
    #[arg(long, value_name = "NAME")]
    candidate_name: Option<GroupName>,

    /// When the leadership is lost, campaign again and start the command again once elected
    #[arg(long)]
    again: bool,

    #[command(flatten)]
    hold: HoldArgs,
}

impl ElectArgs {
    /// How much to report.
    pub(crate) fn level(&self) -> Level {
        self.hold.level()
    }

    /// Checks the options against each other.
    pub(crate) fn plan(self) -> Result<Plan, Failure> {
        Ok(Plan {
            keys: vec![self.name.clone()],
            hold: self.hold.checked()?,
            again: self.again,
            sought: Sought::Leadership { name: self.name, candidate_name: self.candidate_name },
        })
    }
}
