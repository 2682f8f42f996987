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
//! Waiting, renewal, loss and release are those of [`crate::Locker`] (F1 to F10). Not here are
//! - [`Guard::run`](crate::Guard::run), which drops its work when the lease is lost: a thread cannot be stopped
//!   from outside. Ask [`Guard::check`] before each step, or wait for [`Guard::lost`] on a thread beside it;
//! - [`Election`](crate::Election): work that ends with its leadership is made of `run`. Where blocking code must
//!   stand, spawn the candidate on a runtime, and ask [`Candidate::is_leader`](crate::Candidate::is_leader),
//!   which waits for nobody, before each step;
//! - a builder: make a [`crate::Locker`] with the clock, limits or note that are wanted, and [`Locker::from`] it.
//!
//! No runtime is needed, and one that is there does no harm: each call runs on a thread of its `Locker`'s own,
//! which also renews the leases, while the caller waits for its answer. So a call works in plain threads, in
//! `spawn_blocking` and on a worker of somebody's async runtime. It does block the thread it is called on, and
//! with it every task that has no other to run on: in async code use [`crate::Locker`].
//!
//! One thread serves a [`Locker`] and all that came of it: its clones, guards, groups and janitors. It starts
//! with the first call and ends when the last of them is gone and what they left behind is released. So keep
//! one `Locker` and clone it. A caller that waits for a lock is stopped by its own [`wait`](crate::LockRequest::wait),
//! or by [`close`](Locker::close) from another thread.
//!
//! Whatever does not answer at once fails as `Unexpected`, and never hangs,
//! - on that very thread, which runs the [`Backoff`](crate::Backoff), the clock and the store that the caller
//!   gave: what they call may not block;
//! - in a process that was forked off (a daemon) after the first call, for threads are not taken along: make
//!   the `Locker` after the fork;
//! - with effect `Unknown`, if the call ends in a panic there.

mod guard;
mod janitor;
mod locker;

pub use self::guard::{Events, Guard};
pub use self::janitor::Janitor;
pub use self::locker::{Group, Locker};
