//! All synchronisation of the engine, so that loom can take its place.
//!
//! The `cfg` is not `loom`, because tokio leaves out its network under that one.

#[cfg(leasehold_loom)]
use loom::sync::Mutex as Inner;
#[cfg(not(leasehold_loom))]
use std::sync::Mutex as Inner;
use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

#[cfg(leasehold_loom)]
pub(super) use loom::{
    sync::{
        Condvar, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread_local,
};
#[cfg(not(leasehold_loom))]
pub(super) use std::{
    sync::{
        Condvar, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread_local,
};

/// Hashes keys; loom needs each run to be the same.
#[cfg(leasehold_loom)]
pub(super) type Hasher = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;
/// Hashes keys, with a seed of its own, so that keys collide by chance only. Whoever learns the seed, say by
/// measuring times, can choose keys that collide; but only keys that are held at the same time slow each other down.
#[cfg(not(leasehold_loom))]
pub(super) type Hasher = foldhash::quality::RandomState;

/// A mutex without poison: only code that does not panic changes what it protects.
#[derive(Debug, Default)]
pub(super) struct Mutex<T>(Inner<T>);

impl<T> Mutex<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Inner::new(value))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps what it holds on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Padded<T>(pub(super) T);

/// Wakes. A panic in a waker is its executor's fault: it takes no lock from whoever has just got it.
pub(super) fn wake(waker: Waker) {
    isolate(|| waker.wake());
}

/// Runs what calls code of others. The panic hook reports a panic of it, which keeps nobody else from their turn.
#[cfg(not(leasehold_loom))]
pub(super) fn isolate(f: impl FnOnce()) {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_or_default();
}

/// The same in models, which need their panics.
#[cfg(leasehold_loom)]
pub(super) fn isolate(f: impl FnOnce()) {
    f();
}

/// How a thread waits until its waker is woken.
///
/// A wake-up before the wait ends the wait at once.
#[cfg(not(leasehold_loom))]
#[derive(Debug)]
pub(super) struct Parker(std::thread::Thread);

#[cfg(not(leasehold_loom))]
impl Parker {
    /// The calling thread's, which alone may park by it.
    pub(super) fn new() -> Self {
        Self(std::thread::current())
    }

    pub(super) fn waker(&self) -> Waker {
        Waker::from(Arc::new(Self(self.0.clone())))
    }

    /// Waits for at most `limit`; it may also return for no reason.
    pub(super) fn park(&self, limit: Option<Duration>) {
        match limit {
            Some(limit) => std::thread::park_timeout(limit),
            None => std::thread::park(),
        }
    }

    fn unpark(&self) {
        self.0.unpark();
    }
}

/// The same of a condition variable: loom's threads forget an early wake-up when they wait for a mutex.
#[cfg(leasehold_loom)]
#[derive(Debug, Clone, Default)]
pub(super) struct Parker(Arc<(Mutex<bool>, Condvar)>);

#[cfg(leasehold_loom)]
impl Parker {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn waker(&self) -> Waker {
        Waker::from(Arc::new(self.clone()))
    }

    /// Models have no time: whatever is waited for must wake.
    pub(super) fn park(&self, _limit: Option<Duration>) {
        let mut woken = self.0.0.lock();
        while !*woken {
            woken = self.0.1.wait(woken).unwrap_or_else(PoisonError::into_inner);
        }
        *woken = false;
    }

    fn unpark(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_one();
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.unpark();
    }
}
