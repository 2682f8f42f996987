//! Leasehold's PostgreSQL store.
//!
//! Leases are rows of a table in a schema of their own, and each operation is one call of a function there. The
//! [`manual`] describes both, and names the privileges, versions, limits and hazards. A server that writes durably
//! reaches L2 (fenced leases).
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
//! use leasehold_core::{AcquireReply, AcquireRequest, Claims, Key, LeaseId, Mode, Store, Ttl};
//! use leasehold_postgres::PostgresStore;
//! use std::time::Duration;
//!
//! let store = PostgresStore::connect("postgres://app@127.0.0.1/app").await?;
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
#![cfg_attr(not(feature = "tls"), allow(clippy::clone_on_copy, reason = "with TLS it is none"))]

mod call;
mod calls;
mod config;
mod connect;
mod dialect;
mod error;
mod health;
mod listener;
#[cfg(feature = "nene")]
mod nene;
mod pool;
mod row_waits;
mod schema;
mod server;
mod session;
mod sql;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
mod trace;

pub use config::PostgresConfig;
/// The pool, version 0.14, for [`PostgresConfig::pool`]. A pool of another version does not compile, so a new major version
/// of it (before its 1.0, 0.15) is a new major version of this crate.
pub use deadpool_postgres;
pub use dialect::{Postgres, PostgresStore};
#[cfg(feature = "nene")]
pub use leasehold_driver::nene::NeneConfig;
#[cfg(feature = "nene")]
pub use nene::{NeneDatabase, PostgresNeneConfig, PostgresNeneStore};
/// The driver, version 0.7, which the pool's connections are of. A new major version of it (before its 1.0, 0.8) is a new
/// major version of this crate.
pub use tokio_postgres;

/// Guarantees, schema, privileges, limits and hazards of the PostgreSQL store.
#[doc = include_str!("../MANUAL.md")]
pub mod manual {}
