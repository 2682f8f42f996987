//! The same locks for callers without async (F11).
//!
//! ```
//! # fn main() -> leasehold::Result<()> {
//! use leasehold::blocking::Locker;
//! use leasehold::{ReleaseOutcome, Wait};
//! use std::time::Duration;
//!
//! let locks = Locker::connect("local:")?;
//! let guard = locks
//!     .lock("report:monthly")
//!     .ttl(Duration::from_secs(30))
//!     .wait(Wait::UpTo(Duration::from_secs(10)))
//!     .take()?;
//! assert!(guard.is_held());
//! guard.release()?;
//!
//! let (lines, released) = locks.with_lock("report:monthly", |guard| {
//!     assert!(guard.is_held());
//!     42
//! })?;
//! assert_eq!(lines, 42);
//! assert!(matches!(released.outcome, ReleaseOutcome::Released), "else it overran its lease");
//! # Ok(()) }
//! ```
//!
//! Waiting, renewal, loss and release are those of [`crate::Locker`] (F1 to F10). Three things are missing here:
//! - [`Guard::run`](crate::Guard::run), which drops its work when the lease is lost: nothing can stop a thread
//!   from outside. Call [`Guard::ensure_held`] before each step, or wait for [`Guard::lost`] on another thread.
//! - [`Election`](crate::Election), because work that ends with the leadership needs `run`. In blocking code,
//!   spawn the candidate on a runtime, and call [`Candidate::is_leader`](crate::Candidate::is_leader), which never
//!   waits, before each step.
//! - A builder: build a [`crate::Locker`] with your clock, limits or note, and convert it with [`Locker::from`].
//!
//! You need no runtime, and you may have one: each call runs on the `Locker`'s own thread, which also renews the
//! leases, while the caller waits for its answer. So a call works in plain threads, in `spawn_blocking` and on a
//! worker of an async runtime. It blocks the calling thread, and every task that can run only there: in async code
//! use [`crate::Locker`].
//!
//! One thread serves a [`Locker`] with its clones, guards, groups and janitors. It starts with the first call. It
//! ends when the last of them is dropped and everything they left is released. So keep one `Locker` and clone it.
//! What stops a caller that waits for a lock is its own [`wait`](crate::LockRequest::wait), or
//! [`close`](Locker::close) from another thread.
//!
//! A call fails as `Unexpected` instead of hanging
//! - on the `Locker`'s own thread, which runs the [`Backoff`](crate::backoff::Backoff), the clock and the store that you
//!   supply: they must not block;
//! - in a process that was forked (a daemon) after the first call, because a fork does not copy threads: create
//!   the `Locker` after the fork;
//! - with effect `Unknown`, if it panics on that thread.

mod guard;
mod janitor;
mod locker;

pub use self::guard::{Events, Guard};
pub use self::janitor::{Janitor, JanitorBuilder};
pub use self::locker::{Group, Locker};
