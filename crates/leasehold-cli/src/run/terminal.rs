//! Lending the terminal to the command.

use std::io;

use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// The controlling terminal's foreground, while it is lent to the command's group.
///
/// It is lent only if it is ours to lend and stdin and stdout are that terminal: `leasehold run … | less`
/// and `leasehold run … &` leave it with whom it belongs to.
#[derive(Debug)]
pub(crate) struct Terminal {
    lent: bool,
}

impl Terminal {
    /// Nothing is lent yet.
    pub(crate) fn new() -> Self {
        Self { lent: false }
    }

    /// True while the command has the foreground.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent
    }

    /// Gives the foreground to `group` if it is ours; asked again after a stop, because a shell may have
    /// put the job into the background meanwhile.
    pub(crate) fn lend(&mut self, group: Pid) {
        // Only for its controlling terminal does a process learn the foreground group.
        let foreground = tcgetpgrp(io::stdin()).ok();
        let ours = foreground == Some(getpgrp()) && tcgetpgrp(io::stdout()).ok() == foreground;
        self.lent = (self.lent && foreground == Some(group))
            || (ours && tcsetpgrp(io::stdin(), group).is_ok());
    }

    /// Takes the foreground back if it was lent.
    pub(crate) fn take_back(&mut self) {
        if std::mem::take(&mut self.lent) {
            // It fails only if the terminal is gone, and then there is nothing to restore.
            let _ = tcsetpgrp(io::stdin(), getpgrp());
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}
