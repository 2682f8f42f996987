//! The shim: the process between `leasehold run` and its command, so that the command does not outlive the lock
//! even if `leasehold` itself is killed or stopped.
//!
//! | process | parent | process group | task |
//! |---|---|---|---|
//! | `leasehold` | a shell | of the shell's job | holds the lease, receives signals, writes messages |
//! | the shim | `leasehold` | its own | everything that is done to the command and its terminal |
//! | the command | the shim | its own | |
//!
//! All three are in one session. The shim is this binary, started again under the name [`SHIM`]. No argument leads
//! here, so nobody can call it by mistake. The command begins as a fork of the shim, which the kernel ends when the shim dies.
//!
//! - [`Order`](crate::process::Order)s come from `leasehold`: the instant by which the command must be dead, after each
//!   renewal, and the signals to pass on. [`Notice`](crate::process::Notice)s go back.
//! - When `leasehold` dies, the pipe of the orders closes; when it is stopped, or hangs, no later instant comes.
//!   In both cases the [`Watcher`] ends the command, also at input that it does not understand.
//! - When the pipe has closed and no descendant is left, the shim releases the lease, its [`Estate`].
//! - No signal except KILL and STOP reaches the shim, and its group is never in the foreground.
//! - If the shim itself dies, `leasehold` inherits its descendants and kills them. If both die at once, the kernel
//!   kills the command, but not what the command has started.

mod estate;
mod launcher;
mod wakeups;
mod watcher;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use leasehold::store::{Clock as _, SystemClock};
use nix::sys::prctl;

use crate::folder::Folder;
use crate::plan::OnLost;
use crate::process::family::is_alone;
use crate::process::link::{Pipes, path_of};
use crate::process::{Assignment, SHIM, cause, is_dying};
use crate::store::LEASE_FILE_VARIABLE;
use estate::Estate;
use watcher::Watcher;

/// How long a process may take to die on a busy machine.
const LONGEST_DEATH: Duration = Duration::from_secs(10);

/// True if this process was started as a shim.
pub(crate) fn is_this_process() -> bool {
    std::env::args_os().next().is_some_and(|name| name == SHIM)
}

/// Starts the command and watches it until nothing of it is left.
///
/// The command has the streams: nothing is printed here. If it fails, no command starts, and `leasehold` finds
/// the reason in the exit code.
pub(crate) fn main() -> ExitCode {
    // Otherwise `ps` would call it `exe`, after the path of the binary; a failure has no other effect.
    let _ = prctl::set_name(c"lh-shim");
    // Removed at the end, for `leasehold` may have died.
    let lease_file = std::env::var_os(LEASE_FILE_VARIABLE).map(PathBuf::from);
    let folder = lease_file.and_then(|file| Folder::of(&file));
    let Some(assignment) = Assignment::from_process() else { return ExitCode::FAILURE };
    let estate = folder.as_ref().and_then(|folder| Estate::read(folder.path(), &assignment));
    let ended = Watcher::start(&assignment).map(|watcher| watcher.map(Watcher::run));
    if let Some(estate) = estate
        && assignment.on_lost == OnLost::Kill
        && let Some(until) = match &ended {
            Ok(Some(left)) => *left,
            // No command has started.
            _ => is_dead(assignment.pipes)
                .then(|| SystemClock::new().now().saturating_add(estate.longest())),
        }
        && is_alone()
    {
        estate.release(until);
    }
    ended.map_or_else(|error| cause::exit_code(&error), |_| ExitCode::SUCCESS)
}

/// Whether the `leasehold` that started this process is dead. One that dies closes its files some time before that shows.
fn is_dead(leasehold: Pipes) -> bool {
    let clock = SystemClock::new();
    let until = clock.now().saturating_add(LONGEST_DEATH);
    let file = path_of(leasehold.owner, leasehold.orders);
    while !is_dying(leasehold.owner) && file.symlink_metadata().is_err() && clock.now() < until {
        thread::yield_now();
    }
    is_dying(leasehold.owner)
}
