//! The thread that waits for the ends of processes that own locks: started for the first, and ended with the last.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Builder;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::owner::{Life, Owner, OwnerHandle};
use super::per_process::PerProcess;

/// Not of the engine, so not of its `sync`: models have no such thread.
static WATCHER: PerProcess<Mutex<Watcher>> = PerProcess::new();

#[derive(Default)]
struct Watcher {
    watched: Vec<Watched>,
    /// Wakes the thread, if there is one.
    bell: Option<Arc<OwnedFd>>,
}

/// A process, and the owner that dies with it.
#[derive(Clone)]
struct Watched {
    process: Arc<OwnedFd>,
    owner: Weak<Life>,
}

/// The pause if the system cannot wait, because memory is short.
const PAUSE: Duration = Duration::from_millis(20);

impl OwnerHandle {
    /// The owner that lives as long as the process with this id, which should be a child of this one.
    ///
    /// A number is free for another process once a child has ended and its parent has waited for it. So call this before
    /// anything waits for the child; from then on, it is this process and no later one of its number. A child that has
    /// ended is a dead owner. Its end is noticed at once, by a thread that watches all such processes. Each call
    /// makes another owner.
    ///
    /// There is no such owner on other systems than Linux: there a thread that waits for the child can hold an
    /// [`OwnerHandle::new`].
    ///
    /// ```
    /// use leasehold_local::locks::{LocalLocks, Options, OwnerHandle};
    ///
    /// let locks = LocalLocks::<&str>::new();
    /// let mut child = std::process::Command::new("sleep").arg("60").spawn()?;
    /// let owner = OwnerHandle::of_process(child.id())?;
    /// let options = Options::new().owner(owner).never_stale();
    /// locks.try_acquire("device", &options)?.keep();
    /// child.kill()?;
    /// locks.acquire_blocking("device", &Options::new().retry_forever())?;
    /// # child.wait()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The system's: there is no such process, it has no more descriptors or threads, or it is older than Linux 5.3.
    pub fn of_process(id: u32) -> io::Result<Owner> {
        let owner = Owner::default();
        watch(id, Arc::downgrade(&owner.0))?;
        Ok(owner)
    }
}

/// Ends `owner` when the process with this id ends. Its descriptor is of this process, whoever gets the number later.
fn watch(id: u32, owner: Weak<Life>) -> io::Result<()> {
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
    let process = Arc::new(pidfd_open(pid.ok_or(Errno::SRCH)?, PidfdFlags::empty())?);
    let mut watcher = lock();
    match &watcher.bell {
        Some(bell) => ring(bell)?,
        None => {
            let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
            let rung = bell.clone();
            Builder::new().name("leasehold-owners".into()).spawn(move || run(&rung))?;
            watcher.bell = Some(bell);
        }
    }
    // Owners that nobody uses any more are watched until here at most.
    watcher.watched.retain(|watched| watched.owner.strong_count() > 0);
    watcher.watched.push(Watched { process, owner });
    Ok(())
}

fn lock() -> MutexGuard<'static, Watcher> {
    WATCHER.get().lock().unwrap_or_else(PoisonError::into_inner)
}

fn ring(bell: &OwnedFd) -> io::Result<()> {
    match rustix::io::write(bell, &1_u64.to_ne_bytes()) {
        // It rings already.
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn run(bell: &OwnedFd) {
    loop {
        let watched = {
            let mut watcher = lock();
            watcher.watched.retain(|watched| watched.owner.strong_count() > 0);
            if watcher.watched.is_empty() {
                watcher.bell = None;
                return;
            }
            watcher.watched.clone()
        };
        let ended = wait(bell, &watched);
        for Watched { process, owner } in &ended {
            lock().watched.retain(|watched| !Arc::ptr_eq(&watched.process, process));
            if let Some(owner) = owner.upgrade() {
                owner.end();
            }
        }
    }
}

/// Waits for the end of a process, or for the bell, and says which have ended.
fn wait(bell: &OwnedFd, watched: &[Watched]) -> Vec<Watched> {
    let mut polled = vec![PollFd::new(bell, PollFlags::IN)];
    polled.extend(watched.iter().map(|watched| PollFd::new(&watched.process, PollFlags::IN)));
    if poll(&mut polled, None).is_err_and(|error| error != Errno::INTR) {
        std::thread::park_timeout(PAUSE);
    }
    let rang = |fd: &PollFd<'_>| fd.revents().intersects(PollFlags::IN | PollFlags::HUP);
    let (first, others) = polled.split_at(1);
    if first.iter().any(rang) {
        // It does not block, and an interrupted read is made good by the next round.
        rustix::io::read(bell, &mut [0_u8; 8]).unwrap_or_default();
    }
    let ended = watched.iter().zip(others).filter(|(_, fd)| rang(fd));
    ended.map(|(watched, _)| watched.clone()).collect()
}
