//! A hold without a command: `leasehold acquire`, `adopt`, `renew`, `release`, `held` and `wait`.

use std::io;
use std::path::Path;
use std::time::Duration;

use leasehold::inspect::{Note, Record};
use leasehold::store::{Clock as _, SystemClock};
use leasehold::{
    Error, ErrorKind, Key, Lease, Locker, ReleaseOutcome, Remaining, WaitCause, WaitReport,
};
use nix::unistd::getppid;
use serde::Serialize;

use super::session::on;
use crate::args::{
    AcquireArgs, AdoptArgs, Environment, HeldArgs, ReleaseArgs, RenewArgs, WaitForArgs,
};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::handed_over::{self, HandedOver};
use crate::keepalive::{self, Keeper, Task};
use crate::output;
use crate::process::Watched;
use crate::record::{duration, micros};
use crate::report::{Event, Reporter};
use crate::run::{self, SignalMask, Signals, WaitMessages};
use crate::store::{Choice, LEASE_FILE_VARIABLE};

/// The pauses between two looks at a key: a fifth of the wait until now, but at least, and at most, this.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long the connections have to end.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize)]
struct Left {
    held: bool,
    remaining_us: Option<u64>,
}

/// Acquires a lock, prints its lease and leaves it held.
pub(crate) async fn acquire(
    mut args: AcquireArgs,
    environment: &Environment,
    store: &Choice,
    reporter: &Reporter,
) -> Result<Exit, Failure> {
    let store = &store.resolved()?;
    let file = args.output.take();
    if let Some(file) = file.as_deref().filter(|file| file.exists()) {
        return Err(Failure::usage(format!("the file {} exists already", file.display())));
    }
    let watched = match args.keep_alive {
        Some(pid) => Some((watched(pid)?, url_for_others(store)?)),
        None => None,
    };
    let mut plan = args.plan(environment)?;
    let pid = watched.as_ref().map(|(watched, _)| watched.pid());
    let caller = pid.or(u32::try_from(getppid().as_raw()).ok()).filter(|pid| *pid > 0);
    plan.hold.pid = caller;
    let caller = caller.unwrap_or_default();
    let name = std::fs::read_to_string(format!("/proc/{caller}/comm"));
    let name = name.ok().map(|name| name.trim_end().to_owned());
    plan.hold.program = name.filter(|name| Note::default().with_program(name).is_ok());
    let (locker, held) = match run::acquire(plan, store, reporter).await? {
        Ok(acquired) => acquired,
        Err(exit) => return Ok(exit),
    };
    let lease = held.guard().lease();
    reporter.report(&Event::Acquired {
        keys: &lease.claims.keys().cloned().collect::<Vec<_>>(),
        lease: &lease.id,
        token: lease.token,
        nodes: &held.guard().nodes(),
    });
    let given = async {
        let keeper = match watched {
            Some((watched, url)) => {
                Some(kept_alive(Task { lease: lease.clone(), url, watched }).await?)
            }
            None => None,
        };
        give(lease, file.as_deref())?;
        keeper.map_or(Ok(()), Keeper::leave).inspect_err(|_| {
            // It describes nothing, and would keep the next lease from being written.
            drop(file.as_deref().map(std::fs::remove_file));
        })
    };
    let given = match given.await {
        Ok(()) => {
            held.detach();
            Ok(Exit::SUCCESS)
        }
        Err(failure) => {
            // Nobody would have it. If the release fails it ends with its term.
            drop(held.release(Duration::ZERO).await);
            Err(failure)
        }
    };
    drop(locker.close(CLOSE_LIMIT).await);
    given
}

/// Starts the process that keeps the lease alive, unless a signal ends that.
async fn kept_alive(task: Task) -> Result<Keeper, Failure> {
    let mut signals = Signals::listen()
        .map_err(|error| Failure::of_system("signals cannot be received", &error))?;
    let starting = tokio::task::spawn_blocking(move || keepalive::start(&task));
    tokio::select! {
        biased;
        started = starting => started.map_err(|error| Failure::unexpected(error.to_string()))?,
        signal = signals.next_ending() => {
            Err(Failure::unexpected(format!("ended by {signal}")).with_exit(Exit::of_signal(signal)))
        }
    }
}

/// The process until whose end the lease is to be renewed.
fn watched(pid: u32) -> Result<Watched, Failure> {
    Watched::find(pid).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::usage(format!("--keep-alive {pid}: there is no such process"))
        }
        _ => Failure::of_system(&format!("the process {pid} cannot be watched"), &error),
    })
}

/// The URL by which another process finds the store.
fn url_for_others(store: &Choice) -> Result<String, Failure> {
    store.shared_url()?.ok_or_else(|| {
        Failure::usage("--keep-alive needs a store that another process can use; this one is private to its process")
    })
}

/// Prints the lease, or writes it to a file that only this user can read.
fn give(lease: &Lease, file: Option<&Path>) -> Result<(), Failure> {
    let json = serde_json::to_string(lease).expect("a lease is text and numbers");
    let Some(file) = file else {
        return match output::line(&json)? {
            true => Ok(()),
            false => Err(Failure::unexpected("nobody reads the lease; it was released")),
        };
    };
    handed_over::write(&json, file)
}

/// Runs a command under a lease that was left held.
pub(crate) async fn adopt(
    args: AdoptArgs,
    environment: &Environment,
    store: &Choice,
    mask: Option<&SignalMask>,
    reporter: &Reporter,
) -> Result<Exit, Failure> {
    let handed_over = HandedOver::read(&args.file)?;
    run::run(args.plan(handed_over, environment)?, store, mask, reporter).await
}

/// Renews a lease once.
pub(crate) async fn renew(args: RenewArgs, store: &Choice, json: bool) -> Result<Exit, Failure> {
    let lease = HandedOver::read(&args.file)?.lease;
    let renew = async |locks: &Locker| {
        let guard = locks.adopt(lease).await?;
        let remaining = guard.remaining();
        guard.detach();
        Ok(remaining)
    };
    let remaining = on(store.open_existing(), renew).await?;
    show(Some(remaining), json)?;
    Ok(Exit::SUCCESS)
}

/// Releases a lease.
pub(crate) async fn release(args: ReleaseArgs, store: &Choice) -> Result<Exit, Failure> {
    let handed_over = HandedOver::read(&args.file)?;
    let lease = &handed_over.lease;
    let release = async |locks: &Locker| Ok(locks.release(lease, Duration::ZERO).await?.outcome);
    let outcome = on(store.open_existing(), release).await?;
    if !matches!(outcome, ReleaseOutcome::Failed(_)) {
        handed_over.remove();
    }
    match outcome {
        ReleaseOutcome::Released | ReleaseOutcome::Kept(_) => Ok(Exit::SUCCESS),
        ReleaseOutcome::Expired => Err(Failure::lost("the term of the lease was over")),
        ReleaseOutcome::NotHeld => Err(Failure::lost("the store does not have the lease")),
        ReleaseOutcome::Failed(error) => Err(error.into()),
    }
}

/// Shows whether a lease holds all its keys.
pub(crate) async fn held(args: HeldArgs, store: &Choice, json: bool) -> Result<Exit, Failure> {
    let variable = || std::env::var_os(LEASE_FILE_VARIABLE).filter(|path| !path.is_empty());
    let Some(file) = args.file.or_else(|| variable().map(Into::into)) else {
        return Err(Failure::usage(format!(
            "give the file with the lease, or - for stdin; {LEASE_FILE_VARIABLE} is not set, so no lock is held here"
        )));
    };
    let lease = HandedOver::read(&file)?.lease;
    let look = async |locks: &Locker| {
        let mut least: Option<Remaining> = None;
        for key in lease.claims.keys() {
            let records = locks.status(key).await?;
            let own = |record: &&leasehold::inspect::Record| {
                !record.kept && record.id.as_ref() == Some(&lease.id)
            };
            let Some(record) = records.iter().find(own) else { return Ok(None) };
            let left = record.remaining();
            least = Some(least.map_or(left, |least| least.min(left)));
        }
        Ok(least)
    };
    let remaining = on(store.open_existing(), look).await?;
    show(remaining, json)?;
    Ok(if remaining.is_some() { Exit::SUCCESS } else { Exit::LOST })
}

fn show(remaining: Option<Remaining>, json: bool) -> Result<(), Failure> {
    if json {
        let remaining_us = remaining.and_then(Remaining::duration).map(micros);
        return output::json(&Left { held: remaining.is_some(), remaining_us }).map(drop);
    }
    let text = match remaining {
        Some(Remaining::For(left)) => format!("held: {} left", duration(left)),
        Some(Remaining::Never) => "held, without an end".to_owned(),
        None => "not held".to_owned(),
    };
    output::line(&text).map(drop)
}

/// Waits until nobody holds the keys.
pub(crate) async fn wait(
    args: WaitForArgs,
    store: &Choice,
    reporter: &Reporter,
) -> Result<Exit, Failure> {
    let WaitForArgs { keys, wait } = args;
    let clock = SystemClock::new();
    let begun = clock.now();
    let mut messages = WaitMessages::new(&keys, reporter);
    let look = async |locks: &Locker| {
        for tries in 1.. {
            let found = first_holder(locks, &keys).await;
            let waited = clock.now().saturating_sub(begun);
            let left = wait.map_or(Duration::MAX, |limit| limit.saturating_sub(waited));
            match found {
                Ok(None) => return Ok(()),
                Ok(Some(holder)) => {
                    let report =
                        WaitReport::new(holder.key.clone(), waited, tries, WaitCause::Held);
                    let report = report.with_holder(Some(Box::new(holder)), false);
                    messages.blocked(&report);
                    if left.is_zero() {
                        return Err(Error::timed_out(report).into());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Unavailable && !left.is_zero() => {
                    messages.failed(&error.into());
                }
                Err(error) => return Err(error.into()),
            }
            let pause = (waited / 5).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
            tokio::time::sleep(pause.min(left)).await;
        }
        Ok(())
    };
    on(store.open_existing(), look).await?;
    Ok(Exit::SUCCESS)
}

/// A holder of the first key that has one.
async fn first_holder(locks: &Locker, keys: &[Key]) -> leasehold::Result<Option<Record>> {
    for key in keys {
        if let Some(record) = locks.status(key).await?.into_iter().next() {
            return Ok(Some(record));
        }
    }
    Ok(None)
}
