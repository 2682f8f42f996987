//! Waits until something is written to a file.

use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::unistd::geteuid;

/// The longest wait for an event: some file systems have none.
const LONGEST: Duration = Duration::from_millis(250);

/// The same where there is no event for sure, such as where this user has too many watches.
const WITHOUT_EVENTS: Duration = Duration::from_millis(20);

/// So many waits without an instance lie between two attempts to get one: a second.
const AGAIN: u32 = 50;

/// The writes to one file, whether it exists or is made again.
pub(crate) struct Changes {
    file: PathBuf,
    shares: Shares,
    instance: Option<Instance>,
    /// How often it has waited without an instance.
    alone: u32,
    is_watched: bool,
    wakes: Arc<EventFd>,
}

/// Ends a wait. Clones end the same one.
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
        Self::with(file, Shares::of_this_user())
    }

    fn with(file: &Path, shares: Shares) -> Option<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let wakes = Arc::new(EventFd::from_flags(flags).ok()?);
        let instance = Instance::of(&shares);
        Some(Self { file: file.to_owned(), shares, instance, alone: 0, is_watched: false, wakes })
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.wakes))
    }

    /// From now on a write ends the next wait. Again and again, for the file may be another one by now, and an instance may
    /// be free.
    pub(crate) fn watch(&mut self) {
        if self.instance.is_none() && self.alone >= AGAIN {
            self.alone = 0;
            self.instance = Instance::of(&self.shares);
        }
        self.is_watched = self
            .events()
            .is_some_and(|events| events.add_watch(&self.file, AddWatchFlags::IN_MODIFY).is_ok());
    }

    /// Waits for a write, and reports whether there was one. A look should follow in any case.
    pub(crate) fn wait(&mut self) -> bool {
        self.alone += u32::from(self.instance.is_none());
        let events = self.events().filter(|_| self.is_watched);
        self.poll(events, if self.is_watched { LONGEST } else { WITHOUT_EVENTS });
        events.is_some_and(|events| events.read_events().is_ok_and(|events| !events.is_empty()))
    }

    /// Waits so long, or until it is woken.
    pub(crate) fn pause(&self, duration: Duration) {
        self.poll(None, duration);
    }

    fn events(&self) -> Option<&Inotify> {
        self.instance.as_ref().map(|instance| &instance.events)
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

/// How many inotify instances a user may have, over all programs.
const LIMIT: &str = "/proc/sys/fs/inotify/max_user_instances";

/// One of the inotify instances that the waiters of this user may have together: at most half of the limit, for other
/// programs fail without one, and a waiter can look instead.
struct Instance {
    events: Inotify,
    _share: UnixDatagram,
}

impl Instance {
    fn of(shares: &Shares) -> Option<Self> {
        let share = shares.take()?;
        let events = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok()?;
        Some(Self { events, _share: share })
    }
}

/// So many shares of this name, over all processes.
struct Shares {
    name: String,
    count: usize,
}

impl Shares {
    fn of_this_user() -> Self {
        let limit = std::fs::read_to_string(LIMIT).ok();
        let limit: Option<usize> = limit.and_then(|limit| limit.trim().parse().ok());
        let name = format!("leasehold-inotify-{}", geteuid());
        Self { name, count: limit.unwrap_or_default() / 2 }
    }

    /// One that nobody has. An abstract socket is one process's alone, needs no file, and ends with its process.
    fn take(&self) -> Option<UnixDatagram> {
        // Processes begin at different places, so that few are asked for in vain.
        let first = usize::try_from(std::process::id()).unwrap_or_default();
        (0..self.count).find_map(|nth| {
            let nth = (first + nth) % self.count;
            let address = SocketAddr::from_abstract_name(format!("{}-{nth}", self.name)).ok()?;
            UnixDatagram::bind_addr(&address).ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(name: &str, count: usize) -> Shares {
        Shares { name: format!("leasehold-test-{name}-{}", std::process::id()), count }
    }

    #[test]
    fn there_are_so_many_shares_and_a_dropped_one_is_free_again() {
        let three = shares("three", 3);
        let mut taken: Vec<_> = (0..3).map(|_| three.take().unwrap()).collect();
        assert!(three.take().is_none());
        taken.remove(1);
        assert!(three.take().is_some());
        assert!(shares("none", 0).take().is_none());
    }

    #[test]
    fn a_waiter_that_looked_without_a_share_is_woken_by_writes_once_one_is_free() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let taken = shares("one", 1).take().unwrap();
        let mut changes = Changes::with(file.path(), shares("one", 1)).unwrap();
        let wakes = |changes: &mut Changes| {
            changes.watch();
            std::fs::write(file.path(), "a").unwrap();
            changes.wait()
        };
        assert!((0..=AGAIN).all(|_| !wakes(&mut changes)), "no instance beside the share");
        drop(taken);
        let soon = (0..=AGAIN).find(|_| wakes(&mut changes));
        assert!(soon.is_some(), "woken after a second");
        assert!(wakes(&mut changes), "from then on each time");
    }
}
