//! Who waits for a key.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use super::holder::{Instant, LockId, NEVER};
use super::keys::Claim;
use super::request::{Terms, Waiting};

/// Who waits for a key, in the order of arrival.
#[derive(Debug)]
pub(super) struct Queue<K> {
    pub(super) key: K,
    pub(super) hash: u64,
    pub(super) places: VecDeque<Place<K>>,
}

/// The place of one waiter in the queue of one of its keys.
#[derive(Debug)]
pub(super) enum Place<K> {
    /// Of one that waits for this key alone.
    Alone(Alone<K>),
    /// Of one that may stand in other queues, too.
    OneOf {
        waiting: Arc<Waiting<K>>,
        /// Which of its keys this is.
        position: usize,
        /// It has all smaller keys. Otherwise it keeps nobody from this one.
        active: bool,
    },
}

/// A waiter for one key, in a table where newcomers do not overtake. It needs nothing but the mutex of the shard.
#[derive(Debug)]
pub(super) struct Alone<K> {
    pub(super) id: LockId,
    pub(super) ticket: u64,
    pub(super) claim: Claim<K>,
    pub(super) terms: Terms,
    pub(super) waker: Option<Waker>,
    /// When the waiter looks by itself, because what it waits for may be stale then.
    pub(super) looks_at: Instant,
}

impl<K> Place<K> {
    pub(super) fn id(&self) -> LockId {
        match self {
            Self::Alone(alone) => alone.id,
            Self::OneOf { waiting, .. } => waiting.id,
        }
    }

    pub(super) fn ticket(&self) -> u64 {
        match self {
            Self::Alone(alone) => alone.ticket,
            Self::OneOf { waiting, .. } => waiting.ticket,
        }
    }

    pub(super) fn claim(&self) -> &Claim<K> {
        match self {
            Self::Alone(alone) => &alone.claim,
            Self::OneOf { waiting, position, .. } => &waiting.claims.keyed()[*position],
        }
    }

    pub(super) fn is_active(&self) -> bool {
        match self {
            Self::Alone(_) => true,
            Self::OneOf { active, .. } => *active,
        }
    }

    /// Lets it wait for the key, all smaller ones of which it has.
    pub(super) fn activate(&mut self) {
        if let Self::OneOf { active, .. } = self {
            *active = true;
        }
    }

    /// True if it may be given the key, though newcomers may overtake others.
    pub(super) fn is_next(&self) -> bool {
        match self {
            Self::Alone(_) => true,
            Self::OneOf { waiting, .. } => waiting.is_next(),
        }
    }

    /// Has the waiter try to get its lock, and wakes it for that.
    pub(super) fn let_try(&self) -> Option<Waker> {
        match self {
            Self::Alone(_) => None,
            Self::OneOf { waiting, .. } => waiting.let_try(),
        }
    }

    /// Has the waiter look no later than `at`; wakes it if it would look later.
    pub(super) fn look_at(&mut self, at: Instant) -> Option<Waker> {
        match self {
            Self::Alone(alone) if at < alone.looks_at => {
                alone.looks_at = at;
                alone.waker.clone()
            }
            Self::Alone(_) => None,
            Self::OneOf { waiting, .. } => waiting.look_at(at),
        }
    }
}

impl<K> Alone<K> {
    /// From now on `waker` is woken when something happens. Returns the waker that was woken before.
    pub(super) fn replace_waker(&mut self, waker: &Waker) -> Option<Waker> {
        let known = self.waker.as_ref().is_some_and(|known| known.will_wake(waker));
        if known { None } else { self.waker.replace(waker.clone()) }
    }

    /// Forgets the waker and when to look, before the waiter itself looks.
    pub(super) fn quiet(&mut self) -> Option<Waker> {
        self.looks_at = NEVER;
        self.waker.take()
    }
}
