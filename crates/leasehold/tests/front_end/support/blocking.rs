//! Callers without async.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold::blocking::Locker;

use super::Flaky;

/// Longer than anything takes, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A store in real time, a blocking `Locker` on it, and one of another process.
pub(crate) fn store() -> (Flaky, Locker, Locker) {
    let store = Flaky::in_real_time();
    let (locks, others) = (Locker::from(store.locks()), Locker::from(store.others()));
    (store, locks, others)
}

/// The result of `work`, on its own thread so that a hang is a failure.
pub(crate) fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (end, ended) = mpsc::channel();
    thread::spawn(move || end.send(work()).unwrap_or_default());
    ended.recv_timeout(LONG).expect("it neither hangs nor panics")
}
