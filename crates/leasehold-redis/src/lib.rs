//! Leasehold's Redis store.
//!
//! A lock is a plain string at the key itself, with the lease's id and an expiry, as Redlock clients write it. So
//! old clients and Leasehold exclude each other; a shared lock excludes them too. Everything else of a lease is in
//! a metadata key in the same slot. The [`manual`] describes both byte by byte, and names the required
//! privileges, versions, limits and hazards. Each operation is one Lua script and one exchange.
//!
//! By default Redis forgets acknowledged writes when it crashes, so it reaches only L0 (best effort). With durable
//! writes, without eviction and without replicas it reaches L2; [`check`](leasehold_core::Store::check) reports which.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
//! use leasehold_core::{AcquireReply, AcquireRequest, Claims, Key, LeaseId, Mode, Store, Ttl};
//! use leasehold_redis::RedisStore;
//! use std::time::Duration;
//!
//! let store = RedisStore::connect("redis://127.0.0.1/").await?;
//! let claims = Claims::one(Key::new("report:monthly")?, Mode::Exclusive);
//! let ttl = Ttl::new(Duration::from_secs(30))?;
//! match store.acquire(&AcquireRequest::new(LeaseId::mint()?, claims, ttl)).await? {
//!     AcquireReply::Granted(granted) => println!("ours, with the token {:?}", granted.token),
//!     AcquireReply::Refused(refused) => println!("{} is taken: {:?}", refused.key, refused.why),
//! }
//! # Ok(()) }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

mod argument;
mod cluster;
mod config;
mod connection;
#[cfg(feature = "credentials")]
mod credentials;
#[cfg(not(feature = "credentials"))]
#[path = "no_credentials.rs"]
mod credentials;
mod durability;
mod endpoint;
mod error;
mod health;
mod inner;
mod names;
mod ops;
mod page;
mod replies;
mod scan;
mod scripts;
mod servers;
mod store;
mod text;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
mod trace;
mod wakeups;

pub use config::RedisConfig;
/// The driver, version 1, for [`RedisConfig::client`]. A client of another version does not compile, so a new
/// major version of the driver is a new major version of this crate.
pub use redis;
pub use store::RedisStore;

/// Guarantees, format, privileges, limits and hazards of the Redis store.
#[doc = include_str!("../MANUAL.md")]
pub mod manual {}
