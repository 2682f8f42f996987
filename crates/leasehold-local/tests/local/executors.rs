//! Executors: any of them, one thread for many tasks, and wakers that panic.
#![expect(clippy::disallowed_methods, reason = "tasks that share one thread")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use leasehold_local::locks::{LocalLocks, LockError, LocksConfig, Options, ReleaseOutcome};

use crate::common::*;

/// The smallest executor.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_wait_up_to_a_limit_needs_no_runtime() {
    let locks = Locks::new();
    let guard = locks.try_acquire("a", &patient()).unwrap();
    let error = block_on(locks.acquire("a", &patient().deadline(20 * MS))).unwrap_err();
    assert!(matches!(error, LockError::TimedOut { waited, .. } if waited >= 20 * MS), "{error}");
    let error = block_on(locks.acquire("a", &Options::new())).unwrap_err();
    assert!(matches!(error, LockError::TimedOut { attempts: 4, .. }), "{error}");
    drop(guard);
    let _stale = locks.try_acquire("a", &Options::new().lock_timeout(20 * MS)).unwrap();
    let successor = block_on(locks.acquire("a", &patient())).unwrap();
    assert_eq!(successor.release(), ReleaseOutcome::Released);
    assert!(locks.is_empty());
}

#[test]
fn waits_without_a_runtime_end_in_the_order_of_their_limits() {
    let locks = Locks::new();
    let _guard = locks.try_acquire("a", &patient()).unwrap();
    let waited = std::thread::scope(|threads| {
        let limits = [40, 10, 25].map(|limit| limit * MS);
        let all = limits.map(|limit| {
            let locks = &locks;
            threads.spawn(move || block_on(locks.acquire("a", &patient().deadline(limit))).err())
        });
        all.map(|thread| match thread.join().unwrap() {
            Some(LockError::TimedOut { waited, .. }) => waited,
            other => panic!("{other:?}"),
        })
    });
    assert!(waited[1] >= 10 * MS && waited[2] >= 25 * MS && waited[0] >= 40 * MS, "{waited:?}");
}

#[test]
fn a_task_that_always_gets_its_key_lets_others_run() {
    for barging in [false, true] {
        let config = LocksConfig::new().barging(barging).sweep_never();
        let locks: Locks = LocalLocks::with_config(config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ran = Arc::new(AtomicBool::new(false));
        let seen = ran.clone();
        let rounds = runtime.block_on(async move {
            let greedy = tokio::spawn(async move {
                for round in 0..100_000 {
                    drop(locks.acquire("a", &patient()).await.unwrap());
                    if ran.load(Ordering::Relaxed) {
                        return round;
                    }
                }
                panic!("no other task ran");
            });
            tokio::spawn(async move { seen.store(true, Ordering::Relaxed) });
            greedy.await.unwrap()
        });
        assert!(rounds < 1_000, "{rounds}");
    }
}

#[test]
fn where_barging_is_on_a_task_that_holds_its_key_over_an_await_does_not_keep_it() {
    let config = LocksConfig::new().barging(true).sweep_never();
    let locks: Locks = LocalLocks::with_config(config).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let got = Arc::new(AtomicBool::new(false));
    let (others, seen) = (locks.clone(), got.clone());
    let rounds = runtime.block_on(async move {
        let greedy = tokio::spawn(async move {
            for round in 0..10_000 {
                let guard = locks.acquire("a", &patient()).await.unwrap();
                if got.load(Ordering::Relaxed) {
                    return round;
                }
                tokio::task::yield_now().await;
                drop(guard);
            }
            panic!("the other task never got the key");
        });
        let other = tokio::spawn(async move {
            let _guard = others.acquire("a", &patient()).await.unwrap();
            seen.store(true, Ordering::Relaxed);
        });
        other.await.unwrap();
        greedy.await.unwrap()
    });
    assert!((16..32).contains(&rounds), "{rounds}");
}

/// A waker that panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("on purpose");
    }
}

#[test]
fn a_waker_that_panics_costs_nobody_else_a_wake_up_or_a_lock() {
    let (locks, _clock) = manual();
    let reads = || leasehold_local::locks::Keys::shared("a");
    let writer = locks.try_acquire("a", &once()).unwrap();
    let options = patient();
    let mut broken = Box::pin(locks.acquire(reads(), &options));
    let waker = Waker::from(Arc::new(Panics));
    assert!(broken.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let both = waits(&locks, leasehold_local::locks::Keys::all_shared(["a", "b"]), patient());
    let reader = waits(&locks, reads(), patient());
    assert_eq!(writer.release(), ReleaseOutcome::Released);
    drop(reader.done().unwrap());
    drop(both.done().unwrap());
    drop(broken);
    assert!(locks.is_empty());
}
