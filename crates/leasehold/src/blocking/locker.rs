use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use leasehold_core::{
    Capabilities, Claims, Error, EvictReply, EvictRequest, Filter, GroupName, Health, Key, Lease,
    LeaseId, Level, ListReply, ListRequest, Record, Remaining, Result, Store,
};

use super::guard::Guard;
use super::janitor::JanitorBuilder;
use crate::acquire::request::LockRequest;
use crate::janitor::Purged;
use crate::lease::release_report::ReleaseReport;
use crate::thread::Thread;

/// Handle for locking on one store without async; its methods are those of [`crate::Locker`].
///
/// Cheap to clone; clones share everything, including the thread that serves them. Methods that send a request fail
/// as any operation, and as [the module](crate::blocking) states.
///
/// To set the clock, limits or note, convert a [`crate::Locker`] that has them:
///
/// ```
/// # fn main() -> leasehold::Result<()> {
/// use leasehold::{LocalStore, blocking};
/// use std::time::Duration;
///
/// let builder = leasehold::Locker::builder(LocalStore::new()).timeout(Duration::from_secs(3));
/// let locks = blocking::Locker::from(builder.build());
/// assert!(locks.try_lock("report").take()?.is_some());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Locker(crate::Locker);

/// Another `Locker` with the same store, clock, limits and note. The two share nothing else: each has its own
/// queues, renews and releases its own leases, and is closed by itself. So a blocking call never waits for a task
/// on the thread that it blocks.
impl From<crate::Locker> for Locker {
    fn from(locks: crate::Locker) -> Self {
        Self(locks.0.again().build())
    }
}

impl Locker {
    /// Opens the store that `url` names, as [`crate::Locker::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(url: &str) -> Result<Self> {
        let url = url.to_owned();
        Self::opened(async move { crate::Locker::connect(&url).await })
    }

    /// Opens the store that `url` names, as [`crate::Locker::connect_unchecked`].
    ///
    /// # Errors
    /// As there.
    pub fn connect_unchecked(url: &str) -> Result<Self> {
        let url = url.to_owned();
        Self::opened(async move { crate::Locker::connect_unchecked(&url).await })
    }

    fn opened(
        opening: impl Future<Output = Result<crate::Locker>> + Send + 'static,
    ) -> Result<Self> {
        let thread = Thread::start()?;
        let locks = thread.run(opening)?;
        locks.0.thread.get_or_init(|| thread);
        Ok(Self(locks))
    }

    /// Creates a `Locker` on `store`, which is checked at first use.
    pub fn new(store: impl Store) -> Self {
        Self(crate::Locker::new(store))
    }

    /// Locks `key`: set the options, then [`take`](LockRequest::take) it.
    pub fn lock<K: TryInto<Key, Error: Into<Error>>>(&self, key: K) -> LockRequest<Guard> {
        self.0.lock(key).giving()
    }

    /// Tries once to lock `key`: `None` if it is held. To learn who holds it, lock with [`Wait::No`](crate::Wait::No):
    /// the error, of kind `Held`, [names the holder](crate::WaitReport::holder).
    pub fn try_lock<K: TryInto<Key, Error: Into<Error>>>(
        &self,
        key: K,
    ) -> LockRequest<Option<Guard>> {
        self.0.try_lock(key).giving()
    }

    /// Locks all `keys` or none, under one guard and one token ([F8](crate::contract)).
    pub fn lock_all<K: TryInto<Key, Error: Into<Error>>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> LockRequest<Guard> {
        self.0.lock_all(keys).giving()
    }

    /// Locks several keys, each in its own mode.
    pub fn lock_claims(&self, claims: Claims) -> LockRequest<Guard> {
        self.0.lock_claims(claims).giving()
    }

    /// Continues `lease` if the store still has it, otherwise locks its keys again; as
    /// [`crate::Locker::acquire_or_renew`].
    pub fn acquire_or_renew(&self, lease: Lease) -> LockRequest<Guard> {
        self.0.acquire_or_renew(lease).giving()
    }

    /// Locks `key` with the default options, runs `work`, then releases the lock. For other options, `take` a
    /// [`lock`](Locker::lock). Returns the result of `work`
    /// and the store's answer to the release: `Expired` or `NotHeld` if `work` overran its lease, so that another
    /// holder may have been inside meanwhile; `Failed` if the store did not answer, and the release continues in
    /// the background.
    ///
    /// If `work` panics, the lock is released before the panic continues.
    ///
    /// # Errors
    /// If the lock was not granted; `work` did not run then.
    pub fn with_lock<K: TryInto<Key, Error: Into<Error>>, R>(
        &self,
        key: K,
        work: impl FnOnce(&Guard) -> R,
    ) -> Result<(R, ReleaseReport)> {
        let guard = self.lock(key).take()?;
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&guard)));
        // Not left to the background, because the process may end with the panic.
        let released = guard.release().unwrap_or_else(ReleaseReport::failed);
        match outcome {
            Ok(value) => Ok((value, released)),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Adopts a lease that another guard [handed over](Guard::detach), as [`crate::Locker::adopt`].
    ///
    /// # Errors
    /// As there.
    pub fn adopt(&self, lease: Lease) -> Result<Guard> {
        let guard = self.call(|locks| async move { locks.adopt(lease).await })?;
        Ok(Guard::new(guard, self.0.clone()))
    }

    /// Releases a lease that a guard handed over or whose holder is dead, as [`crate::Locker::release`].
    ///
    /// # Errors
    /// As there.
    pub fn release(&self, lease: &Lease, keep: Duration) -> Result<ReleaseReport> {
        let lease = lease.clone();
        self.call(|locks| async move { locks.release(&lease, keep).await })
    }

    /// The live records of `key`: who holds it, and until when.
    ///
    /// # Errors
    /// `InvalidInput` for a bad key, else as any operation.
    pub fn status<K: TryInto<Key, Error: Into<Error>>>(&self, key: K) -> Result<Vec<Record>> {
        let key = key.try_into().map_err(Into::into)?;
        self.call(|locks| async move { locks.status(key).await })
    }

    /// True if `key` is held, in any mode.
    ///
    /// # Errors
    /// As [`status`](Locker::status).
    pub fn is_held<K: TryInto<Key, Error: Into<Error>>>(&self, key: K) -> Result<bool> {
        Ok(!self.status(key)?.is_empty())
    }

    /// All records that match, page by page; no snapshot. What cannot be read as a record is
    /// [named](ListReply::unreadable).
    ///
    /// # Errors
    /// As any operation.
    pub fn list(&self, filter: Filter) -> Result<ListReply> {
        self.call(|locks| async move { locks.list(filter).await })
    }

    /// One page of records.
    ///
    /// # Errors
    /// As any operation.
    pub fn list_page(&self, request: &ListRequest) -> Result<ListReply> {
        let request = request.clone();
        self.call(|locks| async move { locks.list_page(&request).await })
    }

    /// Removes expired records, or ends exactly the named leases, of any holder.
    ///
    /// # Errors
    /// As any operation; repeating it is safe.
    pub fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        let request = request.clone();
        self.call(|locks| async move { locks.evict(&request).await })
    }

    /// Removes expired records that match, in batches, as [`crate::Locker::purge`].
    ///
    /// # Errors
    /// As there.
    pub fn purge(&self, filter: Filter, batch: usize) -> Result<Purged> {
        self.call(|locks| async move { locks.purge(filter, batch).await })
    }

    /// A [`Janitor`](super::Janitor) for this store: set its options, then [`spawn`](JanitorBuilder::spawn) it.
    pub fn janitor(&self) -> JanitorBuilder {
        JanitorBuilder::new(&self.0)
    }

    /// Acts on the leases in `group` that this `Locker` acquired or adopted ([F9](crate::contract)).
    ///
    /// # Errors
    /// `InvalidInput` for an invalid group name.
    pub fn group<O: TryInto<GroupName, Error: Into<Error>>>(&self, group: O) -> Result<Group> {
        self.0.group(group).map(Group)
    }

    /// Reads the store's settings now and returns the level that they support.
    ///
    /// # Errors
    /// `Incompatible` if the store cannot be used at all, else as any operation.
    pub fn check(&self) -> Result<Health> {
        self.call(|locks| async move { locks.check().await })
    }

    /// The level at the last check of the store's settings; L0 before the first.
    pub fn level(&self) -> Level {
        self.0.level()
    }

    /// Fails unless the store reached `level` when it was last checked, as [`crate::Locker::require`].
    ///
    /// # Errors
    /// As there.
    pub fn require(&self, level: Level) -> Result<()> {
        self.0.require(level)
    }

    /// Creates what the store needs, such as tables; run it with an administrator's role.
    ///
    /// # Errors
    /// `Denied` if the role lacks a right.
    pub fn prepare(&self) -> Result<()> {
        self.call(|locks| async move { locks.prepare().await })
    }

    /// What the store can do.
    pub fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    /// Refuses new locks from now on, also for waiting callers, and returns when every dropped guard is released
    /// and every abandoned request is finished. Open guards are unaffected.
    ///
    /// # Errors
    /// `Unavailable`, effect `Unknown`, if that took longer than `timeout`; what is left ends with its term.
    pub fn close(&self, timeout: Duration) -> Result<()> {
        self.call(|locks| async move { locks.close(timeout).await })
    }

    fn call<T: Send + 'static, F>(&self, ask: impl FnOnce(crate::Locker) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.0.0.thread()?.run(ask(self.0.clone()))
    }
}

impl LockRequest<Guard> {
    /// Waits for the lock, blocking this thread.
    ///
    /// # Errors
    /// As the builder states; `Unexpected` as [the module](crate::blocking) states.
    pub fn take(self) -> Result<Guard> {
        let locks = self.locks.clone();
        let guard =
            locks.0.thread()?.run(self.called_here().giving::<crate::Guard>().into_future())?;
        Ok(Guard::new(guard, locks))
    }
}

impl LockRequest<Option<Guard>> {
    /// Tries to lock, blocking this thread until the store has answered; `None` if the key is held.
    ///
    /// # Errors
    /// As the builder states; `Unexpected` as [the module](crate::blocking) states.
    pub fn take(self) -> Result<Option<Guard>> {
        let locks = self.locks.clone();
        let guard = locks
            .0
            .thread()?
            .run(self.called_here().giving::<Option<crate::Guard>>().into_future())?;
        Ok(guard.map(|guard| Guard::new(guard, locks)))
    }
}

/// The leases of one group that this [`Locker`] acquired or adopted ([F9](crate::contract)); see [`crate::Group`].
#[derive(Debug, Clone)]
pub struct Group(crate::Group);

impl Group {
    /// Locks `key` in this group.
    pub fn lock<K: TryInto<Key, Error: Into<Error>>>(&self, key: K) -> LockRequest<Guard> {
        self.0.lock(key).giving()
    }

    /// Tries once to lock `key` in this group.
    pub fn try_lock<K: TryInto<Key, Error: Into<Error>>>(
        &self,
        key: K,
    ) -> LockRequest<Option<Guard>> {
        self.0.try_lock(key).giving()
    }

    /// Locks all `keys` or none in this group.
    pub fn lock_all<K: TryInto<Key, Error: Into<Error>>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> LockRequest<Guard> {
        self.0.lock_all(keys).giving()
    }

    /// The leases held here, oldest first.
    pub fn leases(&self) -> Vec<Lease> {
        self.0.leases()
    }

    /// All live records of this group in the store, from every process.
    ///
    /// # Errors
    /// As any operation.
    pub fn list(&self) -> Result<ListReply> {
        self.call(|group| async move { group.list().await })
    }

    /// Renews every lease held here, oldest first; each has its own outcome.
    ///
    /// # Errors
    /// As [the module](crate::blocking) states.
    pub fn renew(&self) -> Result<Vec<(LeaseId, Result<Remaining>)>> {
        self.call(|group| async move { Ok(group.renew().await) })
    }

    /// Releases every lease held here, newest first, as [`crate::Group::release`].
    ///
    /// # Errors
    /// As [the module](crate::blocking) states.
    pub fn release(&self) -> Result<Vec<(LeaseId, ReleaseReport)>> {
        self.call(|group| async move { Ok(group.release().await) })
    }

    fn call<T: Send + 'static, F>(&self, ask: impl FnOnce(crate::Group) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.0.locks.0.thread()?.run(ask(self.0.clone()))
    }
}
