use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};

use super::sync::{AtomicBool, Mutex, Ordering, isolate};

/// The life of whoever owns locks: all its locks are stale from the moment the handle is dropped.
///
/// Give it to what may die, such as a connection. Waiters of its locks go on at once. Threads, tasks and processes have
/// owners ready made: [`of_thread`](Self::of_thread), [`of_task`](Self::of_task) and, on Linux, `of_process`.
///
/// ```
/// use leasehold_local::locks::{LocalLocks, Options, OwnerHandle};
///
/// let locks = LocalLocks::<&str>::new();
/// let worker = OwnerHandle::new();
/// let options = Options::new().owner(&worker);
/// let id = locks.try_acquire("job", &options)?.keep();
/// assert!(locks.try_acquire("job", &Options::new()).is_err());
/// drop(worker);
/// assert!(locks.try_acquire("job", &Options::new()).is_ok());
/// # Ok::<(), leasehold_local::locks::LockError>(())
/// ```
#[derive(Debug, Default)]
pub struct OwnerHandle(Owner);

impl OwnerHandle {
    /// A new owner.
    pub fn new() -> Self {
        Self::default()
    }

    /// The owner that lives as long as the calling thread.
    ///
    /// A task moves between threads, and lives shorter or longer: it has [`of_task`](Self::of_task).
    pub fn of_thread() -> Owner {
        super::sync::thread_local! {
            static OF_THREAD: OwnerHandle = OwnerHandle::new();
        }
        OF_THREAD.with(OwnerHandle::owner)
    }

    /// The future that `f` makes, with an owner that lives as long as it: until the future ends, panics or is dropped.
    /// A task that is aborted drops its future.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_local::locks::LockError> {
    /// use leasehold_local::locks::{LocalLocks, Options, OwnerHandle};
    ///
    /// let locks = LocalLocks::<&str>::new();
    /// let inner = locks.clone();
    /// let task = tokio::spawn(OwnerHandle::of_task(async move |owner| {
    ///     inner.try_acquire("job", &Options::new().owner(owner)).unwrap().keep();
    ///     std::future::pending::<()>().await;
    /// }));
    /// # tokio::task::yield_now().await;
    /// assert!(locks.try_acquire("job", &Options::new()).is_err());
    /// task.abort();
    /// locks.acquire("job", &Options::new()).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    /// May be dropped at any time: then the future of `f` is dropped, and the owner dies after it.
    pub async fn of_task<F: Future>(f: impl FnOnce(Owner) -> F) -> F::Output {
        let handle = Self::new();
        f(handle.owner()).await
    }

    /// Its owner, to give to [`Options::owner`](super::Options::owner).
    pub fn owner(&self) -> Owner {
        self.0.clone()
    }
}

impl Drop for OwnerHandle {
    fn drop(&mut self) {
        let Owner(life) = &self.0;
        life.end();
    }
}

impl From<&OwnerHandle> for Owner {
    fn from(handle: &OwnerHandle) -> Self {
        handle.owner()
    }
}

/// Whoever owns locks. Clones are the same owner; it lives as long as its [`OwnerHandle`], or what that is of.
#[derive(Clone, Default)]
pub struct Owner(pub(super) Arc<Life>);

pub(super) struct Life {
    number: u64,
    alive: AtomicBool,
    tables: Mutex<Vec<Weak<dyn OwnersTable>>>,
}

/// A table in which an owner may have locks.
pub(super) trait OwnersTable: Send + Sync {
    /// Lets those go on who wait for a lock of an owner that died.
    fn owner_died(&self);
}

impl Owner {
    /// A number that no other owner of this process has.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// True until its handle is dropped, or what it is of has ended.
    pub fn is_alive(&self) -> bool {
        self.0.alive.load(Ordering::Acquire)
    }

    /// Has the table told of its death.
    pub(super) fn tell(&self, table: Weak<dyn OwnersTable>) {
        let mut tables = self.0.tables.lock();
        if !tables.iter().any(|known| known.ptr_eq(&table)) {
            tables.retain(|known| known.strong_count() > 0);
            tables.push(table);
        }
    }
}

impl Life {
    /// Makes all locks of the owner stale, and lets those go on who wait for them.
    pub(super) fn end(&self) {
        self.alive.store(false, Ordering::Release);
        let tables = std::mem::take(&mut *self.tables.lock());
        for table in tables.iter().filter_map(Weak::upgrade) {
            isolate(|| table.owner_died());
        }
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Owner {}

impl Default for Life {
    fn default() -> Self {
        // Not the engine's: it orders nothing.
        static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let number = LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        Self { number, alive: AtomicBool::new(true), tables: Mutex::new(Vec::new()) }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_alive() { "alive" } else { "dead" };
        write!(f, "Owner({}, {state})", self.number())
    }
}
