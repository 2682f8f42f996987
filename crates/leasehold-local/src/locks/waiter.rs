//! What a request keeps of its place in the queues.

use std::sync::Arc;
use std::task::Waker;

use super::holder::{LockId, Term};
use super::keys::Claims;
use super::request::{News, Waiting};
use super::table::{LockKey, Table};

/// A request that stands in the queues.
#[derive(Debug)]
pub(super) enum Waiter<K> {
    /// It waits for one key [alone](super::queue::Alone).
    Alone(LockId),
    /// What it waits for is shared by its places.
    Shared(Arc<Waiting<K>>),
}

impl<K: LockKey> Waiter<K> {
    pub(super) fn id(&self) -> LockId {
        match self {
            Self::Alone(id) => *id,
            Self::Shared(waiting) => waiting.id,
        }
    }

    /// The term of its lock, once it is granted.
    pub(super) fn granted(&self, table: &Table<K>, claims: &Claims<K>) -> Option<Term> {
        match self {
            Self::Alone(id) => {
                let claim = &claims.keyed()[0];
                table.shard(claim.hash).term_of(claim, *id)
            }
            Self::Shared(waiting) => waiting.signal().granted,
        }
    }

    /// What happened. From then on `waker` is woken when something does.
    pub(super) fn check(&self, table: &Table<K>, claims: &Claims<K>, waker: &Waker) -> News {
        match self {
            Self::Alone(id) => table.check_alone(claims.keyed(), *id, waker),
            Self::Shared(waiting) => waiting.check(waker),
        }
    }

    /// Takes the lock if it is free, where newcomers may overtake.
    pub(super) fn try_again(&self, table: &Table<K>) {
        if let Self::Shared(waiting) = self {
            table.try_again(waiting);
        }
    }

    /// Looks whether what it waits for has gone stale.
    pub(super) fn look(&self, table: &Table<K>, claims: &Claims<K>) {
        match self {
            Self::Alone(id) => table.look_alone(claims.keyed(), *id),
            Self::Shared(waiting) => table.look(waiting),
        }
    }

    /// Leaves the queues; returns the term if the lock had been granted already.
    pub(super) fn cancel(&self, table: &Table<K>, claims: &Claims<K>) -> Option<Term> {
        match self {
            Self::Alone(id) => table.cancel_alone(claims.keyed(), *id),
            Self::Shared(waiting) => table.cancel(waiting),
        }
    }
}
