use std::task::Waker;

use super::holder::{Holder, Instant, LockId, NEVER, State, Term};
use super::keys::{Claim, Claims};
use super::owner::Owner;
use super::sync::{Mutex, MutexGuard};

/// What a lock is asked for with, besides its keys.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    /// After what time it goes stale, in nanoseconds.
    pub(super) timeout: u64,
    pub(super) owner: Option<Owner>,
}

impl Terms {
    pub(super) fn holder<K>(
        &self,
        id: LockId,
        claim: &Claim<K>,
        state: State,
        term: Term,
    ) -> Holder {
        Holder::new(id, claim.mode, term, self.owner.clone(), state)
    }
}

/// A request that waits. It stands in the queue of each of its keys that it has not reserved.
#[derive(Debug)]
pub(super) struct Waiting<K> {
    pub(super) id: LockId,
    /// Orders requests by their arrival, over all keys.
    pub(super) ticket: u64,
    pub(super) claims: Claims<K>,
    pub(super) terms: Terms,
    signal: Mutex<Signal>,
}

/// How often newcomers may overtake a waiter for one key. Models have few newcomers.
const PATIENCE: u32 = if cfg!(leasehold_loom) { 1 } else { 16 };

/// What happened to a waiter.
#[derive(Debug, Clone, Copy)]
pub(super) enum News {
    /// It has its lock.
    Granted,
    /// It had its lock, which has ended.
    Ended,
    /// It may try to get its lock.
    MayTry,
    /// Nothing did. It is to look by itself then.
    LooksAt(Instant),
}

/// How the table reaches the waiter. Its mutex is the last one that a thread locks.
#[derive(Debug)]
pub(super) struct Signal {
    /// The term of the lock, once it is granted.
    pub(super) granted: Option<Term>,
    /// It may try to get the lock, if newcomers may overtake it.
    tries: bool,
    /// How often it tried in vain.
    missed: u32,
    /// When the waiter looks by itself, because what it waits for may be stale then.
    pub(super) looks_at: Instant,
    waker: Option<Waker>,
}

impl<K> Waiting<K> {
    /// A waiter that nobody can wake until it calls [`check`](Self::check).
    pub(super) fn new(id: LockId, ticket: u64, claims: Claims<K>, terms: Terms) -> Self {
        let signal =
            Signal { granted: None, tries: false, missed: 0, looks_at: NEVER, waker: None };
        Self { id, ticket, claims, terms, signal: Mutex::new(signal) }
    }

    /// The same of a waiter that newcomers have overtaken often enough.
    pub(super) fn next(id: LockId, ticket: u64, claims: Claims<K>, terms: Terms) -> Self {
        let waiting = Self::new(id, ticket, claims, terms);
        waiting.signal().missed = PATIENCE;
        waiting
    }

    pub(super) fn signal(&self) -> MutexGuard<'_, Signal> {
        self.signal.lock()
    }

    /// Grants it; the caller holds the locks of all its keys.
    pub(super) fn grant(&self, term: Term) -> Option<Waker> {
        let mut signal = self.signal();
        signal.granted = Some(term);
        signal.waker.take()
    }

    /// Has the waiter look no later than `at`; wakes it if it would look later.
    pub(super) fn look_at(&self, at: Instant) -> Option<Waker> {
        if at == NEVER {
            return None;
        }
        let mut signal = self.signal();
        if at >= signal.looks_at {
            return None;
        }
        signal.looks_at = at;
        signal.waker.clone()
    }

    /// Has the waiter try to get the lock, and wakes it for that.
    pub(super) fn let_try(&self) -> Option<Waker> {
        let mut signal = self.signal();
        let known = std::mem::replace(&mut signal.tries, true);
        if known { None } else { signal.waker.clone() }
    }

    /// Counts that it tried in vain.
    pub(super) fn miss(&self) {
        let mut signal = self.signal();
        signal.missed = signal.missed.saturating_add(1);
    }

    /// True if others have overtaken it often enough. A waiter for several keys never is: to keep all of them for it
    /// could end in a deadlock.
    pub(super) fn is_next(&self) -> bool {
        self.claims.keyed().len() == 1 && self.signal().missed >= PATIENCE
    }

    /// What happened. From then on `waker` is woken when something does.
    pub(super) fn check(&self, waker: &Waker) -> News {
        let mut signal = self.signal();
        if signal.granted.is_some() {
            return News::Granted;
        }
        let may_try = std::mem::take(&mut signal.tries);
        let news = if may_try { News::MayTry } else { News::LooksAt(signal.looks_at) };
        let known = signal.waker.as_ref().is_some_and(|known| known.will_wake(waker));
        let old = if known { None } else { signal.waker.replace(waker.clone()) };
        drop(signal);
        // A waker can own a task, whose end can call the table.
        drop(old);
        news
    }

    /// Forgets the waker and when to look, before the waiter itself looks.
    pub(super) fn quiet(&self) {
        let mut signal = self.signal();
        signal.looks_at = NEVER;
        let waker = signal.waker.take();
        drop(signal);
        drop(waker);
    }
}
