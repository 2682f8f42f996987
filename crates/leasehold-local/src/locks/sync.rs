//! All synchronisation of the engine, so that loom can take its place.

#[cfg(loom)]
use loom::sync::Mutex as Inner;
#[cfg(not(loom))]
use std::sync::Mutex as Inner;
use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

#[cfg(loom)]
pub(super) use loom::{
    sync::{
        MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread_local,
};
#[cfg(not(loom))]
pub(super) use std::{
    sync::{
        MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread_local,
};

/// Hashes keys; loom needs each run to be the same.
#[cfg(loom)]
pub(super) type Hasher = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;
/// Hashes keys, with a seed of its own, so that nobody can choose keys that collide.
#[cfg(not(loom))]
pub(super) type Hasher = std::hash::RandomState;

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

/// A waker that unparks the thread that calls this.
pub(super) fn thread_waker() -> Waker {
    #[cfg(loom)]
    use loom::thread::{Thread, current};
    #[cfg(not(loom))]
    use std::thread::{Thread, current};

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            self.0.unpark();
        }
    }

    Waker::from(Arc::new(Unpark(current())))
}

/// Parks the thread until its waker wakes it, for at most `limit`. It may also return for no reason.
pub(super) fn park(limit: Option<Duration>) {
    #[cfg(loom)]
    {
        // Models have no time: whatever is waited for must wake.
        let _ = limit;
        loom::thread::park();
    }
    #[cfg(not(loom))]
    match limit {
        Some(limit) => std::thread::park_timeout(limit),
        None => std::thread::park(),
    }
}
