//! The descendants of this process.

use std::collections::HashSet;
use std::io;

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgid, getpgrp, getppid};

use super::table::{Process, children_of};

/// How many times to look for more processes to kill at once: each look finds what the processes killed before
/// have forked.
const LOOKS: usize = 64;

/// Makes this process adopt the orphans among its descendants, so that all of them can be found.
pub(crate) fn adopt_orphans() -> nix::Result<()> {
    set_child_subreaper(true)
}

/// Reaps children that have ended, including adopted orphans, but not `kept`.
pub(crate) fn reap_all_but(kept: Pid) {
    reap(|child| child != kept);
}

/// Reaps all children that have ended.
pub(crate) fn reap_all() {
    reap(|_| true);
}

fn reap(wanted: impl Fn(Pid) -> bool) {
    // One that cannot be seen now counts as left, and is looked for again.
    let children = children_of(Pid::this()).unwrap_or_default();
    for child in children.into_iter().filter(|child| wanted(*child)) {
        // By its number: if a signal without a name (a real-time one) ended it, this is an error, and reaps it.
        let _ = waitpid(child, Some(WaitPidFlag::WNOHANG));
    }
}

/// Reaps what has ended, and returns true if this process, which adopts orphans, has no descendant left. Only the kernel
/// knows that for certain: `/proc` may be hidden or covered.
pub(crate) fn is_alone() -> bool {
    loop {
        match waitpid(None::<Pid>, Some(WaitPidFlag::WNOHANG | WaitPidFlag::__WALL)) {
            Err(Errno::ECHILD) => return true,
            Ok(WaitStatus::StillAlive) => return false,
            // It has reaped one, perhaps one that a signal without a name (a real-time one) ended.
            Ok(_) | Err(Errno::EINVAL | Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

/// The descendants of this process from some moment on: children that it had before are not the command's.
#[derive(Debug)]
pub(crate) struct Descendants {
    spared: HashSet<Pid>,
    /// The groups of this process and of its parent, which a descendant may have joined.
    others: [Pid; 2],
}

impl Descendants {
    /// The descendants to come.
    ///
    /// # Errors
    /// Fails for want of resources.
    pub(crate) fn from_now_on() -> io::Result<Self> {
        let parents = getpgid(Some(getppid())).unwrap_or(getpgrp());
        Ok(Self {
            spared: children_of(Pid::this())?.into_iter().collect(),
            others: [getpgrp(), parents],
        })
    }

    /// Kills all of them, whatever their group, and the groups that they created: a process that is forked
    /// meanwhile dies with its group. The next call finds what escapes. What the signal does not reach is gone, or
    /// is not ours to kill and shows in [`are_left`](Self::are_left).
    pub(crate) fn kill(&self) {
        for _ in 0..LOOKS {
            let mut found = false;
            let mut killed = HashSet::new();
            let _ = self.each(|process| {
                if !process.runs {
                    return;
                }
                found = true;
                let _ = kill(process.pid, Signal::SIGKILL);
                let own = process.group.as_raw() > 0 && !self.others.contains(&process.group);
                if own && killed.insert(process.group) {
                    let _ = killpg(process.group, Signal::SIGKILL);
                }
            });
            if !found {
                return;
            }
        }
    }

    /// Asks all of them to end; stopped ones must be continued to do so.
    pub(crate) fn terminate(&self) {
        let _ = self.each(|process| {
            let _ = kill(process.pid, Signal::SIGTERM);
            let _ = kill(process.pid, Signal::SIGCONT);
        });
    }

    /// True if one is left, except the child `leader` itself, or if that cannot be seen. A process that has ended
    /// counts until it is reaped, which only this process does: so none can be missed.
    pub(crate) fn are_left(&self, leader: Option<Pid>) -> bool {
        children_of(Pid::this()).map_or(true, |children| {
            children.iter().any(|child| Some(*child) != leader && !self.spared.contains(child))
        })
    }

    /// As [`are_left`](Self::are_left), in `group` alone.
    pub(crate) fn are_left_in(&self, group: Pid) -> bool {
        let mut found = false;
        let seen = self.each(|process| found |= process.group == group && process.pid != group);
        found || seen.is_err()
    }

    /// True if `group` is one of theirs.
    pub(crate) fn make_up(&self, group: Pid) -> bool {
        let mut found = false;
        // One that cannot be seen does not get the terminal.
        let _ = self.each(|process| found |= process.group == group);
        found
    }

    /// Visits each of them, parents before their children.
    fn each(&self, mut see: impl FnMut(&Process)) -> io::Result<()> {
        let mut seen = self.spared.clone();
        let mut open = vec![Pid::this()];
        while let Some(parent) = open.pop() {
            for child in children_of(parent)? {
                if seen.insert(child) {
                    if let Some(process) = Process::read(child)? {
                        see(&process);
                    }
                    open.push(child);
                }
            }
        }
        Ok(())
    }
}
