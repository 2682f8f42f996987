//! A store and locks over one table.

mod leases;
mod places;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, Filter, Granted, Key, LeaseId, ListRequest, ManualClock,
    Mode, Record, RefusalReason, Refused, ReleaseEntry, ReleaseOutcome, ReleaseRequest, Store, Ttl,
};
use leasehold_local::LocalStore;
use leasehold_local::locks::{Guard, Keys, LocalLocks, LockError, LocksConfig, Options};

use crate::common::*;

/// A store over the table of locks, on a clock that the test moves.
struct Both {
    locks: LocalLocks<Key>,
    store: LocalStore,
    clock: ManualClock,
}

fn both() -> Both {
    let clock = ManualClock::new();
    let config = LocksConfig::new().clock(Arc::new(clock.clone())).sweep_never();
    let locks = LocalLocks::with_config(config).expect("it is in range");
    Both { store: LocalStore::over(&locks), locks, clock }
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn id(name: &str) -> LeaseId {
    LeaseId::foreign(name.as_bytes()).unwrap()
}

/// The result of a future that waits for nothing.
fn answer<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

impl Both {
    /// A request for keys, whose names are given with blanks between them, for ten seconds.
    fn acquire(&self, name: &str, keys: &str, mode: Mode) -> AcquireReply {
        let claims = Claims::all(keys.split(' ').map(key), mode).unwrap();
        let ttl = Ttl::new(10 * SECOND).unwrap();
        answer(self.store.acquire(&AcquireRequest::new(id(name), claims, ttl))).unwrap()
    }

    fn granted(&self, name: &str, keys: &str) -> Granted {
        match self.acquire(name, keys, Mode::Exclusive) {
            AcquireReply::Granted(granted) => granted,
            AcquireReply::Refused(refused) => panic!("{refused:?}"),
        }
    }

    fn refused(&self, name: &str, keys: &str) -> Refused {
        match self.acquire(name, keys, Mode::Exclusive) {
            AcquireReply::Refused(refused) => refused,
            AcquireReply::Granted(granted) => panic!("{granted:?}"),
        }
    }

    fn is_queued(&self, name: &str, keys: &str) -> bool {
        let refused = self.refused(name, keys);
        let is_queued = matches!(refused.why, RefusalReason::Queued);
        assert!(!is_queued || refused.retry_after.is_none(), "{refused:?}");
        is_queued
    }

    fn release(&self, name: &str, keys: &str) -> ReleaseOutcome {
        let entry = ReleaseEntry::new(id(name), keys.split(' ').map(key));
        let mut reply = answer(self.store.release(&ReleaseRequest::new(vec![entry]))).unwrap();
        reply.leases.remove(0)
    }

    fn list(&self) -> Vec<Record> {
        answer(self.store.list(&ListRequest::new(Filter::default()))).unwrap().records
    }

    fn lock(&self, keys: &str) -> Result<Guard<Key>, LockError> {
        self.locks.try_acquire(self::keys(keys), &Options::new().never_stale())
    }

    /// A lock that is waited for.
    fn waits(&self, keys: &str) -> Task<Result<Guard<Key>, LockError>> {
        let (locks, keys) = (self.locks.clone(), self::keys(keys));
        Task::pending(async move { locks.acquire(keys, &patient()).await })
    }

    /// Nothing is kept for any key.
    fn is_empty(&self) -> bool {
        self.locks.is_empty() && self.store.snapshot().entries().next().is_none()
    }
}

fn keys(names: &str) -> Keys<Key> {
    names.split(' ').map(key).collect()
}

fn remaining(refused: &Refused) -> Option<Duration> {
    refused.retry_after
}
