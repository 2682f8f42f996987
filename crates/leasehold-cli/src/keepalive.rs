//! A process of its own that renews a lease while another process lives, and releases it then.
//!
//! `leasehold acquire --keep-alive PID` starts this binary again under the name [`NAME`]. The process gets a [`Task`] on its
//! stdin, because arguments are visible to everybody, and answers on its stdout: [`READY`], or why it could not adopt the lease.

use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use leasehold::{Lease, Locker};
use nix::sys::prctl;
use nix::unistd::{dup2_stdout, setsid};
use serde::{Deserialize, Serialize};

use crate::background;
use crate::failure::Failure;
use crate::process::Watched;
use crate::run::Signals;
use crate::store;

/// The name, as `argv[0]`, of the process.
const NAME: &str = "lh-keep";

/// What it answers when it holds the lease.
const READY: &str = "ready";

/// How long the release and the end of the connections may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// What it has to do.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    lease: Lease,
    url: String,
    watched: Watched,
}

/// True if this process was started to keep a lease alive.
pub(crate) fn is_this_process() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// Starts the process; when this returns, it renews the lease.
pub(crate) fn start(lease: &Lease, url: String, watched: Watched) -> Result<(), Failure> {
    let task = Task { lease: lease.clone(), url, watched };
    let failed = |error: &io::Error| Failure::of_system("the lease cannot be kept alive", error);
    let mut process = spawn(&task).map_err(|error| failed(&error))?;
    let mut answer = String::new();
    let mut stdout = process.stdout.take().expect("it is a pipe");
    stdout.read_to_string(&mut answer).map_err(|error| failed(&error))?;
    if answer == READY {
        return Ok(());
    }
    drop(process.wait());
    let why = if answer.is_empty() { "the process for it has ended" } else { &answer };
    Err(Failure::unexpected(format!("the lease cannot be kept alive: {why}")))
}

fn spawn(task: &Task) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // They may hold a password.
    for (name, _) in std::env::vars_os().filter(|(name, _)| store::is_setting(name)) {
        command.env_remove(name);
    }
    let mut process = command.spawn()?;
    let mut stdin = process.stdin.take().expect("it is a pipe");
    stdin.write_all(&serde_json::to_vec(task)?)?;
    Ok(process)
}

/// Renews the lease until the watched process has ended, a signal comes, or the lease is lost.
pub(crate) fn main() -> ExitCode {
    // Otherwise `ps` would call it `exe`. None of these failures matters: it would only end with its terminal.
    let _ = prctl::set_name(c"lh-keep");
    let _ = setsid();
    let _ = std::env::set_current_dir("/");
    match background::wait_for(keep_alive()) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => answer(&failure.to_string()),
        Err(error) => answer(&error.to_string()),
    }
}

/// Answers with why there is nothing to keep alive.
fn answer(why: &str) -> ExitCode {
    // Nobody may listen any more.
    let _ = write!(io::stdout(), "{why}");
    ExitCode::FAILURE
}

async fn keep_alive() -> Result<(), Failure> {
    let of_system = |error: io::Error| Failure::of_system("the process cannot be watched", &error);
    let task: Task = serde_json::from_reader(io::stdin().lock())
        .map_err(|error| Failure::unexpected(error.to_string()))?;
    let watched = task.watched.open().map_err(of_system)?;
    let ended = tokio::task::spawn_blocking(move || watched.wait());
    let mut signals = Signals::listen().map_err(of_system)?;
    let locker = Locker::connect_unchecked(&task.url).await?;
    let guard = locker.adopt(task.lease).await?;
    print_ready().map_err(of_system)?;
    tokio::select! {
        _ = ended => {}
        _ = signals.next_ending() => {}
        _ = guard.lost() => {}
    }
    // What cannot be released ends with its term.
    drop(guard.release().await);
    drop(locker.close(CLOSE_LIMIT).await);
    Ok(())
}

/// Answers that the lease is held, and gives up stdout.
fn print_ready() -> io::Result<()> {
    let mut stdout = io::stdout();
    stdout.write_all(READY.as_bytes())?;
    stdout.flush()?;
    dup2_stdout(std::fs::OpenOptions::new().write(true).open("/dev/null")?)?;
    Ok(())
}
