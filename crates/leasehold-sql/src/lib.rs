//! One store for all SQL servers, [`SqlStore`], with a [`Dialect`] for each: its statements, what its rows and errors mean,
//! and how it wakes waiters.
//!
//! Internal to Leasehold's stores for PostgreSQL and MySQL: any release may change it, and they pin one version (`=`).

#![cfg_attr(docsrs, feature(doc_cfg))]

mod batches;
mod dialect;
mod doubt;
mod expired;
mod list;
mod outcome;
mod position;
mod purge;
mod request;
mod store;
mod stored;

pub use dialect::{Dialect, Exchange, Server, locked};
pub use doubt::Doubt;
pub use expired::{ExpiredRow, Purge};
pub use outcome::Outcome;
pub use position::Position;
#[doc(hidden)]
pub use request::{Errand, Ticket};
pub use request::{Request, mode_conflict};
pub use store::SqlStore;
pub use stored::Stored;
