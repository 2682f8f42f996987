//! Leasehold's Cloud Spanner store.
//!
//! Leases are rows of a table, and each operation is one read-write transaction. The [`manual`] describes both, and names the
//! roles, limits and hazards. Cloud Spanner reaches L2 (fenced leases).
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
//! use leasehold_core::{AcquireReply, AcquireRequest, Claims, Key, LeaseId, Mode, Store, Ttl};
//! use leasehold_spanner::SpannerStore;
//! use std::time::Duration;
//!
//! let store = SpannerStore::connect("spanner://my-project/my-instance/my-database").await?;
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
mod client;
mod columns;
mod config;
mod error;
mod evict;
mod health;
mod list;
mod position;
mod refusals;
mod rows;
mod schema;
mod sender;
mod spindle;
mod store;
mod sweep;
mod table;

pub use config::SpannerConfig;
pub use spindle::{SpindleConfig, SpindleStore};
pub use store::SpannerStore;

/// Guarantees, schema, roles, limits and hazards of the store for Cloud Spanner.
#[doc = include_str!("../MANUAL.md")]
pub mod manual {}

/// Rows, rules and hazards of the table of spindle.
#[doc = include_str!("../SPINDLE.md")]
pub mod spindle_manual {}
