//! Five candidates, fifty leaders (two hundred with `LEASEHOLD_TEST_ALL=1`) that are ended in every possible way,
//! and what each candidate believed meanwhile: at most one leader at any instant by its own clock, tokens that
//! grow, and a successor in time.
//!
//! All instants are of one kernel's boot time. A candidate reports an instant only if it was taken before a look
//! at its leadership that found it valid, so no report exceeds what the candidate believed.
#![cfg_attr(
    not(feature = "sqlite"),
    allow(dead_code, reason = "its processes need a store between them")
)]

pub(crate) mod candidate;
mod cut;
mod judge;
mod supervisor;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use leasehold::LocalStore;
use leasehold::store::AnyStore;

pub(crate) use self::supervisor::{Home, chaos};

const TTL: Duration = Duration::from_millis(400);

/// Opens the store of `url`.
pub(crate) async fn open(url: &str) -> AnyStore {
    match url.split_once(':').unwrap().0 {
        "local" => AnyStore::new(LocalStore::shared()),
        #[cfg(feature = "sqlite")]
        "sqlite" => AnyStore::new(leasehold_sqlite::SqliteStore::connect(url).await.unwrap()),
        #[cfg(feature = "mongodb")]
        "mongodb" => AnyStore::new(leasehold_mongodb::MongodbStore::connect(url).await.unwrap()),
        #[cfg(feature = "spanner")]
        "spanner" if url.contains("format=spindle") => {
            AnyStore::new(leasehold_spanner::SpindleStore::connect(url).await.unwrap())
        }
        #[cfg(feature = "spanner")]
        "spanner" => AnyStore::new(leasehold_spanner::SpannerStore::connect(url).await.unwrap()),
        #[cfg(feature = "redis")]
        "redis" => AnyStore::new(leasehold_redis::RedisStore::connect(url).await.unwrap()),
        #[cfg(all(feature = "quorum", feature = "sqlite"))]
        "quorum" => {
            let quorum = leasehold_quorum::QuorumUrl::parse(url).unwrap();
            AnyStore::new(quorum.open(sqlite).await.unwrap())
        }
        other => panic!("{other} is not among the stores of this test"),
    }
}

/// Opens a node of a quorum.
#[cfg(all(feature = "quorum", feature = "sqlite"))]
fn sqlite(url: &str) -> leasehold::Result<leasehold_quorum::OpenNode> {
    let config = leasehold_sqlite::SqliteConfig::parse(url)?;
    Ok(Box::new(move || {
        let config = config.clone();
        Box::pin(async move { config.connect().await.map(AnyStore::new) })
    }))
}

#[test]
fn five_candidates_on_the_local_store() {
    let _alone = alone();
    chaos("local:", Home::Tasks);
}

#[cfg(feature = "sqlite")]
#[test]
fn five_candidates_on_sqlite() {
    processes("five_candidates_on_sqlite", |folder| format!("sqlite:{folder}/locks.db"));
}

#[cfg(feature = "redis")]
#[test]
fn five_candidates_on_redis() {
    use leasehold_testkit::redis::{DURABLE, Server};
    let name = "five_candidates_on_redis";
    if candidate::is_asked_for(name) {
        return;
    }
    let _alone = alone();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Server::start(DURABLE)).unwrap();
    chaos(&server.url(), Home::Processes(name));
}

#[cfg(feature = "mongodb")]
#[test]
fn five_candidates_on_mongodb() {
    use leasehold::store::Store as _;
    use leasehold_testkit::mongodb::replica_set::ReplicaSet;
    let name = "five_candidates_on_mongodb";
    if candidate::is_asked_for(name) {
        return;
    }
    let _alone = alone();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let set = runtime.block_on(ReplicaSet::start(1)).unwrap();
    let url = format!("{}&skew=0", set.url());
    runtime.block_on(async { open(&url).await.prepare().await }).unwrap();
    chaos(&url, Home::Processes(name));
}

#[cfg(all(feature = "quorum", feature = "sqlite"))]
#[test]
fn five_candidates_on_a_fenced_quorum_of_sqlite() {
    processes("five_candidates_on_a_fenced_quorum_of_sqlite", |folder| {
        let nodes = ["a", "b", "c"].map(|node| format!("node=sqlite:{folder}/{node}.db"));
        format!("quorum:?fenced=1&node_timeout=100ms&{}", nodes.join("&"))
    });
}

/// Runs the test `name` with a process for each candidate, on the store that `url` names in a folder.
fn processes(name: &'static str, url: impl FnOnce(&str) -> String) {
    if candidate::is_asked_for(name) {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    chaos(&url(folder.path().to_str().unwrap()), Home::Processes(name));
}

/// One store at a time, so that they do not disturb each other's times.
pub(crate) fn alone() -> impl Drop {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
