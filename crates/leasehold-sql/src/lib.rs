//! One store for all SQL servers, [`SqlStore`], with a [`Dialect`] for each: its statements, what its rows and errors mean,
//! and how it wakes waiters.
//!
//! Internal to Leasehold's stores for PostgreSQL and MySQL: any release may change it, and they pin one version (`=`).

#![cfg_attr(docsrs, feature(doc_cfg))]

mod config;
mod connection;
mod dialect;
mod doubt;
mod error;
mod exchange;
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
#[cfg(feature = "tls")]
mod tls;
mod version;

pub use config::{Settings, UrlRules};
pub use connection::{Connection, Pool};
pub use dialect::{Client, Dialect, Eviction, Records, Statements, Tries};
pub use error::{
    all_in_use, broken, cause, locked, no_connection, no_tls, unanswered, unexpected, unreachable,
    untrusted,
};
pub use expired::{Purge, Scan};
pub use pool::{CALLERS, Exchanged, Unanswered};
pub use position::Position;
pub use reply::ReadRows;
#[doc(hidden)]
pub use reply::Reply;
pub use request::{Request, integer, limit, micros, terms};
pub use session::{Answer, Call, Failed, Row, Session, Source};
pub use store::SqlStore;
pub use stored::Stored;
#[cfg(feature = "tls")]
pub use tls::trusted;
pub use version::admit_version;

/// The files that create the store's objects, of the folder `sql` beside the file that asks for them: those with the first
/// names, the routines of requests, and those with the last.
#[macro_export]
macro_rules! objects {
    (@ $($name:literal)*) => {
        &[$(include_str!(concat!("sql/", $name, ".sql"))),*]
    };
    ([$($first:literal),*], [$($last:literal),*]) => {
        $crate::objects!(@ $($first)* "acquire" "acquire_one" "acquire_batch" "renew" "renew_one" "renew_batch"
            "release" "release_one" "release_batch" "evict" "purge" $($last)*)
    };
}
