//! Leasehold's store made of several independent stores: a majority of them decides (Redlock, over any store).
//!
//! A quorum of N nodes works while a majority of them works, and no single node can grant a lock to a second holder. The
//! [`manual`] states what it guarantees and what it requires of its nodes.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
//! use leasehold_core::{AcquireReply, AcquireRequest, Claims, Key, LeaseId, Mode, Store, Ttl};
//! use leasehold_local::LocalStore;
//! use leasehold_quorum::QuorumConfig;
//! use std::time::Duration;
//!
//! let quorum = QuorumConfig::new()
//!     .node("a", LocalStore::new())
//!     .node("b", LocalStore::new())
//!     .node("c", LocalStore::new())
//!     .build()?;
//! let claims = Claims::one(Key::new("job")?, Mode::Exclusive);
//! let request = AcquireRequest::new(LeaseId::mint()?, claims, Ttl::new(Duration::from_secs(30))?);
//! match quorum.acquire(&request).await? {
//!     AcquireReply::Granted(granted) => println!("granted by {} nodes", granted.nodes().len()),
//!     AcquireReply::Refused(refused) => println!("refused: {:?}", refused.why),
//! }
//! # Ok(()) }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod check;
mod config;
mod evict;
mod inner;
mod late;
mod leases;
mod list;
mod node;
mod queues;
mod release;
mod renew;
mod round;
mod store;
mod url;
mod wakeups;

pub use config::QuorumConfig;
pub use store::QuorumStore;

// Only for `Locker::connect`, which knows the stores that a URL of a quorum names.
#[doc(hidden)]
pub use late::OpenNode;
#[doc(hidden)]
pub use url::QuorumUrl;

/// Guarantees, options, hazards and operation of a quorum.
#[doc = include_str!("../MANUAL.md")]
pub mod manual {}
