//! The `leasehold` command: holds a distributed lock while a command runs, and shows and breaks locks.
//!
//! - [`args`] parses the command line, purely; [`store`] finds the store.
//! - [`run`] is the main job: it acquires the lock and runs the command, for `elect` too; its [`shim`] is a
//!   separate process that ensures that the command does not outlive the lock.
//! - [`commands`] are the others: acquire, adopt, renew, release, held, wait, list,
//!   status, leader, break, purge, init, doctor, completions, man.
//! - [`eviction`] ends leases by force, for `break` and for `run --supersede`.
//! - [`folder`] is the directory in which a run keeps files for its command.
//! - A lease that is [`handed_over`] is a file; [`keepalive`] is a process that renews one.
//! - [`exit`] has every exit code, [`report`] every message, [`record`] and [`output`] every result.

#[cfg(not(unix))]
compile_error!(
    "the leasehold command needs process groups and signals: it runs on Unix systems only"
);

mod args;
mod background;
mod commands;
mod eviction;
mod exit;
mod failure;
mod folder;
mod handed_over;
mod holder;
mod keepalive;
mod nodes;
mod output;
mod plan;
mod process;
mod record;
mod report;
mod run;
mod shim;
mod store;

use std::future::Future;
use std::io::Write as _;
use std::panic::PanicHookInfo;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use args::{Cli, Command, Environment};
use exit::{Death, Exit};
use failure::Failure;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::killpg;
use nix::unistd::getpgrp;
use report::{Event, Reporter};
use run::SignalMask;

/// How long the end of the process waits for the reader of its messages.
const LAST_WORDS: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    if shim::is_this_process() {
        return shim::main();
    }
    if keepalive::is_this_process() {
        return keepalive::main();
    }
    std::panic::set_hook(Box::new(exit_of_panic));
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

/// Also in a thread: a `leasehold` without it could wait for ever. If a command runs, its shim ends it.
fn exit_of_panic(panic: &PanicHookInfo<'_>) {
    let text = panic.payload().downcast_ref::<String>().map(String::as_str);
    let text = text.or(panic.payload().downcast_ref::<&str>().copied()).unwrap_or("a panic");
    let at = panic.location().map(|at| format!(" ({at})")).unwrap_or_default();
    let _ = writeln!(std::io::stderr(), "leasehold: {text}{at}");
    std::process::exit(Exit::UNEXPECTED.code().into());
}

/// Ends this process as the keyboard would have, so that a script that runs it ends too. If a step fails, the exit
/// code still reports it.
fn die_of(death: Death) {
    if death.of_the_group {
        // This process has a handler and is spared.
        let _ = killpg(getpgrp(), death.signal);
    }
    // Without a core dump, which was the command's.
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    exit::die_of(death.signal);
}

fn execute(cli: Cli) -> Exit {
    // Before any thread starts: all threads inherit it.
    let mask = match &cli.command {
        Command::Run(_) | Command::Elect(_) | Command::Adopt(_) => SignalMask::set().ok(),
        _ => None,
    };
    let reporter = match Reporter::start(cli.level(), cli.json) {
        Ok(reporter) => reporter,
        Err(failure) => return failure.exit(),
    };
    // Without it the signal has its default action.
    let file_limit = run::survive_file_size_limit().unwrap_or_default();
    let exit = dispatch(cli, mask.as_ref(), &reporter).unwrap_or_else(|failure| {
        let failure = match file_limit.load(Ordering::Relaxed) {
            true => failure
                .because("a file would have grown beyond the limit for this process (ulimit -f)"),
            false => failure,
        };
        reporter.report(&Event::Failed { failure: &failure });
        failure.exit()
    });
    reporter.settle(LAST_WORDS);
    exit
}

fn dispatch(cli: Cli, mask: Option<&SignalMask>, reporter: &Reporter) -> Result<Exit, Failure> {
    let environment = Environment::of_process();
    for name in environment.unknown() {
        reporter.report(&Event::UnknownVariable { name: &name });
    }
    let store = match &cli.command {
        Command::Completions(_) | Command::Man(_) => store::Choice::Default,
        _ => store::Choice::new(cli.store)?,
    };
    let json = cli.json;
    match cli.command {
        Command::Run(args) => wait_for(run::run(args.plan(&environment)?, &store, mask, reporter)),
        Command::Elect(args) => {
            wait_for(run::run(args.plan(&environment)?, &store, mask, reporter))
        }
        Command::Acquire(args) => {
            wait_for(commands::acquire(*args, &environment, &store, reporter))
        }
        Command::Adopt(args) => {
            wait_for(commands::adopt(args, &environment, &store, mask, reporter))
        }
        Command::Renew(args) => wait_for(commands::renew(args, &store, json)),
        Command::Release(args) => wait_for(commands::release(args, &store)),
        Command::Held(args) => wait_for(commands::held(args, &store, json)),
        Command::Wait(args) => wait_for(commands::wait(args, &store, reporter)),
        Command::List(args) => wait_for(commands::list(args, &store, json, reporter)),
        Command::Status(args) => wait_for(commands::status(args, &store, json)),
        Command::Why(args) => wait_for(commands::why(args, &store, json)),
        Command::Leader(args) => wait_for(commands::leader(args, &store, json, reporter)),
        Command::Break(args) => wait_for(commands::end_by_force(args, &store, json)),
        Command::Purge(args) => wait_for(commands::purge(args, &store, json, reporter)),
        Command::Init(args) if args.print => commands::print_schema(&store, json),
        Command::Init(_) => wait_for(commands::init(&store, json)),
        Command::Doctor(_) => wait_for(commands::doctor(&store, json)),
        Command::Completions(args) => commands::completions(&args),
        Command::Man(args) => commands::man(&args),
    }
}

fn wait_for(job: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    background::wait_for(job).map_err(failure::no_thread)?
}
