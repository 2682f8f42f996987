//! The shim: the process between `leasehold run` and its command, so that the command does not outlive the
//! lock even if `leasehold` itself is killed or stopped.
//!
//! | process | parent | process group | what it does |
//! |---|---|---|---|
//! | `leasehold` | a shell | of the shell's job | holds the lease, receives signals, writes messages |
//! | the shim | `leasehold` | its own | all that is done to the command and its terminal |
//! | the command | the shim | its own | |
//!
//! All three are in one session. The shim is this binary, started again under the name [`NAME`]; no argument
//! leads here, so there is no command of that name to be called by mistake. It knows neither the store nor the
//! lease.
//!
//! - [`Order`](link::Order)s come from `leasehold`: the instant by which the command must be dead, each time
//!   that a renewal has moved it, and the signals to pass on. [`Notice`](link::Notice)s go back.
//! - The pipe of the orders closes when `leasehold` dies; when it is stopped, or hangs, no later instant comes.
//!   Either way the [`Watcher`] ends the command. What it reads and does not understand counts as a closed pipe.
//! - No signal but KILL and STOP reaches the shim, nor is its group ever in the foreground.
//! - If the shim itself dies, `leasehold` inherits all that descends from it, and kills that.

mod assignment;
mod family;
mod group;
mod link;
mod process;
mod terminal;
mod wakeups;
mod watcher;

use std::process::ExitCode;

use nix::sys::prctl;

pub(crate) use assignment::Assignment;
pub(crate) use family::{Descendants, adopt_orphans, reap_all_but};
pub(crate) use group::{Group, is_of_a_key};
pub(crate) use link::{MESSAGE_SIZE, Message, Notice, Order, make_pipe, notices_in, orders_in};
pub(crate) use process::{is_orphaned, proc_is_mounted};
pub(crate) use terminal::reclaim;

use watcher::Watcher;

/// The name, as `argv[0]`, under which `leasehold` starts itself again. Whoever kills all that is called `leasehold`
/// does not mean this.
pub(crate) const NAME: &str = "lh-shim";

/// True if this process was started as a shim.
pub(crate) fn is_this_process() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// Starts the command and sees to it, until nothing of it is left.
///
/// The streams are the command's: nothing is said here. A failure starts no command, and `leasehold` finds that
/// the shim has ended without a [`Notice`].
pub(crate) fn main() -> ExitCode {
    // Else `ps` would call it `exe`, after the path by which it was found; that is all a failure costs.
    let _ = prctl::set_name(c"lh-shim");
    let Some(assignment) = Assignment::from_process() else { return ExitCode::FAILURE };
    let Ok(watcher) = Watcher::start(&assignment) else { return ExitCode::FAILURE };
    if let Some(watcher) = watcher {
        watcher.run();
    }
    assignment.tidy();
    ExitCode::SUCCESS
}
