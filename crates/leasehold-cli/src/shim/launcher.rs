//! The launcher: the process that becomes the command.
//!
//! The shim starts this binary once more, under the name [`NAME`]. That process asks the kernel for a signal at the
//! death of its parent, which `execve` keeps, and then executes the command. So the command does not outlive the lock
//! even if `leasehold` and the shim are killed together.
//!
//! Through a pipe, which closes when the command is executed, the launcher reports to the shim that it is [`READY`], and
//! why it could not execute the command.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode};
use std::time::Duration;

use leasehold::store::{Clock as _, SystemClock};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::unistd::{Pid, getppid, pipe2};

use super::wakeups::Wakeups;
use crate::plan::OnLost;
use crate::process::Assignment;
use crate::process::cause::{exit_code, failure};
use crate::process::group::{Group, LeaderState};
use crate::process::link::path_of;

/// The name, as `argv[0]`, under which the shim starts this binary.
const NAME: &str = "lh-exec";

/// The byte by which the launcher reports that it has opened the pipe, so that the shim can close its own end.
const READY: u8 = 1;

/// True if this process was started as a launcher.
pub(crate) fn is_this_process() -> bool {
    std::env::args_os().next().is_some_and(|name| name == NAME)
}

/// Becomes the command. If this returns, the shim knows why from the pipe, or from the exit code.
pub(crate) fn main() -> ExitCode {
    // Otherwise `ps` would call it `exe`; a failure has no other effect.
    let _ = prctl::set_name(c"lh-exec");
    let Some(launch) = Launch::from_args(std::env::args_os().skip(1)) else {
        return ExitCode::FAILURE;
    };
    let Err(error) = launch.execute();
    exit_code(&error)
}

/// The arguments of a launcher.
#[derive(Debug, PartialEq, Eq)]
struct Launch {
    shim: Pid,
    /// The pipe, as an open file of the shim.
    status: RawFd,
    /// What the kernel sends the command when the shim dies.
    signal: Option<Signal>,
    /// The program and its arguments.
    words: Vec<OsString>,
}

impl Launch {
    fn to_args(&self) -> Vec<OsString> {
        let signal = self.signal.map_or(0, |signal| signal as i32);
        let numbers = [self.shim.as_raw(), self.status, signal];
        let numbers = numbers.map(|number| OsString::from(number.to_string()));
        numbers.into_iter().chain(self.words.iter().cloned()).collect()
    }

    fn from_args(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut number = || args.next()?.to_str()?.parse::<i32>().ok();
        let (shim, status) = (Pid::from_raw(number()?), number()?);
        let signal = match number()? {
            0 => None,
            signal => Some(Signal::try_from(signal).ok()?),
        };
        Some(Self { shim, status, signal, words: args.collect() })
    }

    fn execute(&self) -> io::Result<Infallible> {
        prctl::set_pdeathsig(self.signal)?;
        // A shim that died before this sends nothing any more.
        if getppid() != self.shim {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let at_once = OFlag::O_NONBLOCK.bits();
        let path = path_of(self.shim, self.status);
        let mut status = OpenOptions::new().write(true).custom_flags(at_once).open(path)?;
        status.write_all(&[READY])?;
        let mut words = self.words.iter();
        let name = words.next().map(OsString::as_os_str).unwrap_or_default();
        let error = Command::new(name).args(words).exec();
        let errno = error.raw_os_error().unwrap_or(Errno::EINVAL as i32);
        status.write_all(&errno.to_ne_bytes())?;
        Err(error)
    }
}

/// What became of a launch.
#[derive(Debug)]
pub(super) enum Launched {
    /// It is the command now, or a signal ended it.
    Command(Child),
    /// The command could not be executed; this is its `errno`.
    Failed(i32),
    /// It had not been executed at the latest instant, and will not be.
    TooLate,
}

/// Starts the command under `mask`, in its own process group, by the instant `latest` of boot time. When that has come,
/// `renewed` sets a later one; `None` if there is no `leasehold` any more.
///
/// # Errors
/// Fails if the launcher does; then nothing of it is left.
pub(super) fn launch(
    assignment: &Assignment,
    mask: &SigSet,
    wakeups: &Wakeups,
    latest: Duration,
    renewed: impl FnMut() -> Option<Duration>,
) -> io::Result<Launched> {
    let (status, ours) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    let launch = Launch {
        shim: Pid::this(),
        status: ours.as_raw_fd(),
        // As after the death of `leasehold` alone.
        signal: match assignment.on_lost {
            OnLost::Kill => Some(Signal::SIGKILL),
            OnLost::Signal => Some(Signal::SIGTERM),
            OnLost::Ignore => None,
        },
        words: assignment.words.clone(),
    };
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).args(launch.to_args()).process_group(0);
    let blocked = mask.thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
    let started = command.spawn();
    blocked.thread_set_mask()?;
    let mut launcher = match started {
        Ok(launcher) => launcher,
        Err(error) => {
            return Ok(Launched::Failed(error.raw_os_error().unwrap_or(Errno::EINVAL as i32)));
        }
    };
    let group = Group::of_child(&launcher);
    let launched = match read_report(status.into(), ours, group, wakeups, latest, renewed) {
        Ok(Some(report)) => match report[..] {
            [READY] => return Ok(Launched::Command(launcher)),
            [] if group.ended() == Some(LeaderState::Killed) => {
                return Ok(Launched::Command(launcher));
            }
            [READY, a, b, c, d] => Ok(Launched::Failed(i32::from_ne_bytes([a, b, c, d]))),
            _ => Err(ErrorKind::BrokenPipe.into()),
        },
        Ok(None) => Ok(Launched::TooLate),
        Err(error) => Err(error),
    };
    // It has ended or is about to, unless it is too late.
    let _ = launcher.kill();
    let ended = launcher.wait();
    launched.map_err(|error| ended.ok().and_then(failure).unwrap_or(error))
}

/// What the launcher has written when it is the command or has ended; `None` if it is neither at the latest instant.
fn read_report(
    mut status: File,
    ours: OwnedFd,
    group: Group,
    wakeups: &Wakeups,
    mut latest: Duration,
    mut renewed: impl FnMut() -> Option<Duration>,
) -> io::Result<Option<Vec<u8>>> {
    let mut ours = Some(ours);
    let mut report = Vec::new();
    loop {
        // Before the look at the pipe, so that nothing that it wrote is missed.
        let ended = group.ended().is_some();
        let mut bytes = [0; 8];
        match status.read(&mut bytes) {
            Ok(0) => return Ok(Some(report)),
            Ok(length) => {
                report.extend_from_slice(&bytes[..length]);
                ours = None;
                continue;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if ended && ours.is_some() {
            return Ok(Some(report));
        }
        let now = SystemClock::new().now();
        if latest <= now {
            latest = match renewed() {
                Some(later) if later > now => later,
                _ => return Ok(None),
            };
        }
        wakeups.wait(Some(status.as_fd()), Some(latest));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_carry_it() {
        for signal in [Some(Signal::SIGKILL), Some(Signal::SIGTERM), None] {
            let words = vec!["sh".into(), "-c".into(), "--".into(), "".into()];
            let launch = Launch { shim: Pid::from_raw(77), status: 9, signal, words };
            assert_eq!(Launch::from_args(launch.to_args().into_iter()), Some(launch));
        }
        for bad in [&["1", "2"][..], &["x", "2", "0"], &["1", "2", "99"]] {
            assert_eq!(Launch::from_args(bad.iter().map(OsString::from)), None, "{bad:?}");
        }
    }
}
