//! Leasehold's embedded store: leases in a SQLite file, shared by the processes of one host.
//!
//! A file on a local disk reaches L2 (fenced leases). The [`manual`] gives the schema column by column, the file
//! modes, limits and hazards. Terms are kept in boot time, so no step of the wall clock ends or prolongs a lease.
//! The store creates its file and tables and is the file's only user: it never takes part in a transaction of
//! yours.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
//! # let directory = tempfile::tempdir().expect("a temporary directory");
//! # let path = directory.path().join("locks.db");
//! use leasehold_core::{AcquireReply, AcquireRequest, Claims, Key, LeaseId, Mode, Store, Ttl};
//! use leasehold_sqlite::SqliteStore;
//! use std::time::Duration;
//!
//! let store = SqliteStore::open(path).await?;
//! let claims = Claims::one(Key::new("report:monthly")?, Mode::Exclusive);
//! let ttl = Ttl::new(Duration::from_secs(30))?;
//! match store.acquire(&AcquireRequest::new(LeaseId::mint()?, claims, ttl)).await? {
//!     AcquireReply::Granted(granted) => println!("ours, with the token {:?}", granted.token),
//!     AcquireReply::Refused(refused) => println!("{} is taken: {:?}", refused.key, refused.why),
//! }
//! # store.close_database().await;
//! # Ok(()) }
//! ```
//!
//! Files are supported on Linux; in memory the store runs everywhere.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod boot;
#[cfg(target_os = "linux")]
mod changes;
#[cfg(not(target_os = "linux"))]
#[path = "changes_elsewhere.rs"]
mod changes;
mod config;
mod database;
mod decide;
mod error;
#[cfg(target_os = "linux")]
mod file;
#[cfg(not(target_os = "linux"))]
#[path = "file_elsewhere.rs"]
mod file;
mod forgetting;
mod group;
mod health;
mod inner;
mod limit;
#[cfg(feature = "nene")]
mod nene;
mod ops;
mod rows;
mod schema;
mod sql;
mod store;
mod sweep;
mod view;
mod watch;
mod worker;

pub use config::SqliteConfig;
#[cfg(feature = "nene")]
pub use leasehold_driver::nene::NeneConfig;
#[cfg(feature = "nene")]
pub use nene::{NeneFile, SqliteNeneConfig, SqliteNeneStore};
pub use store::SqliteStore;

/// Guarantees, schema, limits and hazards of the SQLite store.
#[doc = include_str!("../MANUAL.md")]
pub mod manual {}
