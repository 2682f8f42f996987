//! One store for all SQL servers, [`SqlStore`], with a [`Dialect`] for each: its statements, what its rows and errors mean,
//! and how it wakes waiters.
//!
//! Internal to Leasehold's stores for PostgreSQL and MySQL: any release may change it, and they pin one version (`=`).

#![cfg_attr(docsrs, feature(doc_cfg))]

mod batches;
mod config;
mod connection;
mod dialect;
mod doubt;
mod error;
mod expired;
mod list;
mod pool;
mod position;
mod purge;
mod reply;
mod request;
mod session;
mod store;
mod stored;
mod version;

pub use config::{Settings, UrlRules};
pub use connection::Connection;
pub use dialect::{Dialect, Exchange};
pub use error::{all_in_use, locked, no_connection, unanswered};
pub use expired::{Purge, ScannedRow};
pub use pool::{CALLERS, Failed, Pool, Unanswered};
pub use position::Position;
pub use reply::ReplyRow;
#[doc(hidden)]
pub use request::{Errand, Ticket};
pub use request::{Outcome, Request};
pub use session::{Session, Source};
pub use store::SqlStore;
pub use stored::Stored;
pub use version::{admit_version, incomplete};
