//! A process of its own that renews a lease while another process lives, and releases it then.
//!
//! `leasehold acquire --keep-alive PID` starts this binary again under the name [`NAME`]. The process gets a [`Task`] on its
//! stdin, because arguments are visible to everybody, and answers on its stdout: [`READY`], or why it could not adopt the lease. Then
//! it gets [`LEFT`]; if its stdin closes instead, nobody has the lease, and it releases it.

use std::io::{self, Read as _, Write as _};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

use leasehold::{Lease, Locker};
use nix::sys::prctl;
use nix::unistd::{dup2_stdout, setsid};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::background;
use crate::failure::Failure;
use crate::process::Watched;
use crate::run::Signals;
use crate::store;

/// The name, as `argv[0]`, of the process.
const NAME: &str = "lh-keep";

/// What it answers when it holds the lease.
const READY: &str = "ready";

/// The byte that states that whoever acquired the lease has handed it on.
const LEFT: u8 = b'\n';

/// How long the release and the end of the connections may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// What it has to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) lease: Lease,
    pub(crate) url: String,
    pub(crate) watched: Watched,
}

/// True if this process was started to keep a lease alive.
pub(crate) fn is_this_process() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// A process that renews a lease. It releases the lease when this is dropped, unless it is [left](Self::leave) behind.
#[derive(Debug)]
pub(crate) struct Keeper(ChildStdin);

impl Keeper {
    /// Leaves it behind: it goes on until the watched process has ended.
    pub(crate) fn leave(mut self) -> Result<(), Failure> {
        self.0.write_all(&[LEFT]).map_err(|error| not_kept(&error))
    }
}

fn not_kept(error: &io::Error) -> Failure {
    Failure::of_system("the lease cannot be kept alive", error)
}

/// Starts the process; when this returns, it renews the lease. Blocks.
pub(crate) fn start(task: &Task) -> Result<Keeper, Failure> {
    let mut process = spawn().map_err(|error| not_kept(&error))?;
    let mut keeper = Keeper(process.stdin.take().expect("it is a pipe"));
    let mut stdout = process.stdout.take().expect("it is a pipe");
    let mut ask = || {
        let mut line = serde_json::to_vec(task)?;
        line.push(b'\n');
        keeper.0.write_all(&line)?;
        let mut answer = String::new();
        stdout.read_to_string(&mut answer).map(|_| answer)
    };
    let answer = ask().map_err(|error| not_kept(&error))?;
    if answer == READY {
        return Ok(keeper);
    }
    drop(process.wait());
    let why = if answer.is_empty() { "the process for it has ended" } else { &answer };
    Err(Failure::unexpected(format!("the lease cannot be kept alive: {why}")))
}

fn spawn() -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    // They may hold a password.
    for (name, _) in std::env::vars_os().filter(|(name, _)| store::is_setting(name)) {
        command.env_remove(name);
    }
    command.spawn()
}

/// Renews the lease until the watched process has ended, a signal comes, or the lease is lost.
pub(crate) fn main() -> ExitCode {
    // Otherwise `ps` would call it `exe`. None of these failures matters: it would only end with its terminal.
    let _ = prctl::set_name(c"lh-keep");
    let _ = setsid();
    close_inherited();
    match background::wait_for(keep_alive()) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => answer(&failure.to_string()),
        Err(error) => answer(&error.to_string()),
    }
}

/// Closes the files of the script that it has inherited, such as a lock of `flock`. Nothing else is open yet.
fn close_inherited() {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers: Vec<RawFd> =
        open.filter_map(|file| file.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // That of the listing itself is closed by now.
        let _ = nix::unistd::close(number);
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
    let mut line = String::new();
    io::stdin().read_line(&mut line).map_err(of_system)?;
    let task: Task =
        serde_json::from_str(&line).map_err(|error| Failure::unexpected(error.to_string()))?;
    let watch = task.watched.open().map_err(of_system)?;
    let (end, ended) = oneshot::channel::<()>();
    let until_the_end = move || {
        let mut byte = [0];
        // Otherwise whoever acquired the lease has failed or died before anybody had it.
        if io::stdin().lock().read_exact(&mut byte).is_ok() {
            watch.wait();
        }
        drop(end);
    };
    thread::Builder::new()
        .name("leasehold-watch".to_owned())
        .spawn(until_the_end)
        .map_err(of_system)?;
    let mut signals = Signals::listen().map_err(of_system)?;
    let locker = Locker::connect_unchecked(&task.url).await?;
    let guard = locker.adopt(task.lease).await?;
    // Not earlier: the URL may name files.
    let _ = std::env::set_current_dir("/");
    print_ready().map_err(of_system)?;
    tokio::select! {
        // It is an error: the sender is dropped.
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
