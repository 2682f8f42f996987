//! What a waiter costs the server while nothing happens.

use leasehold::store::Store as _;
use leasehold::{Locker, MongodbStore, Result, Wait};
use leasehold_mongodb::mongodb::bson::doc;
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use tokio::task::JoinSet;

use super::failed;
use crate::subjects::TTL;
use crate::waiting::{self, Counts, WAITERS};

/// Of clients' commands all but those of the driver's monitors, which are `hello` and `ping`.
const COMMANDS: &[&str] = &[
    "abortTransaction",
    "aggregate",
    "commitTransaction",
    "delete",
    "endSessions",
    "find",
    "findAndModify",
    "getMore",
    "insert",
    "killCursors",
    "update",
];

/// Measures both sides at once, each with a server of its own.
pub(crate) async fn run() -> Result<()> {
    println!("## Commands while waiting\n");
    println!(
        "{WAITERS} waiters for a key whose holder renews a lease of 30 s. Commands of all clients, including the \
         holder's renewals and each `getMore`, without those of the driver's monitors.\n"
    );
    waiting::head();
    let mut sides = JoinSet::new();
    for each in [false, true] {
        sides.spawn(side(each));
    }
    let mut rows = sides.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
    rows.sort_unstable();
    println!("{}\n", rows.join("\n"));
    Ok(())
}

/// Waiters of one `Locker`, or each with its own.
async fn side(each: bool) -> Result<String> {
    let set = ReplicaSet::start(1).await.map_err(failed)?;
    let url = set.url();
    let store = MongodbStore::connect(&url).await?;
    store.prepare().await?;
    let one = Locker::new(store);
    let guard = one.lock("k").ttl(TTL).await?;
    let mut stores = Vec::new();
    for _ in 0..WAITERS {
        stores.push(MongodbStore::connect(&url).await?);
    }
    let mut waiters = JoinSet::new();
    let counts = Counts::start(|| commands(&set)).await?;
    for store in stores {
        let locks = if each { Locker::new(store) } else { one.clone() };
        waiters.spawn(async move { locks.lock("k").ttl(TTL).wait(Wait::Forever).await });
    }
    let row = counts.end(if each { "a `Locker` each" } else { "one `Locker`" }).await?;
    waiters.shutdown().await;
    guard.ensure_held()?;
    Ok(row)
}

async fn commands(set: &ReplicaSet) -> Result<u64> {
    let status = set.nodes[0].command("admin", doc! { "serverStatus": 1 }).await.map_err(failed)?;
    let of = |name: &&str| super::number(&status, &["metrics", "commands", name, "total"]);
    Ok(COMMANDS.iter().map(of).sum())
}
