use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use leasehold_core::term::Drift;
use leasehold_core::{
    AnyStore, Capabilities, Clock, Effect, Error, EvictReply, EvictRequest, Filter, Health, Key,
    Level, ListReply, ListRequest, Note, Record, Result, Store, Ttl,
};
use leasehold_driver::SystemClock;
use tokio::sync::SetOnce;

use crate::keeper::{Keeper, KeeperHandle, caught};
use crate::registry::Registry;
use crate::telemetry;
use crate::thread::Thread;

/// How long the store's connections have to end although the limit of a close has passed.
const PARTING: Duration = Duration::from_millis(250);

/// Handle for locking on one store: cheap to clone, and the same type for every store.
///
/// Callers of one `Locker` that want the same keys queue, and only the first of them sends a request. One background
/// task per `Locker`, which the first acquire starts on its tokio runtime, renews the leases. If that runtime ends, or
/// nobody drives it, another runtime that uses the `Locker` continues the work. A forked child has no such task: make its
/// `Locker` after the fork. A guard inherited by a child belongs to the parent, and dropping it
/// in the child releases nothing.
///
/// Clones share everything. Two `Locker`s on one store share only the store.
#[derive(Clone)]
pub struct Locker(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) keeper: Arc<KeeperHandle>,
    pub(crate) note: Note,
    pub(crate) registry: Arc<Registry>,
    /// What the last check found.
    health: Mutex<Option<Health>>,
    /// Held while checking, so that one caller checks for all.
    checking: tokio::sync::Mutex<()>,
    closed: SetOnce<()>,
    /// Runs the calls of blocking callers; the first of them starts it.
    pub(crate) thread: OnceLock<Thread>,
}

/// Sets the options of a [`Locker`] beside its store.
#[derive(Debug)]
pub struct LockerBuilder {
    store: AnyStore,
    clock: Arc<dyn Clock>,
    drift: Drift,
    timeout: Duration,
    note: Option<Note>,
}

impl LockerBuilder {
    /// Sets the clock; by default the machine's ([`SystemClock`]).
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets what is subtracted from every term because clocks run at different rates; by default 1 % and 2 ms.
    #[must_use]
    pub fn drift(mut self, drift: Drift) -> Self {
        self.drift = drift;
        self
    }

    /// Sets the time-out of one operation; by default 10 s, above the stores' own time-outs, so that a store can report
    /// the outcome. A request that changes leases and is not answered in time is finished in the background.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the note that names who holds a lease, for people; by default host, process id and program.
    #[must_use]
    pub fn note(mut self, note: Note) -> Self {
        self.note = Some(note);
        self
    }

    /// Creates the `Locker`. Nothing is sent; the store is checked at first use.
    pub fn build(self) -> Locker {
        telemetry::describe();
        let keeper = Keeper::new(self.store, self.clock, self.drift, self.timeout);
        Locker(Arc::new(Inner {
            keeper: KeeperHandle::new(keeper),
            note: self.note.unwrap_or_else(this_process),
            registry: Arc::default(),
            health: Mutex::default(),
            checking: tokio::sync::Mutex::default(),
            closed: SetOnce::new(),
            thread: OnceLock::new(),
        }))
    }
}

impl Locker {
    /// Creates a `Locker` on `store`, which is checked at first use.
    pub fn new(store: impl Store) -> Self {
        Self::builder(store).build()
    }

    /// Builds a `Locker` with a clock, drift, time-out or note of your own.
    pub fn builder(store: impl Store) -> LockerBuilder {
        LockerBuilder {
            store: AnyStore::new(store),
            clock: Arc::new(SystemClock::new()),
            drift: Drift::default(),
            timeout: Duration::from_secs(10),
            note: None,
        }
    }

    /// The live records of `key`: who holds it, and until when. On a quorum, a lease holds the key if a majority
    /// of the nodes has it; [`list`](Locker::list) shows what each node has.
    ///
    /// # Errors
    /// `InvalidInput` for a bad key, `Unavailable` if too few nodes of a quorum answered to decide, `Corrupt` or another
    /// kind if what the store has there cannot be read, else as any operation.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn status<K: TryInto<Key, Error: Into<Error>>>(&self, key: K) -> Result<Vec<Record>> {
        self.0.keeper.holders(Filter::default().with_key(key.try_into().map_err(Into::into)?)).await
    }

    /// True if `key` is held, in any mode.
    ///
    /// # Errors
    /// As [`status`](Locker::status).
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn is_held<K: TryInto<Key, Error: Into<Error>>>(&self, key: K) -> Result<bool> {
        Ok(!self.status(key).await?.is_empty())
    }

    /// All records that match, page by page; no snapshot. What cannot be read as a record is
    /// [named](ListReply::unreadable).
    ///
    /// # Errors
    /// As any operation.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn list(&self, filter: Filter) -> Result<ListReply> {
        self.0.keeper.list_whole(filter).await
    }

    /// One page of records.
    ///
    /// # Errors
    /// As any operation.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn list_page(&self, request: &ListRequest) -> Result<ListReply> {
        self.0.keeper.list_page(request).await
    }

    /// Removes expired records, or ends exactly the named leases, of any holder.
    ///
    /// # Errors
    /// As any operation; repeating it is safe.
    ///
    /// # Cancel safety
    /// May be dropped; its effect is then unknown.
    pub async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        let keeper = &self.0.keeper;
        let evicted = keeper.limited("evict", keeper.store.evict(request)).await?;
        keeper.queues.released(evicted.removed.iter().map(|target| &target.key));
        Ok(evicted)
    }

    /// Reads the store's settings now and returns the level that they support.
    ///
    /// # Errors
    /// `Incompatible` if the store cannot be used at all, else as any operation.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn check(&self) -> Result<Health> {
        self.0.keeper.limited("check", self.0.check()).await
    }

    /// The level at the last check of the store's settings; L0 before the first. It may be limited to terms up to
    /// [`Health::level_max_ttl`].
    pub fn level(&self) -> Level {
        self.0.health().as_ref().map_or(Level::BestEffort, |health| health.level)
    }

    /// Fails unless the store reached `level` when it was last checked, as [`connect`](Locker::connect) does:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// use leasehold::{Level, Locker};
    ///
    /// let locks = Locker::connect("local:").await?;
    /// locks.require(Level::Lease)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Unsupported`, with what lowers the level; for one lock, see [`LockRequest::require`](crate::LockRequest::require).
    pub fn require(&self, level: Level) -> Result<()> {
        self.0.require(level, None)
    }

    /// Creates what the store needs, such as tables; run it with an administrator's role.
    ///
    /// # Errors
    /// `Denied` if the role lacks a right.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn prepare(&self) -> Result<()> {
        let keeper = &self.0.keeper;
        keeper.limited("prepare", keeper.store.prepare()).await
    }

    /// What the store can do.
    pub fn capabilities(&self) -> Capabilities {
        self.0.keeper.can
    }

    /// Refuses new locks from now on, also for waiting callers, and ends when every dropped guard is released,
    /// every abandoned request is finished, and the store's connections are [closed](Store::close). Open guards are
    /// unaffected: their renewals connect again.
    ///
    /// # Errors
    /// `Unavailable`, effect `Unknown`, if that took longer than `timeout`; what is left ends with its term. The
    /// connections are closed all the same, within 250 ms.
    ///
    /// # Cancel safety
    /// May be dropped; new locks stay refused.
    pub async fn close(&self, timeout: Duration) -> Result<()> {
        // It may already be closed.
        self.0.closed.set(()).unwrap_or_default();
        let keeper = &self.0.keeper;
        let until = keeper.clock.now().saturating_add(timeout);
        let drained = keeper.drained(until).await;
        // What is not answered by then is not released; it ends with its term.
        let until = until.max(keeper.clock.now().saturating_add(PARTING));
        tokio::select! {
            biased;
            () = keeper.store.close() => {}
            () = keeper.clock.sleep_until(until) => {}
        }
        if drained { Ok(()) } else { Err(keeper.unanswered("close", timeout)) }
    }
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Locker").field(&self.0.keeper.store).finish()
    }
}

impl Inner {
    /// A builder for another `Locker` like this one.
    pub(crate) fn again(&self) -> LockerBuilder {
        let keeper = &self.keeper;
        LockerBuilder {
            store: keeper.store.clone(),
            clock: Arc::clone(&keeper.clock),
            drift: keeper.drift,
            timeout: keeper.limit,
            note: Some(self.note.clone()),
        }
    }

    /// Ensures, before an acquire in `process`, that the Keeper runs; true if it does on this runtime.
    pub(crate) fn ensure_running(&self, process: u32) -> Result<bool> {
        if self.closed.initialized() {
            return Err(Self::closed_error());
        }
        self.keeper.ensure_running(process)
    }

    /// True if the store is known to reach `level` for this term, or need not be checked; else
    /// [`make_ready`](Self::make_ready) checks it.
    pub(crate) fn is_ready(&self, level: Level, term: Ttl) -> bool {
        let needs_no_check = level == Level::BestEffort && self.keeper.can.checks_on_use;
        needs_no_check || self.reaches(level, term)
    }

    /// Checks, by `limit`, that the store reaches `level` for this term.
    pub(crate) async fn make_ready(&self, level: Level, term: Ttl, limit: Duration) -> Result<()> {
        self.checked(level, term, limit).await?;
        self.require(level, Some(term))
    }

    fn health(&self) -> MutexGuard<'_, Option<Health>> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reaches(&self, level: Level, term: Ttl) -> bool {
        self.health().as_ref().is_some_and(|health| health.level_of(term) >= level)
    }

    /// Fails unless the store reached `level` at its last check: for this term, or for some.
    fn require(&self, level: Level, term: Option<Ttl>) -> Result<()> {
        let (found, why) = match &*self.health() {
            Some(health) => {
                let found = term.map_or(health.level, |term| health.level_of(term));
                let mut why = health.hazards.clone();
                if let Some(max) = health.level_max_ttl.filter(|_| found < health.level) {
                    why.insert(0, format!("{} is for terms up to {max:?}", health.level));
                }
                (found, why.join("; "))
            }
            None => (Level::BestEffort, "it was not checked yet".to_owned()),
        };
        if found >= level {
            return Ok(());
        }
        let name = self.keeper.can.name;
        let message = format!("the store {name} reaches {found}, and {level} is required: {why}");
        Err(Error::unsupported(message))
    }

    /// Checks the store by `limit`, unless another caller has meanwhile found that it reaches `level`.
    async fn checked(&self, level: Level, term: Ttl, limit: Duration) -> Result<()> {
        let started = self.keeper.clock.now();
        let check = async {
            let _turn = self.checking.lock().await;
            if self.reaches(level, term) { Ok(()) } else { self.check().await.map(drop) }
        };
        tokio::select! {
            biased;
            // The check has no effect that could be lost.
            checked = check => checked.map_err(|error| error.with_effect(Effect::NotApplied)),
            () = self.keeper.clock.sleep_until(limit) => {
                let waited = limit.saturating_sub(started);
                Err(self.keeper.unanswered("check", waited).with_effect(Effect::NotApplied))
            }
        }
    }

    pub(crate) async fn check(&self) -> Result<Health> {
        let health = caught(self.keeper.store.check()).await??;
        *self.health() = Some(health.clone());
        Ok(health)
    }

    /// The thread of blocking callers; the first call starts it.
    pub(crate) fn thread(&self) -> Result<&Thread> {
        if let Some(thread) = self.thread.get() {
            return Ok(thread);
        }
        let thread = Thread::start()?;
        Ok(self.thread.get_or_init(|| thread))
    }

    /// Ends when it is polled after the `Locker` was closed; nothing wakes it.
    pub(crate) fn was_closed(&self) -> impl Future<Output = ()> + Send {
        poll_fn(|_| self.closed.get().map_or(Poll::Pending, |()| Poll::Ready(())))
    }

    /// Ends when the `Locker` is closed.
    pub(crate) async fn closed(&self) {
        self.closed.wait().await;
    }

    pub(crate) fn closed_error() -> Error {
        Error::closed("this Locker was closed; create another to lock again")
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.keeper.runs_in_another_process() {
            // Its thread does not exist in this process.
            std::mem::forget(thread);
            return;
        }
        let keeper = Arc::clone(&**self.keeper);
        thread.end(Box::pin(async move {
            keeper.drained(Duration::MAX).await;
            keeper.store.close().await;
        }));
    }
}

/// Host, process id and program, each if it is known.
fn this_process() -> Note {
    let mut note = Note::default().with_pid(std::process::id());
    let program = std::env::current_exe().ok();
    let program = program.as_ref().and_then(|path| path.file_name()).and_then(|name| name.to_str());
    if let Some(named) = program.and_then(|name| note.clone().with_program(name).ok()) {
        note = named;
    }
    match host_name().and_then(|host| note.clone().with_host(&host).ok()) {
        Some(named) => named,
        None => note,
    }
}

#[cfg(unix)]
fn host_name() -> Option<String> {
    nix::unistd::gethostname().ok()?.into_string().ok()
}

#[cfg(not(unix))]
fn host_name() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}
