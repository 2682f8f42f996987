//! Waits until something is written to a file.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// The longest wait for an event: some file systems have none.
const LONGEST: Duration = Duration::from_millis(250);

/// The same where there is no event for sure, such as where this user has too many watches.
const WITHOUT_EVENTS: Duration = Duration::from_millis(20);

/// The writes to one file, whether it exists or is made again.
pub(crate) struct Changes {
    file: PathBuf,
    events: Option<Inotify>,
    is_watched: bool,
    wakes: Arc<EventFd>,
}

/// Ends a wait. Clones are one.
#[derive(Debug, Clone)]
pub(crate) struct Waker(Arc<EventFd>);

impl Waker {
    pub(crate) fn wake(&self) {
        // An error means that many wakes wait already.
        let _: Result<_, _> = self.0.write(1);
    }
}

impl Changes {
    /// `None` if this process has no file descriptor left.
    pub(crate) fn of(file: &Path) -> Option<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let wakes = Arc::new(EventFd::from_flags(flags).ok()?);
        let events = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok();
        Some(Self { file: file.to_owned(), events, is_watched: false, wakes })
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.wakes))
    }

    /// From now on a write ends the next wait. Again and again, for the file may be another one by now.
    pub(crate) fn watch(&mut self) {
        let events = self.events.as_ref();
        self.is_watched = events
            .is_some_and(|events| events.add_watch(&self.file, AddWatchFlags::IN_MODIFY).is_ok());
    }

    /// Waits for a write, and reports whether there was one. A look should follow in any case.
    pub(crate) fn wait(&self) -> bool {
        let events = self.events.as_ref().filter(|_| self.is_watched);
        self.poll(events, if self.is_watched { LONGEST } else { WITHOUT_EVENTS });
        events.is_some_and(|events| events.read_events().is_ok_and(|events| !events.is_empty()))
    }

    /// Waits so long, or until it is woken.
    pub(crate) fn pause(&self, duration: Duration) {
        self.poll(None, duration);
    }

    fn poll(&self, events: Option<&Inotify>, longest: Duration) {
        let woken = PollFd::new(self.wakes.as_fd(), PollFlags::POLLIN);
        let written = events.map(|events| PollFd::new(events.as_fd(), PollFlags::POLLIN));
        let mut all: Vec<_> = std::iter::once(woken).chain(written).collect();
        // A signal ends it early, which does no harm.
        let _: Result<_, _> =
            poll(&mut all, PollTimeout::try_from(longest).unwrap_or(PollTimeout::MAX));
        let _: Result<_, _> = self.wakes.read();
    }
}
