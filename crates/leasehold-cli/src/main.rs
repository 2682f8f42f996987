//! The `leasehold` command: holds a distributed lock while a command runs, and shows and breaks locks.
//!
//! - [`args`] parses the command line, purely; [`store`] finds the store.
//! - [`run`] is the main job: it acquires the lock and runs the command, for `elect` too; its [`shim`] is a
//!   separate process that ensures that the command does not outlive the lock.
//! - [`commands`] are the others: list, status, leader, break, purge, init.
//! - [`folder`] is the directory in which a run keeps files for its command.
//! - [`exit`] has every exit code, [`report`] every message, [`record`] and [`output`] every result.

#[cfg(not(unix))]
compile_error!(
    "the leasehold command needs process groups and signals: it runs on Unix systems only"
);

mod args;
mod commands;
mod exit;
mod failure;
mod folder;
mod nodes;
mod output;
mod record;
mod report;
mod run;
mod shim;
mod store;

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use args::{Cli, Command};
use exit::{Death, Exit};
use failure::Failure;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::killpg;
use nix::unistd::getpgrp;
use report::{Event, Level, Reporter};
use run::TerminalStopsBlocked;

/// How long the end of the process waits for the reader of its messages.
const LAST_WORDS: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    if shim::is_this_process() {
        return shim::main();
    }
    if shim::launcher::is_this_process() {
        return shim::launcher::main();
    }
    match Cli::from_process() {
        Ok(cli) => {
            let exit = execute(cli);
            if let Some(death) = exit.death() {
                die_of(death);
            }
            exit.into()
        }
        Err(code) => code,
    }
}

/// Ends this process as the keyboard would have, so that a script that runs it ends too. If a step fails, the exit
/// code still says so.
fn die_of(death: Death) {
    if death.of_the_group {
        // This process has a handler and is spared.
        let _ = killpg(getpgrp(), death.signal);
    }
    // Without a core dump, which was the command's.
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let _ = signal_hook::low_level::emulate_default_handler(death.signal as i32);
}

fn execute(cli: Cli) -> Exit {
    // Before any thread starts: all threads inherit it.
    let terminal_stops = match &cli.command {
        Command::Run(_) | Command::Elect(_) => TerminalStopsBlocked::new().ok(),
        _ => None,
    };
    let level = match &cli.command {
        Command::Run(args) => args.level(),
        Command::Elect(args) => args.level(),
        _ => Level::Problems,
    };
    let reporter = Reporter::start(level, cli.json);
    let exit = dispatch(cli, terminal_stops.as_ref(), &reporter).unwrap_or_else(|failure| {
        reporter.say(&Event::Failed { failure: &failure });
        failure.exit()
    });
    reporter.settle(LAST_WORDS);
    exit
}

fn dispatch(
    cli: Cli,
    terminal_stops: Option<&TerminalStopsBlocked>,
    reporter: &Reporter,
) -> Result<Exit, Failure> {
    let store = store::Choice::new(cli.store)?;
    let json = cli.json;
    match cli.command {
        Command::Run(args) => wait_for(run::run(args.plan()?, &store, terminal_stops, reporter)),
        Command::Elect(args) => wait_for(run::run(args.plan()?, &store, terminal_stops, reporter)),
        Command::List(args) => wait_for(commands::list(args, &store, json, reporter)),
        Command::Status(args) => wait_for(commands::status(args, &store, json)),
        Command::Leader(args) => wait_for(commands::leader(args, &store, json, reporter)),
        Command::Break(args) => wait_for(commands::end_by_force(args, &store, json)),
        Command::Purge(args) => wait_for(commands::purge(args, &store, json, reporter)),
        Command::Init(args) if args.print => commands::print_schema(&store, json),
        Command::Init(_) => wait_for(commands::init(&store, json)),
    }
}

/// Runs `job` in this thread and background work in another, so that neither delays the other.
fn wait_for(job: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::unexpected(format!("no thread could be started: {error}")))?;
    let result = runtime.block_on(job);
    // A store that hangs must not keep the process from ending.
    runtime.shutdown_background();
    result
}
