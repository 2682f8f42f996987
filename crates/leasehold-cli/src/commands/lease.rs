//! A hold without a command: `leasehold acquire`, `renew`, `release`, `held` and `wait`.

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use leasehold::backoff::{Backoff as _, Exponential};
use leasehold::inspect::Note;
use leasehold::store::{Clock as _, SystemClock};
use leasehold::{Error, Lease, Locker, ReleaseOutcome, Remaining, WaitCause, WaitReport};
use nix::unistd::getppid;
use serde::Serialize;

use super::session::on;
use crate::args::{AcquireArgs, Environment, HeldArgs, ReleaseArgs, RenewArgs, WaitForArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::record::{duration, micros};
use crate::report::{Event, Reporter};
use crate::run;
use crate::store::{Choice, LEASE_FILE_VARIABLE};

/// The longest pause between two looks at a key.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

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
    let file = args.output.take();
    if let Some(file) = file.as_deref().filter(|file| file.exists()) {
        return Err(Failure::usage(format!("the file {} exists already", file.display())));
    }
    let mut plan = args.plan(environment)?;
    let caller = getppid();
    plan.hold.pid = u32::try_from(caller.as_raw()).ok().filter(|pid| *pid > 0);
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
    let given = give(lease, file.as_deref());
    let given = match given {
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

/// Prints the lease, or writes it to a file that only this user can read.
fn give(lease: &Lease, file: Option<&Path>) -> Result<(), Failure> {
    let json = serde_json::to_string(lease).expect("a lease is text and numbers");
    let Some(file) = file else {
        return match output::line(&json)? {
            true => Ok(()),
            false => Err(Failure::unexpected("nobody reads the lease; it was released")),
        };
    };
    let mut created = OpenOptions::new();
    let written = created.write(true).create_new(true).mode(0o600).open(file);
    let written = written.and_then(|mut file| writeln!(file, "{json}"));
    written.map_err(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            drop(std::fs::remove_file(file));
        }
        Failure::of_system(&format!("the lease cannot be written to {}", file.display()), &error)
    })
}

/// Renews a lease once.
pub(crate) async fn renew(args: RenewArgs, store: &Choice, json: bool) -> Result<Exit, Failure> {
    let lease = read(&args.file)?;
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
    let lease = read(&args.file)?;
    let release = async |locks: &Locker| Ok(locks.release(&lease, Duration::ZERO).await?.outcome);
    let outcome = on(store.open_existing(), release).await?;
    let is_answered = !matches!(outcome, ReleaseOutcome::Failed(_));
    // A pipe or a link, such as /dev/stdin, is not the caller's to lose.
    if is_answered && args.file.symlink_metadata().is_ok_and(|file| file.is_file()) {
        // It describes nothing any more. One that stays keeps `acquire` from writing another.
        drop(std::fs::remove_file(&args.file));
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
    let lease = read(&file)?;
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

/// Reads a lease.
fn read(file: &Path) -> Result<Lease, Failure> {
    let mut text = String::new();
    let is_read = match file.as_os_str() == "-" {
        true => io::stdin().lock().read_to_string(&mut text).map(drop),
        false => std::fs::read_to_string(file).map(|read| text = read),
    };
    let of_file = |why: String| Failure::usage(format!("the lease {}: {why}", file.display()));
    is_read.map_err(|error| of_file(format!("it cannot be read: {error}")))?;
    serde_json::from_str(&text).map_err(|error| of_file(format!("it is no lease: {error}")))
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
    let look = async |locks: &Locker| {
        let mut pauses = Exponential::default();
        for tries in 0.. {
            let mut holder = None;
            for key in &keys {
                if let Some(record) = locks.status(key).await?.into_iter().next() {
                    holder = Some(record);
                    break;
                }
            }
            let Some(holder) = holder else { return Ok(()) };
            let waited = clock.now().saturating_sub(begun);
            let report = WaitReport::new(holder.key.clone(), waited, tries + 1, WaitCause::Held);
            let report = report.with_holder(Some(Box::new(holder)), false);
            if tries == 0 {
                let on_terminal = io::IsTerminal::is_terminal(&io::stderr());
                reporter.report(&Event::Waiting { keys: &keys, report: &report, on_terminal });
            }
            let left = wait.map_or(Duration::MAX, |limit| limit.saturating_sub(waited));
            if left.is_zero() {
                return Err(Error::timed_out(report).into());
            }
            let pause = pauses.next(tries).unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE);
            tokio::time::sleep(pause.min(left)).await;
        }
        Ok(())
    };
    on(store.open_existing(), look).await?;
    Ok(Exit::SUCCESS)
}
