//! What descends from this process.

use std::collections::HashSet;

use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpgid, getpgrp, getppid};

use super::process::{Process, children_of};

/// How often what is killed is looked for again at once: each look finds what those killed before have forked.
const LOOKS: usize = 64;

/// Makes this process adopt the orphans among its descendants, so that all of them are found.
pub(crate) fn adopt_orphans() -> nix::Result<()> {
    set_child_subreaper(true)
}

/// Reaps children that have ended, among them orphans that this process adopted, but not `kept`.
pub(crate) fn reap_all_but(kept: Pid) {
    for child in children_of(Pid::this()).into_iter().filter(|child| *child != kept) {
        // By its number: a signal without a name (a real-time one) that ended it is an error, and reaps it.
        let _ = waitpid(child, Some(WaitPidFlag::WNOHANG));
    }
}

/// What descends from this process, from some moment on: what it had been given before is none of the command's.
#[derive(Debug)]
pub(crate) struct Descendants {
    spared: HashSet<Pid>,
    /// The groups of this process and of its parent, which a descendant may have joined.
    others: [Pid; 2],
}

impl Descendants {
    /// Those to come.
    pub(crate) fn from_now_on() -> Self {
        let parents = getpgid(Some(getppid())).unwrap_or(getpgrp());
        Self {
            spared: children_of(Pid::this()).into_iter().collect(),
            others: [getpgrp(), parents],
        }
    }

    /// Kills all of them, whatever their group, and the groups that they have made: with its group dies what a
    /// process forks while it is looked at. What escapes is found by the next call; whom the signal does not reach is
    /// gone, or was not ours to kill and is told by [`are_left`](Self::are_left).
    pub(crate) fn kill(&self) {
        for _ in 0..LOOKS {
            let mut found = false;
            let mut killed = HashSet::new();
            self.each(|process| {
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

    /// Asks all of them to end; those that are stopped must run to do so.
    pub(super) fn terminate(&self) {
        self.each(|process| {
            let _ = kill(process.pid, Signal::SIGTERM);
            let _ = kill(process.pid, Signal::SIGCONT);
        });
    }

    /// True if one is left, but for the child `leader` itself. What has ended counts until it is reaped, which this
    /// process alone does: so none can be missed.
    pub(crate) fn are_left(&self, leader: Option<Pid>) -> bool {
        let children = children_of(Pid::this());
        children.iter().any(|child| Some(*child) != leader && !self.spared.contains(child))
    }

    /// As [`are_left`](Self::are_left), in `group` alone.
    pub(super) fn are_left_in(&self, group: Pid) -> bool {
        let mut found = false;
        self.each(|process| found |= process.group == group && process.pid != group);
        found
    }

    /// True if `group` is one of theirs.
    pub(super) fn make_up(&self, group: Pid) -> bool {
        let mut found = false;
        self.each(|process| found |= process.group == group);
        found
    }

    /// Looks at each of them, parents before their children.
    fn each(&self, mut see: impl FnMut(&Process)) {
        let mut seen = self.spared.clone();
        let mut open = vec![Pid::this()];
        while let Some(parent) = open.pop() {
            for child in children_of(parent) {
                if seen.insert(child) {
                    if let Some(process) = Process::read(child) {
                        see(&process);
                    }
                    open.push(child);
                }
            }
        }
    }
}
