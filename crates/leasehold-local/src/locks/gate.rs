use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, PoisonError, Weak};

use super::holder::{Holder, Instant, NEVER};
use super::request::Waiting;
use super::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering};

/// The lock of the whole table: its holder and who waits for it.
///
/// While anybody is at the gate, every request passes it and so takes turns. Who waits for the whole table takes all
/// keys in their order, like a waiter for several keys: it has all keys below its frontier, waits for that one, and
/// keeps nobody from those above. So whoever holds a key and asks for a greater one is never behind it.
#[derive(Debug)]
pub(super) struct Gate<K> {
    pub(super) holder: Option<Holder>,
    pub(super) queue: VecDeque<Arc<Waiting<K>>>,
    /// How far the first in the queue is; `None` before it has looked.
    pub(super) progress: Option<Progress<K>>,
    /// Lives while a thread moves the first on, and unlocks the gate now and then meanwhile; not if it has panicked.
    pub(super) mover: Weak<()>,
    /// That thread waits for another to pass.
    lets_pass: bool,
}

/// The mutex of the gate. Who unlocks a mutex and locks it again is mostly faster than whoever waits for it; a thread that does so
/// on and on can let another pass.
#[derive(Debug)]
pub(super) struct GateMutex<K> {
    gate: Mutex<Gate<K>>,
    /// How many wait for the mutex.
    arriving: AtomicU64,
    passed: Condvar,
}

impl<K> Default for GateMutex<K> {
    fn default() -> Self {
        Self {
            gate: Mutex::new(Gate::default()),
            arriving: AtomicU64::new(0),
            passed: Condvar::new(),
        }
    }
}

impl<K> GateMutex<K> {
    pub(super) fn lock(&self) -> MutexGuard<'_, Gate<K>> {
        self.arriving.fetch_add(1, Ordering::Relaxed);
        let mut gate = self.gate.lock();
        self.arriving.fetch_sub(1, Ordering::Relaxed);
        if std::mem::take(&mut gate.lets_pass) {
            self.passed.notify_one();
        }
        gate
    }

    /// The same, but first lets one pass who waits for the mutex.
    pub(super) fn lock_behind(&self) -> MutexGuard<'_, Gate<K>> {
        let mut gate = self.gate.lock();
        if self.arriving.load(Ordering::Relaxed) > 0 {
            gate.lets_pass = true;
            while gate.lets_pass {
                gate = self.passed.wait(gate).unwrap_or_else(PoisonError::into_inner);
            }
        }
        gate
    }
}

/// How far the first waiter is.
#[derive(Debug)]
pub(super) struct Progress<K> {
    /// The key that it waits for.
    pub(super) frontier: Option<(K, u64)>,
    /// Keys above that are, or were, taken, with their hashes.
    pub(super) later: BTreeMap<K, u64>,
    /// How many shards it has not looked at; until then it keeps nobody from any key.
    pub(super) unseen: usize,
}

impl<K: Ord> Progress<K> {
    pub(super) fn new(shards: usize) -> Self {
        Self { frontier: None, later: BTreeMap::new(), unseen: shards }
    }

    /// Goes on to the next key.
    pub(super) fn step(&mut self) {
        self.frontier = self.later.pop_first();
    }

    fn excludes(&self, key: &K) -> bool {
        self.unseen == 0 && self.frontier.as_ref().is_none_or(|(frontier, _)| key <= frontier)
    }
}

impl<K> Default for Gate<K> {
    fn default() -> Self {
        Self {
            holder: None,
            queue: VecDeque::new(),
            progress: None,
            mover: Weak::new(),
            lets_pass: false,
        }
    }
}

impl<K: Ord + Clone> Gate<K> {
    /// Whether a request that came with this ticket must wait for the whole table before it may have the key.
    pub(super) fn excludes(&self, key: &K, ticket: u64) -> bool {
        self.holder.is_some()
            || self.queue.front().is_some_and(|first| first.ticket < ticket)
                && self.progress.as_ref().is_none_or(|progress| progress.excludes(key))
    }

    /// When the lock of the whole table goes stale by its term.
    pub(super) fn held_until(&self) -> Instant {
        self.holder.as_ref().map_or(NEVER, |holder| holder.term.ends())
    }

    /// Tells it that a key is taken.
    pub(super) fn note(&mut self, hash: u64, key: &K) {
        if let Some(progress) = &mut self.progress {
            progress.later.insert(key.clone(), hash);
        }
    }

    /// Tells it that nobody has a key, or waits for it, any more.
    pub(super) fn forget(&mut self, key: &K) {
        if let Some(progress) = &mut self.progress {
            progress.later.remove(key);
        }
    }

    /// True if nobody holds or waits for the whole table.
    pub(super) fn is_idle(&self) -> bool {
        self.holder.is_none() && self.queue.is_empty()
    }
}
