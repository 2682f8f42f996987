//! Lends the terminal to the command.

use std::io;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

use super::family::Descendants;

/// The controlling terminal's foreground, while it is lent to the command's group.
///
/// It is lent only if `leasehold` has it: with `leasehold run … &` its owner keeps it. At the start, stdin and
/// stdout must be that terminal too: in `leasehold run … | less`, `less` reads the keyboard. A command that then
/// asks for the terminal gets it all the same. SIGTTOU must be blocked: it stops a process that sets the
/// foreground from the background.
#[derive(Debug)]
pub(crate) struct Terminal {
    home: Pid,
    guest: Pid,
    lent: bool,
}

impl Terminal {
    /// The foreground of the group `home`, which can be lent to the group `guest`; nothing is lent yet.
    pub(crate) fn new(home: Pid, guest: Pid) -> Self {
        Self { home, guest, lent: false }
    }

    /// True while the command has the foreground.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent
    }

    /// Gives the foreground to the command if `leasehold` has it and both streams are the terminal. Checked again
    /// after a stop, because a shell may have moved the job to the background meanwhile.
    pub(crate) fn lend(&mut self) {
        let is_both = tcgetpgrp(io::stdout()).ok() == foreground();
        self.lent = (self.lent && foreground() == Some(self.guest)) || (is_both && self.give());
    }

    /// Gives the foreground to a command that `signal` stopped because it asked for the terminal; false if it is
    /// not available.
    pub(crate) fn lend_to_asker(&mut self, signal: Signal) -> bool {
        let asks = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        // It may have asked before it had it.
        let has = self.lent && foreground() == Some(self.guest);
        let lends = asks && (has || self.give());
        self.lent |= lends;
        lends
    }

    /// Takes the foreground back if it was lent and the command still has it: a shell takes it itself when its job
    /// is stopped.
    pub(crate) fn take_back(&mut self, descendants: &Descendants) {
        if std::mem::take(&mut self.lent) {
            let is_the_commands = |group: Pid| {
                let is_dead = killpg(group, None) == Err(Errno::ESRCH);
                group == self.guest || is_dead || descendants.make_up(group)
            };
            if foreground().is_none_or(is_the_commands) {
                // Fails if the terminal is gone, or nobody is left in `home`: there is nothing to restore.
                give_to(self.home);
            }
        }
    }

    fn give(&self) -> bool {
        foreground() == Some(self.home) && give_to(self.guest)
    }
}

/// Takes the foreground back for this process's group from the group `guest`, to which a shim that has died may
/// have lent it.
pub(crate) fn reclaim(guest: Pid) {
    if foreground() == Some(guest) {
        give_to(getpgrp());
    }
}

/// The foreground group of the terminal on stdin; a process can read it only for its controlling terminal. A group
/// outside this process's namespace reads as 0, and could not be given back.
fn foreground() -> Option<Pid> {
    tcgetpgrp(io::stdin()).ok().filter(|group| group.as_raw() > 0)
}

/// Linux sometimes reports that the group is in another session while a member of it is being reaped, which happens
/// exactly when `leasehold` has died: so it is tried again.
fn give_to(group: Pid) -> bool {
    (0..3).any(|_| tcsetpgrp(io::stdin(), group).is_ok())
}
