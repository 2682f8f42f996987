//! Leasehold's Redis store.
//!
//! At the key itself stands a plain string with the lease's id and an expiry, as Redlock clients write it: they exclude
//! us and we exclude them, shared holders included. What else a lease has stands in a companion key in the same slot;
//! `docs/stores/redis.md` gives both byte by byte, with the least privileges, versions, limits and hazards. Each
//! operation is one Lua script and one exchange.
//!
//! By default Redis forgets acknowledged writes when it crashes, so it reaches L0 (best effort) and no more. With
//! `appendfsync always` and without eviction and replicas it reaches L2; [`check`](leasehold_core::Store::check) looks.
//!
//! ```no_run
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold_core::Result<()> {
//! use leasehold_core::{AcquireReply, AcquireRequest, Claims, Key, LeaseId, Mode, Store, Ttl};
//! use leasehold_redis::RedisStore;
//! use std::time::Duration;
//!
//! let store = RedisStore::from_url("redis://127.0.0.1/").await?;
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
mod deployment;
mod endpoint;
mod error;
mod health;
mod inner;
mod link;
mod listeners;
mod names;
mod ops;
mod page;
mod replies;
mod run;
mod scan;
mod scripts;
mod servers;
mod store;
mod subscriber;
mod text;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
mod topology;
mod trace;
mod wakeups;

pub use config::RedisConfig;
/// The driver, for [`RedisConfig::client`]: version 1. A store made of a client of another version does not compile, and
/// a new major version of the driver is one of this crate.
pub use redis;
pub use store::RedisStore;
