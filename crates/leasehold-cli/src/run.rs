//! `leasehold run`: holds a lock while a command lives.
//!
//! - [`Plan`] is what is asked for, [`Program`] finds the command, [`Signals`] are those that this process
//!   receives.
//! - A [`Job`] is a program run under a guard, wherever that is from. Its [`shim`](crate::shim) is the parent of
//!   the command, and ends it; a [`Supervisor`](supervisor::Supervisor) tells the shim until when the command may
//!   run, as the [`Schedule`] reckons it, and acts itself only if the shim does not.

mod command;
mod job;
mod schedule;
mod shim_process;
mod signals;
mod supervisor;

use std::future::IntoFuture as _;
use std::time::Duration;

use leasehold::{ErrorKind, Guard, Locker};
use nix::sys::signal::Signal;

pub(crate) use command::LEASE_FILE;
pub(crate) use schedule::Schedule;
pub(crate) use signals::TerminalStopsBlocked;

use crate::args::Plan;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::{Event, Reporter};
use crate::store::Choice;
use command::Program;
use job::{Job, unexpected};
use signals::Signals;

/// A wait that is over sooner is not worth a word.
const SOON: Duration = Duration::from_millis(50);

/// How long the end waits for what the background still has to release.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// Runs the command under the lock.
pub(crate) async fn run(
    mut plan: Plan,
    store: &Choice,
    terminal_stops: Option<&TerminalStopsBlocked>,
    reporter: &Reporter,
) -> Result<Exit, Failure> {
    let program = Program::find(std::mem::take(&mut plan.command))?;
    let mut signals = Signals::listen().map_err(unexpected)?;
    let locker = tokio::select! {
        biased;
        signal = signals.next() => return Ok(interrupted(signal, reporter)),
        locker = store.open() => locker?,
    };
    let exit = match acquire(&plan, &locker, &mut signals, reporter).await {
        Ok(Awaited::Lock(guard)) => {
            let job = Job {
                program: &program,
                keys: &plan.keys,
                schedule: plan.schedule,
                on_lost: plan.on_lost,
                terminal_stops,
                reporter,
            };
            job.run(guard, &mut signals).await
        }
        Ok(Awaited::Signal(signal)) => Ok(interrupted(signal, reporter)),
        Err(failure) => Err(failure),
    };
    // What was granted to a wait that was broken off is released in the background.
    if let Err(error) = locker.close(CLOSE_LIMIT).await {
        reporter.say(&Event::ReleaseFailed { error: &error });
    }
    exit
}

/// What a wait ended with.
enum Awaited {
    Lock(Guard),
    Signal(Signal),
}

async fn acquire(
    plan: &Plan,
    locker: &Locker,
    signals: &mut Signals,
    reporter: &Reporter,
) -> Result<Awaited, Failure> {
    let mut acquiring = plan.acquiring(locker).into_future();
    let mut told = false;
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => return Ok(Awaited::Signal(signal)),
            acquired = &mut acquiring => return match acquired {
                Ok(guard) => Ok(Awaited::Lock(guard)),
                Err(error) if error.kind() == ErrorKind::Held => {
                    Err(Failure::from(error).with_exit(plan.conflict))
                }
                Err(error) => Err(error.into()),
            },
            () = tokio::time::sleep(SOON), if !told => {
                told = true;
                reporter.say(&Event::Waiting { keys: &plan.keys });
            }
        }
    }
}

fn interrupted(signal: Signal, reporter: &Reporter) -> Exit {
    reporter.say(&Event::Interrupted { signal });
    Exit::of_signal(signal)
}
