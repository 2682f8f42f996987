//! Leasehold's store inside one process: for tests, and for programs whose own tasks and threads compete.
//!
//! Threads and tasks that lock by key, and need no store, use [`locks::LocalLocks`].
//!
//! The store reaches L2 within the process and guarantees nothing beyond it: see the [`manual`].
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
//! use leasehold_core::{AcquireReply, AcquireRequest, Claims, Key, LeaseId, Mode, Store, Ttl};
//! use leasehold_local::LocalStore;
//! use std::time::Duration;
//!
//! let store = LocalStore::new();
//! let claims = Claims::one(Key::new("job")?, Mode::Exclusive);
//! let ttl = Ttl::new(Duration::from_secs(30))?;
//! let first = store.acquire(&AcquireRequest::new(LeaseId::mint()?, claims.clone(), ttl)).await?;
//! assert!(matches!(first, AcquireReply::Granted(_)));
//! let second = store.acquire(&AcquireRequest::new(LeaseId::mint()?, claims, ttl)).await?;
//! assert!(matches!(second, AcquireReply::Refused(_)));
//! # Ok(()) }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod locks;
mod store;

pub use store::LocalStore;

/// What the store guarantees, and what it is for.
#[doc = include_str!("../MANUAL.md")]
pub mod manual {}
