//! Lending the terminal to the command.

use std::io;

use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The controlling terminal's foreground, while it is lent to the command's group.
///
/// It is lent only if it is `leasehold`'s to lend and stdin and stdout are that terminal: `leasehold run … | less`
/// and `leasehold run … &` leave it with whom it belongs to. SIGTTOU must be blocked: whoever sets the foreground
/// from the background is stopped by it.
#[derive(Debug)]
pub(super) struct Terminal {
    home: Pid,
    guest: Pid,
    lent: bool,
}

impl Terminal {
    /// Belongs to the group `home`, and can be lent to the group `guest`; nothing is lent yet.
    pub(super) fn new(home: Pid, guest: Pid) -> Self {
        Self { home, guest, lent: false }
    }

    /// True while the command has the foreground.
    pub(super) fn is_lent(&self) -> bool {
        self.lent
    }

    /// Gives the foreground to the command if `leasehold` has it; asked again after a stop, because a shell may
    /// have put the job into the background meanwhile.
    pub(super) fn lend(&mut self) {
        // Only for its controlling terminal does a process learn the foreground group.
        let foreground = tcgetpgrp(io::stdin()).ok();
        let ours = foreground == Some(self.home) && tcgetpgrp(io::stdout()).ok() == foreground;
        self.lent = (self.lent && foreground == Some(self.guest)) || (ours && give_to(self.guest));
    }

    /// Takes the foreground back if it was lent.
    pub(super) fn take_back(&mut self) {
        if std::mem::take(&mut self.lent) {
            // It fails if the terminal is gone, or nobody is left at home: there is nothing to restore.
            give_to(self.home);
        }
    }
}

/// Takes the foreground back for this process's group from the group `guest`, to which a shim that has died may
/// have lent it.
pub(crate) fn reclaim(guest: Pid) {
    if tcgetpgrp(io::stdin()) == Ok(guest) {
        give_to(getpgrp());
    }
}

/// Linux sometimes says that the group is in another session while a member of it is being reaped, which is just what
/// happens when `leasehold` has died: so it is asked again.
fn give_to(group: Pid) -> bool {
    (0..3).any(|_| tcsetpgrp(io::stdin(), group).is_ok())
}
