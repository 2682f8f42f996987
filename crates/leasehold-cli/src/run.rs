//! `leasehold run`: holds a lock while a command lives.
//!
//! - [`Plan`] is what is asked for, [`Program`] finds and starts the command, [`Signals`] are those that this
//!   process receives.
//! - [`Group`] is the command and its process group, [`ProcessTable`](process_table::ProcessTable) finds
//!   what descends from it, [`Terminal`](terminal::Terminal) lends it the foreground.
//! - [`Schedule`] says when the command must go, [`Supervisor`] sees to it.

mod command;
mod group;
mod process_table;
mod schedule;
mod signals;
mod supervisor;
mod terminal;

use std::future::IntoFuture as _;
use std::io;
use std::time::Duration;

use leasehold::{ErrorKind, Guard, LeaseReleased, Locker};
use nix::sys::signal::Signal;

pub(crate) use schedule::Schedule;
pub(crate) use signals::TerminalStopsBlocked;

use crate::args::{OnLost, Plan};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::{Event, Reporter};
use crate::store::Choice;
use command::{LeaseFile, Program};
use group::Group;
use signals::Signals;
use supervisor::{Ended, Supervisor};

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
            let job = Job { plan: &plan, program, terminal_stops, reporter };
            job.hold(guard, signals).await
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

/// The command and what it needs, while the lock is held.
struct Job<'a> {
    plan: &'a Plan,
    program: Program,
    terminal_stops: Option<&'a TerminalStopsBlocked>,
    reporter: &'a Reporter,
}

impl Job<'_> {
    /// Runs the command to its end, and then releases the lock whatever happened.
    async fn hold(self, guard: Guard, signals: Signals) -> Result<Exit, Failure> {
        let lease = guard.lease();
        let keys = &self.plan.keys;
        self.reporter.say(&Event::Acquired { keys, lease: &lease.id, token: lease.token });
        let ended = self.run(&guard, signals).await;
        let held_to_the_end = self.release(guard).await;
        let Ended { status, doomed, lost } = ended?;
        if !held_to_the_end && !lost {
            self.reporter.say(&Event::Overrun);
        }
        if doomed || (!held_to_the_end && self.plan.on_lost != OnLost::Ignore) {
            return Ok(Exit::LOST);
        }
        status.map(Exit::of_status).map_err(unexpected)
    }

    /// Runs the command to its end.
    async fn run(&self, guard: &Guard, mut signals: Signals) -> Result<Ended, Failure> {
        let lease_file = LeaseFile::write(guard.lease())?;
        // All that can fail comes before the command is started: it is never left alone.
        signals.listen_for_command().map_err(unexpected)?;
        Group::adopt_orphans().map_err(unexpected)?;
        let start = || self.program.start(&self.plan.keys, &lease_file);
        let leader = match self.terminal_stops {
            Some(terminal_stops) => terminal_stops.lifted(start).map_err(unexpected)??,
            None => start()?,
        };
        let group = Group::new(leader);
        self.reporter.say(&Event::Started { pid: group.id().as_raw() });
        let Plan { schedule, on_lost, .. } = *self.plan;
        let supervisor = Supervisor::new(group, guard, signals, schedule, on_lost, self.reporter);
        let ended = supervisor.run().await;
        if let Ok(status) = ended.status {
            self.reporter.say(&Event::Exited { exit: Exit::of_status(status) });
        }
        Ok(ended)
    }

    /// Gives the lock back; false if it was found to have been lost before.
    async fn release(&self, guard: Guard) -> bool {
        match guard.release().await.map(|report| report.outcome) {
            Ok(LeaseReleased::Released) => self.reporter.say(&Event::Released { kept: None }),
            Ok(LeaseReleased::Kept(kept)) => {
                self.reporter.say(&Event::Released { kept: Some(kept) });
            }
            Ok(LeaseReleased::Expired | LeaseReleased::NotHeld) => return false,
            Ok(LeaseReleased::Failed(error)) | Err(error) => {
                self.reporter.say(&Event::ReleaseFailed { error: &error });
            }
        }
        true
    }
}

fn unexpected(error: impl Into<io::Error>) -> Failure {
    Failure::unexpected(error.into().to_string())
}
