//! Leasehold's MongoDB store.
//!
//! A key is a document of a collection, in the form of the Go library mongo-lock. So its clients and Leasehold exclude each
//! other, in both modes. The [`manual`] describes the documents, and names the required privileges, versions, limits and
//! hazards. A request about one key is one `findAndModify`, in which the server decides by its own clock.
//!
//! By default clients of mongo-lock may share the collection, and the store reaches L1. Without any it reaches L2, stated by
//! [`skew`](MongodbConfig::skew); [`check`](leasehold_core::Store::check) reports which.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
//! use leasehold_core::{AcquireReply, AcquireRequest, Claims, Key, LeaseId, Mode, Store, Ttl};
//! use leasehold_mongodb::MongodbStore;
//! use std::time::Duration;
//!
//! let store = MongodbStore::connect("mongodb://127.0.0.1/app?replicaSet=rs0").await?;
//! store.prepare().await?;
//! let claims = Claims::one(Key::new("report:monthly")?, Mode::Exclusive);
//! let ttl = Ttl::new(Duration::from_secs(30))?;
//! match store.acquire(&AcquireRequest::new(LeaseId::mint()?, claims, ttl)).await? {
//!     AcquireReply::Granted(granted) => println!("ours, with the token {:?}", granted.token),
//!     AcquireReply::Refused(refused) => println!("{} is taken: {:?}", refused.key, refused.why),
//! }
//! # Ok(()) }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod batch;
mod change;
mod change_stream;
mod commands;
mod config;
mod document;
mod error;
mod health;
mod inner;
mod keys;
mod mongo_lock;
mod ops;
mod pipeline;
mod record;
mod schema;
mod server;
mod shapes;
mod simple;
mod store;
mod wakeups;

pub use config::MongodbConfig;
pub use mongo_lock::{LockChanges, LockStatus, StatusFilter};
/// The driver, version 3, for [`MongodbConfig::database`]. A client of another version does not compile, so a new
/// major version of the driver is a new major version of this crate.
pub use mongodb;
pub use store::MongodbStore;

/// Guarantees, format, privileges, limits and hazards of the MongoDB store.
#[doc = include_str!("../MANUAL.md")]
pub mod manual {}
