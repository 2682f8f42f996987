//! The command's process group, and what else descends from this process.

use std::collections::HashSet;

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use super::process_table::ProcessTable;

/// Looks without reaping.
const PEEK: WaitPidFlag =
    WaitPidFlag::WEXITED.union(WaitPidFlag::WNOHANG).union(WaitPidFlag::WNOWAIT);

/// The process group of the command, named by its leader.
///
/// Until the leader is reaped no other process can get its number, and a signal to the group reaches nobody else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group(Pid);

/// What the leader did since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeaderState {
    Runs,
    Stopped(Signal),
    Ended,
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
            Ok(WaitStatus::StillAlive) => {}
            // EINVAL is a signal without a name (a real-time one) that ended it.
            Ok(_) | Err(Errno::EINVAL) => return LeaderState::Ended,
            Err(_) => {}
        }
        match waitid(Id::Pid(self.0), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
            Ok(WaitStatus::Stopped(_, signal)) => LeaderState::Stopped(signal),
            _ => LeaderState::Runs,
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

    /// True if a member of the group still runs, or that cannot be told.
    pub(super) fn has_members(&self) -> bool {
        ProcessTable::read().is_none_or(|table| table.has_running_member(self.0))
    }
}

/// Makes this process adopt the orphans among its descendants, so that all of them are found.
pub(crate) fn adopt_orphans() -> nix::Result<()> {
    set_child_subreaper(true)
}

/// Reaps children that have ended, among them orphans that this process adopted, but not `kept`.
pub(crate) fn reap_all_but(kept: Pid) {
    while let Ok(Some(pid)) = waitid(Id::All, PEEK).map(|status| status.pid()) {
        if pid == kept || waitpid(pid, Some(WaitPidFlag::WNOHANG)).is_err() {
            break;
        }
    }
}

/// What descends from this process, from some moment on: what it had been given before is none of the command's.
#[derive(Debug)]
pub(crate) struct Descendants {
    spared: HashSet<Pid>,
}

impl Descendants {
    /// Those to come.
    pub(crate) fn from_now_on() -> Self {
        let none = waitid(Id::All, PEEK) == Err(Errno::ECHILD);
        let present = if none { None } else { descendants(&HashSet::new()) };
        Self { spared: present.unwrap_or_default().into_iter().collect() }
    }

    /// Kills all of them, whatever their group. One look may miss a process that is being forked: repeat it until
    /// [`run`](Self::run) says no.
    pub(crate) fn kill(&self) {
        for pid in descendants(&self.spared).unwrap_or_default() {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }

    /// True if one still runs, or that cannot be told.
    pub(crate) fn run(&self) -> bool {
        descendants(&self.spared).is_none_or(|pids| !pids.is_empty())
    }
}

fn descendants(spared: &HashSet<Pid>) -> Option<Vec<Pid>> {
    ProcessTable::read().map(|table| table.descendants(Pid::this(), spared))
}
