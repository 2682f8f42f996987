//! The start of the command.
//!
//! The shim forks. Its child asks the kernel for a signal at the death of its parent, which `execve` keeps, and then executes
//! the command. So the command does not outlive the lock even if `leasehold` and the shim are killed together.
//!
//! Through a pipe, which closes when the command is executed, the child reports why it could not execute it.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use fork::{Fork, fork};
use leasehold::store::{Clock as _, SystemClock};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getppid, pipe2, setpgid};

use super::wakeups::Wakeups;
use crate::plan::OnLost;
use crate::process::Assignment;
use crate::process::group::Group;

/// The exit code of a child that could not execute the command. Nobody looks at it.
const FAILURE: i32 = 1;

/// What became of a launch.
#[derive(Debug)]
pub(super) enum Launched {
    /// It is executed now, or a signal ended the child.
    Command(Group),
    /// It could not be executed; this is its `errno`.
    Failed(i32),
    /// It had not been executed at the latest instant, and will not be.
    TooLate,
}

/// Starts the command under `mask`, in its own process group, by the instant `latest` of boot time. When that has come,
/// `renewed` sets a later one; `None` if there is no `leasehold` any more.
///
/// # Errors
/// Fails for want of resources; then nothing of the command is left.
pub(super) fn launch(
    assignment: &Assignment,
    mask: &SigSet,
    wakeups: &Wakeups,
    latest: Duration,
    renewed: impl FnMut() -> Option<Duration>,
) -> io::Result<Launched> {
    let (report, ours) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    let shim = Pid::this();
    // The shim has one thread, so its child can do whatever the shim could.
    let child = match fork() {
        Ok(Fork::Parent(child)) => Pid::from_raw(child),
        Ok(Fork::Child) => {
            let own_group = setpgid(Pid::from_raw(0), Pid::from_raw(0)).map_err(io::Error::from);
            let Err(error) = own_group.and_then(|()| become_command(shim, assignment, mask));
            let _ = File::from(ours).write_all(&errno_of(&error).to_ne_bytes());
            std::process::exit(FAILURE);
        }
        Err(error) => return Ok(Launched::Failed(errno_of(&error))),
    };
    drop(ours);
    let launched = match read_report(report.into(), wakeups, latest, renewed) {
        Ok(Some(report)) => match report.try_into() {
            Ok(errno) => Ok(Launched::Failed(i32::from_ne_bytes(errno))),
            Err(_) => return Ok(Launched::Command(Group::of(child))),
        },
        Ok(None) => Ok(Launched::TooLate),
        Err(error) => Err(error),
    };
    // It has ended or is about to, unless it is too late.
    let _ = nix::sys::signal::kill(child, Signal::SIGKILL);
    let _ = waitpid(child, None);
    launched
}

/// Becomes the command, in the child that `shim` has forked.
fn become_command(shim: Pid, assignment: &Assignment, mask: &SigSet) -> io::Result<Infallible> {
    // As after the death of `leasehold` alone.
    prctl::set_pdeathsig(match assignment.on_lost {
        OnLost::Kill => Some(Signal::SIGKILL),
        OnLost::Signal => Some(Signal::SIGTERM),
        OnLost::Ignore => None,
    })?;
    // A shim that died before this sends nothing any more.
    if getppid() != shim {
        return Err(ErrorKind::BrokenPipe.into());
    }
    mask.thread_set_mask()?;
    let mut words = assignment.words.iter();
    let name = words.next().map(OsString::as_os_str).unwrap_or_default();
    Err(Command::new(name).args(words).exec())
}

fn errno_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(Errno::EINVAL as i32)
}

/// What the child has written when it is the command or has ended; `None` if it is neither at the latest instant.
fn read_report(
    mut report: File,
    wakeups: &Wakeups,
    mut latest: Duration,
    mut renewed: impl FnMut() -> Option<Duration>,
) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    loop {
        match report.read_to_end(&mut bytes) {
            Ok(_) => return Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        let now = SystemClock::new().now();
        if latest <= now {
            latest = match renewed() {
                Some(later) if later > now => later,
                _ => return Ok(None),
            };
        }
        wakeups.wait(Some(report.as_fd()), Some(latest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::link::Pipes;

    /// Otherwise nothing would end the command of a shim that died before its child asked for a signal.
    #[test]
    fn a_child_without_its_shim_does_not_become_the_command() {
        let assignment = Assignment {
            pipes: Pipes { owner: Pid::this(), orders: 0, notices: 0 },
            kill_after: Duration::ZERO,
            on_lost: OnLost::Ignore,
            kill_after_signal: None,
            keep_until: Duration::ZERO,
            lock_delay: Duration::ZERO,
            words: vec!["/nonexistent/program".into()],
        };
        let mask = SigSet::thread_get_mask().unwrap();
        let become_command = |shim| become_command(shim, &assignment, &mask).unwrap_err().kind();
        assert_eq!(become_command(Pid::this()), ErrorKind::BrokenPipe);
        assert_eq!(become_command(getppid()), ErrorKind::NotFound);
    }
}
