//! What wakes the shim: an order, a child, an instant.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// How long a wait lasts if the timer cannot be set.
const WITHOUT_TIMER: u16 = 20;

/// The sources that end a wait.
#[derive(Debug)]
pub(super) struct Wakeups {
    children: SignalFd,
    /// On boot time: it is due at once when the machine wakes after a sleep.
    timer: TimerFd,
}

impl Wakeups {
    /// SIGCHLD must be blocked, so that it stays pending until it is read.
    pub(super) fn new() -> nix::Result<Self> {
        let children = SigSet::from(Signal::SIGCHLD);
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        Ok(Self {
            children: SignalFd::with_flags(&children, flags)?,
            timer: TimerFd::new(
                ClockId::CLOCK_BOOTTIME,
                TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC,
            )?,
        })
    }

    /// Waits until `orders` can be read, a child has changed its state, or `instant` of boot time has come.
    pub(super) fn wait(&self, orders: Option<BorrowedFd<'_>>, instant: Option<Duration>) {
        let timeout = match self.set(instant) {
            Ok(()) => PollTimeout::NONE,
            Err(_) => PollTimeout::from(WITHOUT_TIMER),
        };
        let ends = [Some(self.children.as_fd()), Some(self.timer.as_fd()), orders];
        let mut ends: Vec<_> =
            ends.into_iter().flatten().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // Whatever ended it: everything is checked.
        let _ = poll(&mut ends, timeout);
        while let Ok(Some(_)) = self.children.read_signal() {}
    }

    fn set(&self, instant: Option<Duration>) -> nix::Result<()> {
        match instant {
            // Zero would disarm it.
            Some(instant) => self.timer.set(
                Expiration::OneShot(TimeSpec::from_duration(instant.max(Duration::from_nanos(1)))),
                TimerSetTimeFlags::TFD_TIMER_ABSTIME,
            ),
            None => self.timer.unset(),
        }
    }
}
