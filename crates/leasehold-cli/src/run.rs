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
mod supersede;
mod supervisor;
mod wait;

use std::pin::pin;
use std::time::Duration;

use leasehold::backoff::{Backoff as _, Exponential};
use leasehold::store::{Clock as _, SystemClock};
use leasehold::{Error, Locker, Wait, WaitCause, WaitReport};
use nix::sys::signal::Signal;
use tokio::sync::watch;

pub(crate) use signals::{SignalMask, Signals, survive_file_size_limit};
pub(crate) use wait::WaitMessages;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::folder;
use crate::plan::{Held, Plan};
use crate::process::proc_is_mounted;
use crate::report::{Event, Level, Reporter};
use crate::store::Choice;
use command::Program;
use job::{End, Job, unexpected};
use supersede::supersede;

/// A wait for a holder that ends sooner is not reported, with `-v`.
const SOON: Duration = Duration::from_millis(50);

/// Nor is a wait that ends sooner than this, without it.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a candidate that has lost lets others try, unless its term is shorter.
const LONGEST_ASIDE: Duration = Duration::from_secs(3);

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
    let locker = match opened(&mut plan, store, &mut signals, &mut messages, reporter).await? {
        Ok(locker) => locker,
        Err(exit) => return Ok(exit),
    };
    if let Some(keep) = plan.once_per {
        keeps(&locker, keep)?;
    }
    let store = url.as_deref();
    let superseded = superseded(&mut plan, &locker, &mut signals, &mut messages, reporter).await;
    let exit = match superseded {
        Ok(None) => {
            let (program, plan, locker) = (&program, &plan, &locker);
            let job = Job { program, plan, locker, store, mask, reporter };
            seek_and_run(&job, &mut signals, messages).await
        }
        Ok(Some(exit)) => Ok(exit),
        Err(failure) => Err(failure),
    };
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

/// Acquires what the plan seeks, for a caller who keeps it. Without a failure it may return an exit code alone: that of the signal
/// which ended the wait.
pub(crate) async fn acquire(
    mut plan: Plan,
    store: &Choice,
    reporter: &Reporter,
) -> Result<std::result::Result<(Locker, Held), Exit>, Failure> {
    let mut signals = Signals::listen().map_err(unexpected)?;
    let keys = plan.keys.clone();
    let mut messages = WaitMessages::new(&keys, reporter);
    let store = &store.resolved()?;
    let locker = match opened(&mut plan, store, &mut signals, &mut messages, reporter).await? {
        Ok(locker) => locker,
        Err(exit) => return Ok(Err(exit)),
    };
    let sought = seek(&plan, reporter, &locker, &mut signals, messages).await;
    if let Ok(Sought::Found(held)) = sought {
        return Ok(Ok((locker, held)));
    }
    // What an interrupted wait was granted is released in the background.
    tokio::select! {
        biased;
        closed = locker.close(CLOSE_LIMIT) => if let Err(error) = closed {
            reporter.report(&Event::ReleaseFailed { error: &error });
        },
        signal = signals.next_ending() => reporter.report(&Event::Interrupted { signal }),
    }
    Ok(Err(match sought? {
        Sought::Interrupted(signal) => interrupted(signal, reporter),
        Sought::Found(_) | Sought::Skipped => Exit::NOT_ACQUIRED,
    }))
}

/// Ends the leases of others if the plan says so; the exit code if a signal ends that.
async fn superseded(
    plan: &mut Plan,
    locker: &Locker,
    signals: &mut Signals,
    messages: &mut WaitMessages<'_>,
    reporter: &Reporter,
) -> Result<Option<Exit>, Failure> {
    let Some(when) = plan.supersede else { return Ok(None) };
    let (keys, wait) = (&plan.keys, &mut plan.hold.wait);
    // A repetition ends nothing twice.
    let ending =
        reaching(wait, messages, async |wait| supersede(keys, when, wait, locker, reporter).await);
    tokio::select! {
        biased;
        signal = signals.next_ending() => Ok(Some(interrupted(signal, reporter))),
        ended = ending => ended.map(|()| None),
    }
}

/// Opens the store for the plan, unless a signal ends that.
async fn opened(
    plan: &mut Plan,
    store: &Choice,
    signals: &mut Signals,
    messages: &mut WaitMessages<'_>,
    reporter: &Reporter,
) -> Result<std::result::Result<Locker, Exit>, Failure> {
    let locker = tokio::select! {
        biased;
        signal = signals.next_ending() => return Ok(Err(interrupted(signal, reporter))),
        locker = reaching(&mut plan.hold.wait, messages, async |_| store.open().await) => locker?,
    };
    plan.hold.fit(locker.capabilities().max_term)?;
    Ok(Ok(locker))
}

/// What `attempt` reports of the store, which is awaited if it cannot be reached, as it is once the wait for the lock has begun;
/// that shortens the wait, of which `attempt` gets the rest.
async fn reaching<T>(
    wait: &mut Wait,
    messages: &mut WaitMessages<'_>,
    mut attempt: impl AsyncFnMut(Wait) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let clock = SystemClock::new();
    let (started, given) = (clock.now(), *wait);
    let mut pauses = Exponential::default();
    let mut tries = 0;
    loop {
        let attempted = attempt(*wait).await;
        let elapsed = clock.now().saturating_sub(started);
        let left = match given {
            Wait::UpTo(limit) => limit.saturating_sub(elapsed),
            Wait::No | Wait::Attempts(_) => Duration::ZERO,
            Wait::Forever => Duration::MAX,
        };
        if let Wait::UpTo(rest) = wait {
            *rest = left;
        }
        match attempted {
            Err(failure) if failure.exit() == Exit::UNAVAILABLE && !left.is_zero() => {
                messages.failed(&failure);
                let pause = pauses.next(tries).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
                tries += 1;
                tokio::time::sleep(pause.min(left)).await;
            }
            attempted => return attempted,
        }
    }
}

async fn seek_and_run(
    job: &Job<'_>,
    signals: &mut Signals,
    mut messages: WaitMessages<'_>,
) -> Result<Exit, Failure> {
    let mut was_lost = false;
    loop {
        let sought = seek(job.plan, job.reporter, job.locker, signals, messages).await;
        // A run whose command was ended for a loss has not been skipped.
        let sought = sought.map_err(|failure| match was_lost && failure.is_refusal() {
            true => failure.with_exit(Exit::LOST),
            false => failure,
        });
        let held = match sought? {
            Sought::Found(held) => held,
            Sought::Skipped if was_lost => return Ok(Exit::LOST),
            Sought::Skipped => return Ok(Exit::SUCCESS),
            Sought::Interrupted(signal) => return Ok(interrupted(signal, job.reporter)),
        };
        messages = WaitMessages::new(&job.plan.keys, job.reporter);
        match job.run(held, signals).await? {
            End::Exited(exit) => return Ok(exit),
            End::Lost if job.plan.hold.again => {
                was_lost = true;
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

/// Fails unless the store can keep keys taken for so long after a release.
fn keeps(locker: &Locker, keep: Duration) -> Result<(), Failure> {
    let can = locker.capabilities();
    if !can.keep {
        return Err(Failure::usage(format!(
            "the store {} cannot keep a key taken after the release, as --once-per needs it",
            can.name
        )));
    }
    if keep > can.max_term {
        return Err(Failure::usage(format!(
            "--once-per is {}; the store {} keeps a key for at most {}",
            humantime::format_duration(keep),
            can.name,
            humantime::format_duration(can.max_term)
        )));
    }
    Ok(())
}

/// How a wait ended.
enum Sought {
    Found(Held),
    /// The lock is held, and `--skip` is given.
    Skipped,
    Interrupted(Signal),
}

async fn seek(
    plan: &Plan,
    reporter: &Reporter,
    locker: &Locker,
    signals: &mut Signals,
    mut messages: WaitMessages<'_>,
) -> Result<Sought, Failure> {
    let (reports, mut blocked) = watch::channel(None::<WaitReport>);
    let mut seeking = pin!(plan.seek(locker, reports));
    let soon = if reporter.reports(Level::Steps) { SOON } else { PATIENCE };
    let mut soon = pin!(tokio::time::sleep(soon));
    let mut is_soon = true;
    loop {
        tokio::select! {
            biased;
            signal = signals.next_ending() => return Ok(Sought::Interrupted(signal)),
            sought = &mut seeking => return match sought {
                Ok(held) => Ok(Sought::Found(held)),
                Err(error) => not_found(plan, reporter, error),
            },
            () = &mut soon, if is_soon => is_soon = false,
            Ok(()) = blocked.changed() => {}
        }
        let blocked = blocked.borrow_and_update();
        let is_due = |report: &&WaitReport| !is_soon || !matches!(report.cause, WaitCause::Held);
        match blocked.as_ref() {
            Some(report) if is_due(&report) => messages.blocked(report),
            None if !is_soon => reporter.report(&Event::Asking { keys: &plan.keys }),
            _ => {}
        }
    }
}

/// Nothing was acquired.
fn not_found(plan: &Plan, reporter: &Reporter, error: Error) -> Result<Sought, Failure> {
    let hold = &plan.hold;
    let failure = Failure::from(error);
    if hold.skip && failure.exit() == Exit::NOT_ACQUIRED {
        reporter.report(&Event::Skipped { failure: &failure });
        return Ok(Sought::Skipped);
    }
    let is_taken = [Exit::NOT_ACQUIRED, Exit::TIMED_OUT].contains(&failure.exit());
    match hold.conflict {
        Some(conflict) if is_taken => Err(failure.with_exit(conflict)),
        _ => Err(failure),
    }
}

fn interrupted(signal: Signal, reporter: &Reporter) -> Exit {
    reporter.report(&Event::Interrupted { signal });
    Exit::of_signal(signal)
}
