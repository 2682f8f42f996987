//! A lock held on a lease, over many stores, under one API.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
//! use leasehold::{Locker, Wait};
//! use std::time::Duration;
//!
//! let locks = Locker::connect("local:").await?;
//! let guard = locks
//!     .lock("report:monthly")
//!     .ttl(Duration::from_secs(30))
//!     .wait(Wait::UpTo(Duration::from_secs(10)))
//!     .await?;
//! assert!(guard.is_held());
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! - [`Locker`] is the handle for locking on one store. It also lists leases and ends them by force.
//! - [`LockRequest`] is the builder of every kind of lock.
//! - [`Guard`] is the right to be inside the critical section. It renews its lease, and signals in time when the
//!   lease is lost.
//! - [`blocking`] is the same API for callers without async.
//! - [`Election`] is a candidate for a name: of many candidates, one leads.
//! - [`backoff`], [`inspect`] and [`store`] hold what few programs need.
//!
//! A lock on a lease can be lost at any time: the process may pause, or the store may become unreachable.
//! The [`guide`] states what that means for your program, and how a [`FencingToken`] helps. The manual of each store's
//! crate states what that store guarantees; [`contract`] gives every clause (C1, F4) that this documentation cites.

#![cfg_attr(docsrs, feature(doc_cfg))]

// For contributors: every file imports downwards, and one lock passes through these.
// - An acquire: `locker` and `acquire/request` (the builder, `acquire/options`), checked into `acquire/spec`; then
//   `acquire/run` waits in `queue` and makes each try through `acquire/attempt` and `keeper/in_flight`, under an id of
//   `lease/ids`. What is granted is a `lease/state`, which `guard` gives to the `keeper` (`keeper/schedule`).
// - A renewal: `keeper/task` wakes at the time of `keeper/schedule`; `keeper/renew` sends, and applies to `lease/state`.
// - A loss: `lease/state` compares its deadline with the clock whenever `guard`, `keeper/task` or an answer asks. The one that
//   finds it reports it to `lease/events`, and hands a `lease/cleanup` to `keeper/mailbox`, which `keeper/release` sends.
// - `connect`, `group`, `janitor`, `election` and `blocking` stand on top; `telemetry`, `registry` and `thread` below.
mod acquire;
pub mod blocking;
mod connect;
mod election;
mod group;
mod guard;
mod janitor;
mod keeper;
mod lease;
mod locker;
mod queue;
mod registry;
mod telemetry;
mod thread;

pub use acquire::options::Keepalive;
pub use acquire::request::LockRequest;
pub use election::{
    Candidate, CandidateStatus, Election, Leadership, LeadershipEvent, LeadershipEvents,
};
pub use group::Group;
pub use guard::Guard;
pub use janitor::{Janitor, JanitorBuilder, JanitorReport, Purged};
pub use lease::events::{Event, Events};
pub use lease::release_report::ReleaseReport;
pub use locker::{Locker, LockerBuilder};

pub use leasehold_core::contract;
pub use leasehold_core::{
    Claim, Claims, Effect, Error, ErrorKind, FencingToken, GroupName, InvalidValue, Key, Lease,
    LeaseId, Level, LostReason, ManualClock, Mode, ReleaseOutcome, Remaining, Result, Ttl, Wait,
    WaitCause, WaitReport,
};
#[cfg(feature = "local")]
pub use leasehold_local::{LocalStore, locks};
#[cfg(feature = "mongodb")]
pub use leasehold_mongodb::{MongodbConfig, MongodbStore};
#[cfg(feature = "mysql")]
pub use leasehold_mysql::{MysqlConfig, MysqlStore};
#[cfg(feature = "postgres")]
pub use leasehold_postgres::{PostgresConfig, PostgresStore};
#[cfg(feature = "quorum")]
pub use leasehold_quorum::{QuorumConfig, QuorumStore};
#[cfg(feature = "redis")]
pub use leasehold_redis::{RedisConfig, RedisStore};
#[cfg(feature = "spanner")]
pub use leasehold_spanner::{SpannerConfig, SpannerStore, SpindleConfig, SpindleStore};
#[cfg(feature = "sqlite")]
pub use leasehold_sqlite::{SqliteConfig, SqliteStore};

/// How long a waiter pauses between two tries, for [`LockRequest::backoff`] and [`Election::backoff`].
pub mod backoff {
    pub use leasehold_core::{Backoff, Exponential, Fixed, Jitter, Uniform};
}

/// What a store reports of its leases and of itself, for [`Locker::list`], [`Locker::evict`] and [`Locker::check`].
pub mod inspect {
    pub use leasehold_core::{
        Capabilities, Cursor, EvictReply, EvictRequest, EvictScope, EvictTarget, Expired, Feature,
        Filter, Health, ListReply, ListRequest, NodeOutcome, NodeReport, NodeReports, Note, Reason,
        Record, RecordTerm, Unreadable,
    };
}

/// Everything that a store of your own needs, which is all of `leasehold_core`; the clocks of a [`LockerBuilder`]; and the
/// stores that [`Locker::connect`] knows.
pub mod store {
    pub use crate::connect::{STORES, StoreKind};
    pub use leasehold_core::term::Drift;
    pub use leasehold_core::*;
    pub use leasehold_driver::{SystemClock, TokioClock};
}

/// The table of the PHP library Nene DistributedLock as a store.
#[cfg(feature = "nene")]
pub mod nene {
    pub use leasehold_driver::nene::NeneConfig;
    #[cfg(feature = "mysql")]
    pub use leasehold_mysql::MysqlNeneConfig;
    #[cfg(feature = "postgres")]
    pub use leasehold_postgres::PostgresNeneConfig;
    #[cfg(feature = "sqlite")]
    pub use leasehold_sqlite::SqliteNeneConfig;
}

/// The guide: how to use the library, topic by topic.
#[doc = include_str!("../GUIDE.md")]
pub mod guide {}

/// The examples of the documents compile and, where they can, run.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/first-contact.md")]
    struct FirstContact;
    #[doc = include_str!("../../../docs/migrating/mongo-lock.md")]
    struct MongoLock;
    #[doc = include_str!("../../../docs/migrating/nebulex.md")]
    struct Nebulex;
    #[doc = include_str!("../../../docs/migrating/nene.md")]
    struct Nene;
    #[doc = include_str!("../../../docs/migrating/redlock.md")]
    struct Redlock;
    #[doc = include_str!("../../../docs/migrating/spindle.md")]
    struct Spindle;
}
