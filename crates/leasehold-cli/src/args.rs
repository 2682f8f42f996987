//! Parses the command line, purely: it looks nothing up, opens nothing and runs nothing.

mod elect;
mod environment;
mod filter;
mod help;
mod hold;
mod lease;
mod run;
mod values;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Args, CommandFactory as _, Parser, Subcommand};
use leasehold::inspect::Reason;
use leasehold::{Key, LeaseId};

pub(crate) use elect::ElectArgs;
pub(crate) use environment::Environment;
pub(crate) use filter::{FilterArgs, KeyArgs};
pub(crate) use lease::{AcquireArgs, AdoptArgs, HeldArgs, ReleaseArgs, RenewArgs, WaitForArgs};
pub(crate) use run::RunArgs;

use self::help::{long_help, stores};
use crate::exit::Exit;
use crate::report::Level;

/// Hold a distributed lock while a command runs; show and break locks.
///
/// The lock is held on a lease that is renewed while the command lives. If the lease is lost, the command is ended
/// before another process can get the lock.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, propagate_version = true, max_term_width = 100, after_help = stores(), after_long_help = long_help(""))]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Write results and messages as JSON, one object per line
    #[arg(long, global = true, display_order = 100)]
    pub(crate) json: bool,

    /// Print only failures and losses: the exit code alone shows that the lock is not free. Given twice: print nothing
    #[arg(short, long, global = true, display_order = 101, action = ArgAction::Count, conflicts_with = "verbose")]
    quiet: u8,

    /// Print a message for each step; given twice, also for each renewal
    #[arg(short, long, global = true, display_order = 102, action = ArgAction::Count)]
    verbose: u8,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which store holds the locks.
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// The store that holds the locks
    ///
    /// A password in it is visible in the list of processes; use --store-file or LEASEHOLD_STORE for one.
    #[arg(long, global = true, value_name = "URL", help_heading = "Store")]
    pub(crate) store: Option<String>,

    /// A file that contains the URL of the store
    #[arg(long, global = true, value_name = "FILE", help_heading = "Store")]
    pub(crate) store_file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    Run(Box<RunArgs>),
    /// Run a command while leading in an election
    Elect(Box<ElectArgs>),
    /// Acquire a lock and leave it held
    Acquire(Box<AcquireArgs>),
    /// Run a command under a lease that `acquire` left held
    Adopt(AdoptArgs),
    /// Renew a lease
    Renew(RenewArgs),
    /// Release a lease
    Release(ReleaseArgs),
    /// Show whether a lease still holds its keys
    Held(HeldArgs),
    /// Wait until nobody holds the keys
    Wait(WaitForArgs),
    /// List leases
    List(ListArgs),
    /// Show the holders of keys
    Status(StatusArgs),
    /// Show who holds keys, with all that is known of the holders
    Why(WhyArgs),
    /// Show the leader of an election
    Leader(LeaderArgs),
    /// End the leases on keys by force
    Break(BreakArgs),
    /// Remove expired records
    Purge(PurgeArgs),
    /// Create what the store needs, such as tables
    Init(InitArgs),
    /// Examine the store
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
}

/// List leases.
///
/// The order is not defined, and the list is not a snapshot; a lock that is held throughout is in it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold list
  leasehold list --prefix report: --min-age 1h
  leasehold list --only-expired
  leasehold list --json | jq -r .key")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// On a terminal, show every column in full
    #[arg(long)]
    pub(crate) wide: bool,

    /// Show the list again, on a terminal after each pause, elsewhere at each change, until a signal ends it
    #[arg(long, value_name = "PAUSE", num_args = 0..=1, require_equals = true, default_missing_value = "2s", value_parser = values::positive_duration)]
    pub(crate) watch: Option<Duration>,
}

/// Show the holders of keys.
///
/// The exit code is 0 if one of them is held, and 3 if none is.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold status report:monthly
  if leasehold status deploy -q > /dev/null; then echo busy; fi
  leasehold status report:monthly --json | jq .held")]
pub(crate) struct StatusArgs {
    /// The keys
    #[arg(required = true, value_name = "KEY", value_parser = values::key())]
    pub(crate) keys: Vec<Key>,

    /// On a terminal, show every column in full
    #[arg(long)]
    pub(crate) wide: bool,
}

/// Show who holds keys, with all that is known of the holders.
///
/// Says whether the holder's process runs if it is on this machine. The exit code is 0 if one of the keys is held, and 3 if
/// none is.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold why report:monthly
  leasehold why report:monthly --json | jq -r '.holders[].process'")]
pub(crate) struct WhyArgs {
    /// The keys
    #[arg(required = true, value_name = "KEY", value_parser = values::key())]
    pub(crate) keys: Vec<Key>,
}

/// Show the leader of an election.
///
/// The leader is the holder of the lock NAME. With --watch, what is found first and then each change is
/// shown, until a signal ends it; leaders that come and go between two queries are not seen. While the store
/// does not answer, it reports this once on stderr and continues.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold leader scheduler
  leasehold leader scheduler --watch
  leasehold leader scheduler --json | jq -r .leader.group")]
pub(crate) struct LeaderArgs {
    /// The name of the election
    #[arg(value_parser = values::key())]
    pub(crate) name: Key,

    /// Show each change until a signal ends it
    #[arg(long)]
    pub(crate) watch: bool,
}

/// End the leases on keys by force.
///
/// Lists the live leases and ends exactly those: a lease that is taken meanwhile is not touched. A holder learns
/// of it at its next renewal; `leasehold run` then kills its command at once. A waiting process may get the lock
/// before that, so make sure that the holder is dead, or let the protected resource check the token. The exit code
/// is 3 if there was nothing to break.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold break report:monthly
  leasehold break report:monthly --reason 'host db-3 is gone'
  leasehold break --glob 'report:*' --yes
  leasehold break pool --lease 2c1d9f0e-5b7a-4c3d-9e8f-0a1b2c3d4e5f")]
pub(crate) struct BreakArgs {
    /// The keys
    #[arg(required_unless_present = "glob", value_name = "KEY", value_parser = values::key())]
    pub(crate) keys: Vec<Key>,

    /// The keys that match this pattern as a whole: * is any text, ? is one character
    #[arg(long, value_name = "PATTERN", conflicts_with = "keys")]
    pub(crate) glob: Option<String>,

    /// Do not ask; needed for several keys and for --glob without a terminal
    #[arg(long)]
    pub(crate) yes: bool,

    /// Return when the term is over that the lease had: its holder has ended by then
    #[arg(long)]
    pub(crate) wait: bool,

    /// End only this lease
    #[arg(long, value_name = "ID")]
    pub(crate) lease: Option<LeaseId>,

    /// The reason, shown to the holder
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<Reason>,
}

/// Remove expired records.
///
/// This only saves space: an expired record holds nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold purge
  leasehold purge --prefix report: --batch 100")]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    pub(crate) keys: KeyArgs,

    /// The most records to remove at a time, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = values::batch)]
    pub(crate) batch: usize,
}

/// Create what the store needs, such as tables.
///
/// Needs an administrator's role where the store has roles; running it again changes nothing. An embedded store is
/// created at its first use.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold init
  leasehold init --store sqlite:/var/lib/app/locks.db
  leasehold init --print --store postgres://db/app > migrations/0042_leasehold.sql")]
pub(crate) struct InitArgs {
    /// Print the SQL statements instead of running them; does not connect
    #[arg(long)]
    pub(crate) print: bool,
}

/// Examine the store.
///
/// Shows which store it is and where its URL was found, what its locks guarantee, how fast it answers, the
/// difference of the clocks, each node of a quorum, and hazards: settings that weaken the guarantee. The exit code is
/// 2 if there are hazards.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold doctor
  leasehold doctor --store redis://cache/ --json | jq -r '.hazards[]'")]
pub(crate) struct DoctorArgs {}

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold completions bash > /etc/bash_completion.d/leasehold
  leasehold completions zsh > ~/.zfunc/_leasehold
  leasehold completions fish > ~/.config/fish/completions/leasehold.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// Print the manual page.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  leasehold man | man -l -
  leasehold man --dir /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write the page of each command into this directory instead
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
}

impl Cli {
    /// How much to report.
    pub(crate) fn level(&self) -> Level {
        match (self.quiet, self.verbose) {
            (0, 0) => Level::Problems,
            (0, 1) => Level::Steps,
            (0, _) => Level::Renewals,
            (1, _) => Level::Losses,
            (_, _) => Level::Silent,
        }
    }

    /// Parses the arguments of this process. For `--help`, `--version` and mistakes it prints the message and
    /// returns the exit code.
    pub(crate) fn from_process() -> Result<Self, ExitCode> {
        let parsed = Self::try_parse().and_then(|cli| match (cli.quiet, cli.verbose) {
            (0, _) | (_, 0) => Ok(cli),
            // Before and after the subcommand.
            _ => Err(Self::command()
                .error(ErrorKind::ArgumentConflict, "--quiet cannot be used with --verbose")),
        });
        parsed.map_err(|mut error| {
            hint_at_dashes(&mut error);
            // A reader that closed the pipe does not want it.
            let _ = error.print();
            if error.use_stderr() { Exit::USAGE.into() } else { Exit::SUCCESS.into() }
        })
    }
}

/// Whoever forgets the `--` before the command is told so.
fn hint_at_dashes(error: &mut clap::Error) {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return };
    if error.kind() != ErrorKind::UnknownArgument || word.starts_with('-') {
        return;
    }
    let tip = format!("put `--` before the command: … -- {word} …");
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples() {
        for command in Cli::command().get_subcommands_mut() {
            let help = command.render_long_help().to_string();
            assert!(help.contains("Examples:\n  leasehold "), "{help}");
        }
    }

    #[test]
    fn store_options_may_stand_anywhere() {
        for line in ["--store x: --json status k", "status --json k --store x:"] {
            let words = std::iter::once("leasehold").chain(line.split(' '));
            let cli = Cli::try_parse_from(words).unwrap();
            assert_eq!(cli.store.store.as_deref(), Some("x:"), "{line}");
            assert!(cli.json);
        }
    }

    #[test]
    fn the_level_may_stand_anywhere() {
        for (line, level) in [
            ("status k", Level::Problems),
            ("-v status k", Level::Steps),
            ("status k -v", Level::Steps),
            ("status -vv k", Level::Renewals),
            ("-q status k", Level::Losses),
            ("status -q -q k", Level::Silent),
        ] {
            let words = std::iter::once("leasehold").chain(line.split(' '));
            assert_eq!(Cli::try_parse_from(words).unwrap().level(), level, "{line}");
        }
    }

    #[test]
    fn mistakes_are_refused() {
        for line in [
            "",
            "status",
            "break k --lease hex:0",
            "break k --reason ",
            "purge --batch 0",
            "purge --batch 1001",
            "nothing",
        ] {
            let words = std::iter::once("leasehold").chain(line.split(' '));
            assert!(Cli::try_parse_from(words).unwrap_err().use_stderr(), "{line}");
        }
    }
}
