//! The command's process group.

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// Looks without reaping.
const PEEK: WaitPidFlag =
    WaitPidFlag::WEXITED.union(WaitPidFlag::WNOHANG).union(WaitPidFlag::WNOWAIT);

/// The process group of the command, named by its leader.
///
/// Until the leader is reaped no other process can get its number, and a signal to the group reaches nobody else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group(Pid);

/// True for Ctrl-C and Ctrl-\.
pub(crate) fn is_of_a_key(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGQUIT)
}

/// What the leader did since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaderState {
    Runs,
    Stopped(Signal),
    Exited,
    /// A signal ended it.
    Killed,
}

impl Group {
    /// The group of a command that was started in a group of its own.
    pub(crate) fn of(leader: Pid) -> Self {
        Self(leader)
    }

    /// The number of the group and of its leader.
    pub(crate) fn id(&self) -> Pid {
        self.0
    }

    /// Looks what became of the leader; a stop is told once.
    pub(super) fn look(&self) -> LeaderState {
        match waitid(Id::Pid(self.0), PEEK) {
            Ok(WaitStatus::Exited(..)) => return LeaderState::Exited,
            // EINVAL is a signal without a name (a real-time one) that ended it.
            Ok(WaitStatus::Signaled(..)) | Err(Errno::EINVAL) => return LeaderState::Killed,
            _ => {}
        }
        match waitid(Id::Pid(self.0), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
            Ok(WaitStatus::Stopped(_, signal)) => LeaderState::Stopped(signal),
            _ => LeaderState::Runs,
        }
    }

    /// The signal that ended the leader, if it is one that a key sends.
    pub(super) fn killed_by_key(&self) -> Option<Signal> {
        match waitid(Id::Pid(self.0), PEEK) {
            Ok(WaitStatus::Signaled(_, signal, _)) if is_of_a_key(signal) => Some(signal),
            _ => None,
        }
    }

    /// True if the leader is a child of this process that has not been reaped, so that the number of the group
    /// is still its own.
    pub(crate) fn is_ours(&self) -> bool {
        waitid(Id::Pid(self.0), PEEK) != Err(Errno::ECHILD)
    }

    /// Sends `signal` to the whole group. That it has no member left is no failure.
    pub(super) fn signal(&self, signal: Signal) {
        // Members that run under another user cannot be signalled; they are still waited for.
        let _ = killpg(self.0, signal);
    }

    /// Asks the whole group to end; one that is stopped must run to do so.
    pub(super) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    /// Kills the whole group.
    pub(crate) fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }
}
