//! The command's process group.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use rustix::process::WaitOptions;

/// Looks without reaping.
const PEEK: WaitPidFlag =
    WaitPidFlag::WEXITED.union(WaitPidFlag::WNOHANG).union(WaitPidFlag::WNOWAIT);

/// The process group of the command, identified by its leader.
///
/// Until the leader is reaped no other process can get its number, so a signal to the group reaches nobody else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group(Pid);

/// True for Ctrl-C and Ctrl-\.
pub(crate) fn is_of_a_key(signal: Signal) -> bool {
    matches!(signal, Signal::SIGINT | Signal::SIGQUIT)
}

/// What happened to the leader since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaderState {
    Runs,
    Stopped(Signal),
    Exited,
    /// A signal ended it.
    Killed,
}

impl Group {
    /// The group of a command that was started in its own group.
    pub(crate) fn of(leader: Pid) -> Self {
        Self(leader)
    }

    /// The id of the group and of its leader.
    pub(crate) fn id(&self) -> Pid {
        self.0
    }

    /// How the leader has ended, if it has.
    pub(crate) fn ended(&self) -> Option<LeaderState> {
        match waitid(Id::Pid(self.0), PEEK) {
            Ok(WaitStatus::Exited(..)) => Some(LeaderState::Exited),
            // EINVAL: a signal without a name (a real-time one) ended it.
            Ok(WaitStatus::Signaled(..)) | Err(Errno::EINVAL) => Some(LeaderState::Killed),
            _ => None,
        }
    }

    /// The state of the leader; a stop is reported once.
    pub(crate) fn look(&self) -> LeaderState {
        if let Some(ended) = self.ended() {
            return ended;
        }
        match waitid(Id::Pid(self.0), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
            Ok(WaitStatus::Stopped(_, signal)) => LeaderState::Stopped(signal),
            _ => LeaderState::Runs,
        }
    }

    /// Waits until the leader has ended, and reaps it: from then on its number can become another's.
    pub(crate) fn wait(&self) -> io::Result<ExitStatus> {
        let leader = rustix::process::Pid::from_raw(self.0.as_raw());
        // `nix` does not know the status of a process that a real-time signal ended.
        let wait = || rustix::process::waitpid(leader, WaitOptions::empty());
        let (_, status) = rustix::io::retry_on_intr(wait)?.ok_or(io::ErrorKind::WouldBlock)?;
        Ok(ExitStatus::from_raw(status.as_raw()))
    }

    /// The signal that ended the leader, if it is a keyboard signal.
    pub(crate) fn killed_by_key(&self) -> Option<Signal> {
        match waitid(Id::Pid(self.0), PEEK) {
            Ok(WaitStatus::Signaled(_, signal, _)) if is_of_a_key(signal) => Some(signal),
            _ => None,
        }
    }

    /// True if the leader is an unreaped child of this process, so that the group's number is still its own.
    pub(crate) fn is_ours(&self) -> bool {
        waitid(Id::Pid(self.0), PEEK) != Err(Errno::ECHILD)
    }

    /// Sends `signal` to the whole group. An empty group is not a failure.
    pub(crate) fn signal(&self, signal: Signal) {
        // Members that run as another user cannot be signalled; they are still waited for.
        let _ = killpg(self.0, signal);
    }

    /// Asks the whole group to end; a stopped one must be continued to do so.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    /// Kills the whole group.
    pub(crate) fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }
}
