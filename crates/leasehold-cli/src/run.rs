//! `leasehold run` and `leasehold elect`: hold a lock, or lead, while a command lives.
//!
//! - [`Plan`] states what to acquire, [`Program`] finds the command, [`Signals`] are those that this process
//!   receives.
//! - A [`Job`] is the program run under what is [`Held`]. Its [`shim`](crate::shim) is the parent of the command
//!   and ends it. A [`Supervisor`](supervisor::Supervisor) sends the shim the deadline of the command, as the
//!   [`Schedule`](crate::plan::Schedule) computes it, and acts itself only if the shim does not.

mod command;
mod job;
mod shim_process;
mod signals;
mod supervisor;
mod wait;

use std::pin::pin;
use std::time::Duration;

use leasehold::backoff::{Backoff as _, Exponential};
use leasehold::store::{Clock as _, SystemClock};
use leasehold::{ErrorKind, Locker, Wait, WaitCause, WaitReport};
use nix::sys::signal::Signal;
use tokio::sync::watch;

pub(crate) use signals::{SignalMask, Signals, survive_file_size_limit};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::folder;
use crate::plan::{Held, Plan};
use crate::process::proc_is_mounted;
use crate::report::{Event, Reporter};
use crate::store::Choice;
use command::Program;
use job::{End, Job, unexpected};
use wait::WaitMessages;

/// A wait for a holder that ends sooner is not reported.
const SOON: Duration = Duration::from_millis(50);

/// How long a candidate that has lost lets others try, unless its term is shorter.
const LONGEST_ASIDE: Duration = Duration::from_secs(2);

/// The longest pause between two tries to reach the store at the start.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long the end waits for background releases.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// Runs the command under what the plan acquires.
pub(crate) async fn run(
    mut plan: Plan,
    store: &Choice,
    mask: Option<&SignalMask>,
    reporter: &Reporter,
) -> Result<Exit, Failure> {
    if !proc_is_mounted().map_err(|e| Failure::of_system("/proc cannot be read", &e))? {
        return Err(Failure::unexpected(
            "/proc is not mounted; without it the processes of the command cannot be found",
        ));
    }
    let program = Program::find(std::mem::take(&mut plan.hold.command))?;
    let store = &store.resolved()?;
    let url = store.shared_url()?;
    folder::remove_abandoned();
    let mut signals = Signals::listen().map_err(unexpected)?;
    let keys = plan.keys.clone();
    let mut messages = WaitMessages::new(&keys, reporter);
    let locker = tokio::select! {
        biased;
        signal = signals.next_ending() => return Ok(interrupted(signal, reporter)),
        locker = open(store, &mut plan.hold.wait, &mut messages) => locker?,
    };
    plan.hold.fit(locker.capabilities().max_term)?;
    let store = url.as_deref();
    let job = Job { program: &program, plan: &plan, store, mask, reporter };
    let exit = seek_and_run(&job, &locker, &mut signals, messages).await;
    // What an interrupted wait was granted is released in the background.
    let limit = if signals.hurried { Duration::ZERO } else { CLOSE_LIMIT };
    tokio::select! {
        biased;
        closed = locker.close(limit) => if let Err(error) = closed && !signals.hurried {
            reporter.report(&Event::ReleaseFailed { error: &error });
        },
        signal = signals.next_ending() => reporter.report(&Event::Interrupted { signal }),
    }
    exit
}

/// Opens the store. One that cannot be reached is awaited, as it is once the wait for the lock has begun; that shortens
/// the wait.
async fn open(
    store: &Choice,
    wait: &mut Wait,
    messages: &mut WaitMessages<'_>,
) -> Result<Locker, Failure> {
    let clock = SystemClock::new();
    let started = clock.now();
    let mut pauses = Exponential::default();
    let mut tries = 0;
    loop {
        let opened = store.open().await;
        let elapsed = clock.now().saturating_sub(started);
        let left = match *wait {
            Wait::UpTo(limit) => limit.saturating_sub(elapsed),
            Wait::No | Wait::Attempts(_) => Duration::ZERO,
            Wait::Forever => Duration::MAX,
        };
        match opened {
            Err(failure) if failure.exit() == Exit::UNAVAILABLE && !left.is_zero() => {
                messages.failed(&failure);
                let pause = pauses.next(tries).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
                tries += 1;
                tokio::time::sleep(pause.min(left)).await;
            }
            Err(failure) => return Err(failure),
            Ok(locker) => {
                if let Wait::UpTo(limit) = wait {
                    *limit = left;
                }
                return Ok(locker);
            }
        }
    }
}

async fn seek_and_run(
    job: &Job<'_>,
    locker: &Locker,
    signals: &mut Signals,
    mut messages: WaitMessages<'_>,
) -> Result<Exit, Failure> {
    loop {
        let held = match seek(job, locker, signals, messages).await? {
            Sought::Found(held) => held,
            Sought::Interrupted(signal) => return Ok(interrupted(signal, job.reporter)),
        };
        messages = WaitMessages::new(&job.plan.keys, job.reporter);
        match job.run(held, signals).await? {
            End::Exited(exit) => return Ok(exit),
            End::Lost if job.plan.again => {
                // Others come first, and a command that loses again and again is not started all the time.
                let aside = job.plan.hold.ttl().min(LONGEST_ASIDE);
                tokio::select! {
                    biased;
                    signal = signals.next_ending() => return Ok(interrupted(signal, job.reporter)),
                    () = tokio::time::sleep(aside) => {}
                }
            }
            End::Lost => return Ok(Exit::LOST),
        }
    }
}

/// How a wait ended.
enum Sought {
    Found(Held),
    Interrupted(Signal),
}

async fn seek(
    job: &Job<'_>,
    locker: &Locker,
    signals: &mut Signals,
    mut messages: WaitMessages<'_>,
) -> Result<Sought, Failure> {
    let (reports, mut blocked) = watch::channel(None::<WaitReport>);
    let mut seeking = pin!(job.plan.seek(locker, reports));
    let mut soon = pin!(tokio::time::sleep(SOON));
    let mut is_soon = true;
    loop {
        tokio::select! {
            biased;
            signal = signals.next_ending() => return Ok(Sought::Interrupted(signal)),
            sought = &mut seeking => return match sought {
                Ok(held) => Ok(Sought::Found(held)),
                Err(error) if error.kind() == ErrorKind::Held => {
                    Err(Failure::from(error).with_exit(job.plan.hold.conflict))
                }
                Err(error) => Err(error.into()),
            },
            () = &mut soon, if is_soon => is_soon = false,
            Ok(()) = blocked.changed() => {}
        }
        let blocked = blocked.borrow_and_update();
        let is_due = |report: &&WaitReport| !is_soon || !matches!(report.cause, WaitCause::Held);
        match blocked.as_ref() {
            Some(report) if is_due(&report) => messages.blocked(report),
            None if !is_soon => job.reporter.report(&Event::Asking { keys: &job.plan.keys }),
            _ => {}
        }
    }
}

fn interrupted(signal: Signal, reporter: &Reporter) -> Exit {
    reporter.report(&Event::Interrupted { signal });
    Exit::of_signal(signal)
}
