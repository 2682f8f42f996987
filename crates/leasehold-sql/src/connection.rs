//! One connection in use, and those that are not.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use crate::doubt::{Doubt, now};
use crate::session::{Session, Source};

/// The connections of a store: its own, or those of a caller's pool. Some are reserved for batches, so that these need not
/// wait for one, and the others are for every other request.
#[expect(missing_debug_implementations, reason = "a driver's sessions need not have it")]
pub struct Pool<S: Source> {
    pub(crate) source: S,
    /// The server, for messages.
    pub(crate) server: String,
    /// The time limit of an operation.
    pub(crate) timeout: Duration,
    /// The most connections.
    pub most: usize,
    /// How many of them are reserved for batches, so that at least one is not.
    pub lanes: usize,
    /// How many others are kept while they are idle. Of a caller's pool, so that its other users cannot take them all.
    keep: usize,
    /// They belong to a caller's pool, to which they return.
    pub(crate) are_callers: bool,
    /// One permit for each connection that may be made.
    pub(crate) slots: Arc<Semaphore>,
    state: Mutex<State<S::Session>>,
    /// One permit for each that is idle, and not reserved.
    idle: Semaphore,
    /// Told when one becomes reserved.
    comes_back: Notify,
    /// Has a clone for each that is being made.
    pub(crate) making: Arc<()>,
    /// Counts the retirements.
    pub(crate) retired: watch::Sender<u64>,
    /// Has a receiver for each that has not ended.
    pub(crate) open: watch::Sender<()>,
    /// Whether their server may have been demoted.
    pub(crate) doubt: Doubt,
}

struct State<T> {
    idle: Vec<Pooled<T>>,
    reserved: Vec<Pooled<T>>,
    /// How many batches wait for one.
    waiting: usize,
    /// How many closes are under way.
    closing: usize,
}

/// A connection, in use or not.
pub(crate) struct Pooled<T> {
    pub(crate) session: T,
    /// Its place among the connections.
    pub(crate) slot: OwnedSemaphorePermit,
    /// Until it has ended.
    pub(crate) open: watch::Receiver<()>,
    /// How often there was a retirement when it began to be made.
    pub(crate) retired: u64,
    /// When it was used last.
    pub(crate) used: Instant,
}

impl<S: Source> Pool<S> {
    /// Our own, at most `most` of them; or those of a caller's pool, of which `keep` are kept beside the reserved ones.
    pub(crate) fn new(
        source: S,
        (server, timeout): (String, Duration),
        (most, lanes): (usize, usize),
        keep: Option<usize>,
    ) -> Self {
        Self {
            source,
            server,
            timeout,
            most,
            lanes,
            keep: keep.unwrap_or(most),
            are_callers: keep.is_some(),
            slots: Arc::new(Semaphore::new(keep.map_or(most, |_| Semaphore::MAX_PERMITS))),
            state: Mutex::new(State {
                idle: Vec::new(),
                reserved: Vec::new(),
                waiting: 0,
                closing: 0,
            }),
            idle: Semaphore::new(0),
            comes_back: Notify::new(),
            making: Arc::default(),
            retired: watch::Sender::new(0),
            open: watch::Sender::new(()),
            doubt: Doubt::default(),
        }
    }

    /// An idle connection, when there is one.
    pub(crate) async fn take(&self) -> Pooled<S::Session> {
        loop {
            self.idle.acquire().await.expect("it is never closed").forget();
            // Another may have cleared them meanwhile.
            let idle = self.state().idle.pop();
            if let Some(pooled) = idle {
                return pooled;
            }
        }
    }

    /// A reserved connection, if one is free.
    pub(crate) fn take_reserved(&self) -> Option<Pooled<S::Session>> {
        self.state().reserved.pop()
    }

    /// A reserved connection, when there is one. The next usable one that comes back is reserved then, so that batches do not queue
    /// behind other requests.
    ///
    /// # Cancel safety
    /// May be dropped; what it waited for stays free.
    pub(crate) async fn next_reserved(&self) -> Pooled<S::Session> {
        self.state().waiting += 1;
        let _waiting = Waiting(self);
        loop {
            let comes_back = self.comes_back.notified();
            if let Some(pooled) = self.take_reserved() {
                return pooled;
            }
            comes_back.await;
        }
    }

    /// How many connections there may be, if all are in use.
    pub(crate) fn all_in_use(&self) -> Option<usize> {
        if self.are_callers {
            return self.source.all_in_use();
        }
        let is_full = self.slots.available_permits() == 0
            && Arc::strong_count(&self.making) == 1
            && self.state().idle.is_empty();
        is_full.then_some(self.most)
    }

    /// Keeps a connection, for batches if it was theirs or one waits. Ends it if it cannot be used again, and during a close. A connection
    /// of a caller's pool returns there if enough are kept here.
    fn put(&self, mut pooled: Pooled<S::Session>, for_batches: bool) {
        let mut state = self.state();
        let closes = state.closing > 0;
        if !self.is_usable(&pooled) || (closes && !self.are_callers) {
            drop(state);
            return end(pooled);
        }
        pooled.used = now();
        let is_awaited = state.waiting > state.reserved.len();
        if (for_batches || is_awaited) && !closes && state.reserved.len() < self.lanes {
            state.reserved.push(pooled);
            // All: the runtime of one may not be driven.
            self.comes_back.notify_waiters();
        } else if !closes && state.idle.len() < self.keep {
            state.idle.push(pooled);
            self.idle.add_permits(1);
        } else {
            drop(state);
            drop(pooled);
        }
    }

    fn is_usable(&self, pooled: &Pooled<S::Session>) -> bool {
        pooled.retired == *self.retired.borrow() && pooled.session.is_usable()
    }

    /// Ends every connection that was begun before now: the idle ones at once, those in use when they come back. The next
    /// ones choose their host afresh.
    pub fn retire(&self) {
        self.retired.send_modify(|retired| *retired += 1);
        self.source.retire();
        self.drain().into_iter().for_each(end);
    }

    /// Ends those that are not in use, or gives them back to the caller's pool. Until the guard is dropped, so do
    /// those that come back. A connection that is being made serves the request that waits for it.
    pub(crate) fn closing(&self) -> impl Drop {
        self.state().closing += 1;
        let unused = self.drain();
        if !self.are_callers {
            unused.into_iter().for_each(end);
        }
        Closing(self)
    }

    fn drain(&self) -> Vec<Pooled<S::Session>> {
        let mut state = self.state();
        self.idle.forget_permits(state.idle.len());
        let mut unused = std::mem::take(&mut state.idle);
        unused.append(&mut state.reserved);
        unused
    }

    fn state(&self) -> MutexGuard<'_, State<S::Session>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A batch that waits for a connection.
struct Waiting<'w, S: Source>(&'w Pool<S>);

impl<S: Source> Drop for Waiting<'_, S> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

/// A close that is under way.
struct Closing<'c, S: Source>(&'c Pool<S>);

impl<S: Source> Drop for Closing<'_, S> {
    fn drop(&mut self) {
        self.0.state().closing -= 1;
    }
}

/// Ends a connection in the background, as the protocol requires. Without a runtime it is only dropped.
fn end<T: Session>(pooled: Pooled<T>) {
    let Pooled { session, slot, open, .. } = pooled;
    drop(slot);
    let ending = session.end();
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn(async move {
            ending.await;
            drop(open);
        }));
    }
}

/// A connection in use, until it is dropped. It can be used again only if it is usable then; otherwise it is ended.
#[expect(missing_debug_implementations, reason = "a driver's session need not have it")]
pub struct Connection<S: Source> {
    /// Until the end.
    pooled: Option<Pooled<S::Session>>,
    pool: Arc<Pool<S>>,
}

impl<S: Source> Connection<S> {
    pub(crate) fn new(pooled: Pooled<S::Session>, pool: &Arc<Pool<S>>) -> Self {
        Self { pooled: Some(pooled), pool: Arc::clone(pool) }
    }

    /// Whether it may be used again, as far as is known.
    pub(crate) fn is_usable(&self) -> bool {
        self.pool.is_usable(self.pooled())
    }

    /// Whether it ends when it is dropped, because the connections of its time were retired.
    pub fn is_retired(&self) -> bool {
        self.pooled().retired != *self.pool.retired.borrow()
    }

    /// For how long nobody has used it.
    pub(crate) fn idle(&self) -> Duration {
        now() - self.pooled().used
    }

    /// Keeps it for batches next, if there are not enough.
    pub(crate) fn reserve(mut self) {
        let pooled = self.pooled.take();
        pooled.into_iter().for_each(|pooled| self.pool.put(pooled, true));
    }

    fn pooled(&self) -> &Pooled<S::Session> {
        self.pooled.as_ref().expect("it has not ended")
    }
}

impl<S: Source> Deref for Connection<S> {
    type Target = S::Session;

    fn deref(&self) -> &S::Session {
        &self.pooled().session
    }
}

impl<S: Source> DerefMut for Connection<S> {
    fn deref_mut(&mut self) -> &mut S::Session {
        &mut self.pooled.as_mut().expect("it has not ended").session
    }
}

impl<S: Source> Drop for Connection<S> {
    fn drop(&mut self) {
        if let Some(pooled) = self.pooled.take() {
            self.pool.put(pooled, false);
        }
    }
}
