//! The cases of Nebulex.Locks by name, and each of its defects as a test that fails where it comes back.
//!
//! A bad return of the interval function is decided by the type: it returns a `Duration`.

mod adapter;
mod cases;
mod defects;
mod intervals;
mod sweeps;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::{Clock, ManualClock};
use leasehold_local::locks::{LocalLocks, LockError, LocksConfig, Options};

use crate::common::*;

/// A table that is swept every 100 ms in batches of 5, as in the original's tests.
fn swept_often() -> (Locks, ManualClock) {
    let clock = ManualClock::new();
    let config = LocksConfig::new().sweep_every(100 * MS).sweep_batch(5);
    let config = config.clock(Arc::new(clock.clone()));
    (LocalLocks::with_config(config).expect("it is in range"), clock)
}

/// How a request ends that gets no lock, and when, on a clock that moves whenever the request waits for it.
fn waited(options: &Options) -> (LockError, Duration) {
    let (locks, clock) = manual();
    let _held = locks.try_acquire("key", &patient()).expect("it is free");
    let begun = clock.now();
    let mut request = pin!(locks.acquire("key", options));
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match request.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return (answer.expect_err("it is held"), clock.now() - begun),
            Poll::Pending => advance_to_next(&clock),
        }
    }
}
