//! Leasehold's store for MySQL and MariaDB.
//!
//! Leases are rows of a table, and each operation is one call of a procedure. The [`manual`] describes both, and names the
//! privileges, versions, limits and hazards. A server that writes durably reaches L2 (fenced leases).
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
//! use leasehold_core::{AcquireReply, AcquireRequest, Claims, Key, LeaseId, Mode, Store, Ttl};
//! use leasehold_mysql::MysqlStore;
//! use std::time::Duration;
//!
//! let store = MysqlStore::connect("mysql://app@127.0.0.1/locks").await?;
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

mod call;
mod calls;
mod config;
mod dialect;
mod error;
mod health;
#[cfg(feature = "nene")]
mod nene;
mod pool;
mod schema;
mod server;
mod session;
mod sql;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;

pub use config::MysqlConfig;
pub use dialect::{Mysql, MysqlStore};
#[cfg(feature = "nene")]
pub use leasehold_driver::nene::NeneConfig;
/// The driver, version 0.37, with its pool, for [`MysqlConfig::pool`]. A pool of another version does not compile, so a new
/// major version of the driver (before its 1.0, 0.38) is a new major version of this crate.
pub use mysql_async;
#[cfg(feature = "nene")]
pub use nene::{MysqlNeneConfig, MysqlNeneStore, NeneDatabase};

/// Guarantees, schema, privileges, limits and hazards of the store for MySQL and MariaDB.
#[doc = include_str!("../MANUAL.md")]
pub mod manual {}
