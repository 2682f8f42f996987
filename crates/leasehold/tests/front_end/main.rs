//! The front end: what a user of `Locker`, `Guard` and `Election` may rely on.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

mod beside_locks;
mod blocking;
mod blocking_thread;
mod cancel;
mod capabilities;
#[cfg(all(
    feature = "local",
    feature = "mongodb",
    feature = "mysql",
    feature = "nene",
    feature = "postgres",
    feature = "quorum",
    feature = "redis",
    feature = "sqlite"
))]
mod capability_table;
mod election;
mod election_candidate;
#[cfg(unix)]
mod election_chaos;
#[cfg(all(unix, feature = "sqlite"))]
mod election_example;
mod election_observe;
mod election_spindle;
mod endings;
#[cfg(all(feature = "local", feature = "quorum", feature = "sqlite"))]
mod examples;
#[cfg(all(feature = "quorum", feature = "redis"))]
mod fleet;
mod janitor;
mod keeper;
mod late_grants;
mod left_behind;
mod left_leases;
mod limits;
mod loss;
mod manual_clock;
#[cfg(all(
    feature = "local",
    feature = "mongodb",
    feature = "mysql",
    feature = "nene",
    feature = "postgres",
    feature = "quorum",
    feature = "redis",
    feature = "sqlite"
))]
mod matrix;
#[cfg(all(
    any(feature = "mongodb", feature = "mysql", feature = "postgres"),
    feature = "quorum",
    feature = "redis",
    feature = "sqlite"
))]
mod mixed;
#[cfg(all(feature = "mongodb", feature = "quorum", feature = "redis", feature = "sqlite"))]
mod mongodb;
#[cfg(all(feature = "mysql", feature = "quorum", feature = "redis", feature = "sqlite"))]
mod mysql;
mod outlasting;
mod own_locks;
#[cfg(all(
    feature = "mongodb",
    feature = "mysql",
    feature = "postgres",
    feature = "quorum",
    feature = "redis"
))]
mod passwords;
#[cfg(all(feature = "postgres", feature = "quorum", feature = "redis", feature = "sqlite"))]
mod postgres;
#[cfg(feature = "sqlite")]
mod processes;
#[cfg(feature = "quorum")]
mod quorum;
mod quorum_servers;
#[cfg(feature = "redis")]
mod redis;
#[cfg(all(feature = "quorum", feature = "redis"))]
mod redlock;
#[cfg(all(feature = "quorum", feature = "redis"))]
mod redlock_defects;
#[cfg(all(feature = "quorum", feature = "redis"))]
mod redlock_quorum;
#[cfg(all(feature = "quorum", feature = "redis"))]
mod redlock_watch;
mod release;
mod renewal;
mod resumed;
mod send_sync;
mod spawned;
#[cfg(all(
    any(feature = "mysql", feature = "postgres"),
    feature = "quorum",
    feature = "redis",
    feature = "sqlite"
))]
mod sql;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
mod stalls;
mod support;
#[cfg(all(feature = "mysql", feature = "postgres"))]
mod switched;
mod switched_redis;
mod telemetry;
mod wait_limits;
mod waiting;
