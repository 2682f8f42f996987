//! A process that another one watches.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use super::table::Process;

/// A process, and when it began: its number alone may later be another one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Watched {
    pid: u32,
    /// In ticks since the start of the machine.
    begun: u64,
}

impl Watched {
    /// The process of this number, if it runs.
    ///
    /// # Errors
    /// Fails if there is none.
    pub(crate) fn find(pid: u32) -> io::Result<Self> {
        let number = i32::try_from(pid).map_err(|_| ErrorKind::NotFound)?;
        let process = Process::read(Pid::from_raw(number))?.filter(|process| process.runs);
        let process = process.ok_or(ErrorKind::NotFound)?;
        Ok(Self { pid, begun: process.begun })
    }

    pub(crate) fn pid(self) -> u32 {
        self.pid
    }

    /// Begins to watch it.
    ///
    /// # Errors
    /// Fails if it has ended.
    pub(crate) fn open(self) -> io::Result<Watch> {
        let number = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        let file = pidfd_open(number.ok_or(ErrorKind::NotFound)?, PidfdFlags::empty())?;
        // After that its number cannot be another one's.
        match Self::find(self.pid)? == self {
            true => Ok(Watch(file)),
            false => Err(ErrorKind::NotFound.into()),
        }
    }
}

/// The file by which the kernel shows the end of a process.
#[derive(Debug)]
pub(crate) struct Watch(OwnedFd);

impl Watch {
    /// Returns when the process has ended, also if nobody has reaped it.
    pub(crate) fn wait(self) {
        let mut files = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        while poll(&mut files, PollTimeout::NONE) == Err(Errno::EINTR) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_process_of_the_same_number_is_not_watched() {
        let this = Watched::find(std::process::id()).unwrap();
        assert!(this.open().is_ok());
        let earlier = Watched { begun: this.begun - 1, ..this };
        assert_eq!(earlier.open().unwrap_err().kind(), ErrorKind::NotFound);
        for absent in [0, u32::MAX] {
            assert_eq!(Watched::find(absent).unwrap_err().kind(), ErrorKind::NotFound);
        }
    }
}
