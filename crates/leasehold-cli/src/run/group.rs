//! The command and its process group.

use std::io;
use std::process::{Child, ExitStatus};

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use super::process_table::ProcessTable;

/// The process group of the command, named by its leader.
///
/// The leader is not reaped before [`reap`](Group::reap): until then no other process can get its number, and
/// a signal to the group reaches nobody else.
#[derive(Debug)]
pub(crate) struct Group {
    leader: Child,
    id: Pid,
}

/// What the leader did since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaderState {
    Runs,
    Stopped(Signal),
    Ended,
}

impl Group {
    /// Takes charge of a command that was started in a group of its own.
    pub(crate) fn new(leader: Child) -> Self {
        let id = i32::try_from(leader.id()).expect("a process number is a positive i32");
        Self { leader, id: Pid::from_raw(id) }
    }

    /// Makes this process adopt the orphans among its descendants, so that on a loss all of them are found.
    pub(crate) fn adopt_orphans() -> nix::Result<()> {
        set_child_subreaper(true)
    }

    /// The number of the group and of its leader.
    pub(crate) fn id(&self) -> Pid {
        self.id
    }

    /// Looks what became of the leader; a stop is told once.
    pub(crate) fn look(&self) -> LeaderState {
        let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.id), peek) {
            Ok(WaitStatus::StillAlive) => {}
            // EINVAL is a signal without a name (a real-time one) that ended it.
            Ok(_) | Err(Errno::EINVAL) => return LeaderState::Ended,
            Err(_) => {}
        }
        match waitid(Id::Pid(self.id), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
            Ok(WaitStatus::Stopped(_, signal)) => LeaderState::Stopped(signal),
            _ => LeaderState::Runs,
        }
    }

    /// Reaps orphans that this process adopted and that have ended, while the leader lives.
    pub(crate) fn reap_adopted(&self) {
        let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        while let Ok(Some(pid)) = waitid(Id::All, peek).map(|status| status.pid()) {
            if pid == self.id || waitpid(pid, Some(WaitPidFlag::WNOHANG)).is_err() {
                break;
            }
        }
    }

    /// Sends `signal` to the whole group. That it has no member left is no failure.
    pub(crate) fn signal(&self, signal: Signal) {
        // Members that run under another user cannot be signalled; they are still waited for.
        let _ = killpg(self.id, signal);
    }

    /// Asks the whole group to end; one that is stopped must run to do so.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    /// Kills the whole group.
    pub(crate) fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Kills every descendant of this process, whatever its group. One look may miss a process that is
    /// being forked: repeat it until [`has_descendants`](Group::has_descendants) says no.
    pub(crate) fn kill_descendants(&self) {
        for pid in descendants() {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }

    /// True if a process that descends from the command still runs.
    pub(crate) fn has_descendants(&self) -> bool {
        !descendants().is_empty()
    }

    /// True if a member of the group still runs.
    pub(crate) fn has_members(&mut self) -> bool {
        match ProcessTable::read() {
            Some(table) => table.has_running_member(self.id),
            // The leader itself counts as a member until it is reaped.
            None => matches!(self.leader.try_wait(), Ok(Some(_))) && killpg(self.id, None).is_ok(),
        }
    }

    /// Reaps the leader after everything else has been dealt with.
    pub(crate) fn reap(mut self) -> io::Result<ExitStatus> {
        self.leader.wait()
    }
}

fn descendants() -> Vec<Pid> {
    ProcessTable::read().map_or_else(Vec::new, |table| table.descendants(Pid::this()))
}
