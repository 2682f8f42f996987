//! Locks by key inside one process, close to the hardware: [`LocalLocks`].
//!
//! Use them for transactions on single keys of a cache or a server, between the threads and tasks of one process. For
//! locks that other processes respect, and for leases with tokens, use the crate `leasehold`. A
//! [`LocalStore`](crate::LocalStore::over) can share their table.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_local::locks::LockError> {
//! use leasehold_local::locks::{LocalLocks, LockError, Options};
//!
//! let locks: LocalLocks<&str> = LocalLocks::new();
//! // A thread takes a key; a guard releases it.
//! let guard = locks.acquire_blocking("account:1", &Options::new())?;
//! // A task waits for up to 60 ms, by default.
//! let late = locks.acquire(["account:1", "account:2"], &Options::new()).await;
//! assert!(matches!(late, Err(LockError::TimedOut { attempts: 4, .. })));
//! drop(guard);
//! // A closure runs under locks.
//! let sum = locks.with_locks(["account:1", "account:2"], &Options::new(), async |_| 1 + 2).await?;
//! assert_eq!((sum.value, sum.was_stale), (3, false));
//! # Ok(()) }
//! ```
//!
//! - **Keys** are of any type that is ordered and hashed. A request names one or several, each exclusive or shared
//!   (C9), and gets all of them or none. [`acquire_all`](LocalLocks::acquire_all) locks the whole table: it excludes
//!   every key and is excluded by every key. An empty list of keys is an error, for a filter that found nothing must
//!   not stop a server.
//! - **Waiting.** Threads and tasks wait in the same queues, in the order of their arrival. A release hands the key
//!   over and wakes whoever got it; nobody polls, and no newcomer overtakes, unless the table
//!   [lets them](LocksConfig::barging). Readers do not starve a waiting writer. A
//!   wait that ends, or is dropped, harms nobody.
//! - **Order.** A request for several keys joins all their queues in one step. It keeps others only from its keys up to
//!   the first that it cannot have yet. So whoever takes keys one after another, in key order, never ends in a
//!   deadlock, whatever waits for several keys or for the whole table.
//! - **Stale locks.** A lock goes stale after its time-out, by default 30 s, and with its [owner](OwnerHandle), such as a
//!   thread, a task or a process. Then others may take it: waiters go on at once, and a sweep removes what nobody asks
//!   for. Stale is decided under the mutex that guards the key, so a lock that was taken anew is never removed in place
//!   of the old one. A holder that overran learns of it from [`ReleaseOutcome::Expired`] and [`Scoped::was_stale`].
//! - **Scopes.** [`with_locks`](LocalLocks::with_locks) runs a closure under locks and gives it a [`Scope`] to take
//!   further keys with. Locks are not re-entrant: what a scope holds is refused at once outside its handle.
//! - **Names.** [`LocalLocks::named`] finds one table from anywhere in the process.
//! - **Memory.** Nothing is kept for a key that nobody holds or waits for.
//! - **Level.** One exclusive holder, unless a lock went stale or was released by force. There are no tokens: a holder
//!   that overruns its time-out is not fenced off.
//!
//! A request for one free key takes one mutex of its shard, and its release another time; neither reads a clock if the
//! lock is [never stale](Options::never_stale).

mod access;
mod after;
mod anchor;
mod config;
mod decide;
mod entry;
mod error;
mod fast;
mod fast_leases;
mod forget;
mod forgetting;
mod frame;
mod gate;
mod guard;
mod held;
mod holder;
mod kept;
mod keys;
mod leases;
mod local_locks;
mod lock;
mod named;
mod nest;
mod options;
mod owner;
mod per_process;
mod places;
#[cfg(target_os = "linux")]
mod processes;
mod queue;
mod registry;
mod release;
mod request;
mod room;
mod scope;
mod shard;
mod store_list;
mod store_table;
mod sweep;
mod sweeper;
mod sweeps;
mod sync;
mod table;
mod timer;
mod wait;
mod waiter;
mod whole;

pub use config::LocksConfig;
pub use entry::Entry;
pub use error::LockError;
pub use guard::Guard;
pub use holder::LockId;
pub use keys::Keys;
pub use local_locks::LocalLocks;
pub use options::Options;
pub use owner::{Owner, OwnerHandle};
pub use release::ReleaseOutcome;
pub use scope::{Scope, Scoped};
pub(crate) use store_table::StoreTable;
pub use sweeps::Swept;
pub use table::LockKey;
