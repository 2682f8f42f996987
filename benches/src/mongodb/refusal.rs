//! What a refusal costs: an acquire of a key that another client holds.

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::{AcquireReply, AcquireRequest, Store};
use leasehold::{Claims, Error, Key, LeaseId, Mode, MongodbStore, Result, Ttl};
use leasehold_mongodb::mongodb::bson::doc;
use leasehold_mongodb::mongodb::options::ReadConcern;
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use leasehold_testkit::mongodb::{DATABASE, Server};
use tokio::task::JoinSet;

use super::{failed, number, prepared, raw, refused};
use crate::measure::{micros, now, or_few, percentile};
use crate::subjects::{TTL, through_store};

/// Refusals whose writes are counted.
const COUNTED: u32 = or_few(1_000, 2);

/// Samples of each row.
const SAMPLES: usize = or_few(300, 2);

/// What each of them may change, in what a server says about itself.
const WRITES: [[&str; 3]; 6] = [
    ["opcounters", "insert", ""],
    ["opcounters", "update", ""],
    ["opcounters", "delete", ""],
    ["metrics", "document", "inserted"],
    ["metrics", "document", "updated"],
    ["metrics", "document", "deleted"],
];

pub(crate) async fn run(set: &ReplicaSet) -> Result<()> {
    println!("## A refusal\n");
    writes(&set.nodes[0], &prepared(&set.url()).await?).await?;
    println!(
        "On a replica set of three, all on this machine, in turns; a pair is an acquire and a release of a free key, and the read \
         a `find` of the held key's document with the read concern \"majority\". Load: tasks that acquire and release keys of \
         their own.\n"
    );
    println!("| tasks of load | | p50, µs | p99, µs |");
    println!("|---|---|---|---|");
    let three = ReplicaSet::start(3).await.map_err(failed)?;
    for tasks in [0, 16, 64] {
        times(&three, tasks).await?;
    }
    println!();
    Ok(())
}

/// Counts what refusals write.
async fn writes(server: &Server, store: &MongodbStore) -> Result<()> {
    hold(store, "refused").await?;
    let before = counts(server).await?;
    for _ in 0..COUNTED {
        is_refused(store, "refused").await?;
    }
    let after = counts(server).await?;
    println!("Writes of {COUNTED} refusals, by the server's counts before and after them:\n");
    println!("| count | difference |");
    println!("|---|---|");
    for ((name, before), (_, after)) in before.iter().zip(&after) {
        println!("| {name} | {} |", after - before);
    }
    println!();
    Ok(())
}

/// Counts of writes, and the entries of the collection in the oplog.
async fn counts(server: &Server) -> Result<Vec<(String, u64)>> {
    let status = server.command("admin", doc! { "serverStatus": 1 }).await.map_err(failed)?;
    let mut counts = Vec::new();
    for path in WRITES {
        let path: Vec<_> = path.into_iter().filter(|name| !name.is_empty()).collect();
        counts.push((format!("`{}`", path.join(".")), number(&status, &path)));
    }
    let query = doc! { "ns": format!("{DATABASE}.locks") };
    let count = doc! { "count": "oplog.rs", "query": query };
    let entries = server.command("local", count).await.map_err(failed)?;
    counts.push(("entries of the collection in the oplog".to_owned(), number(&entries, &["n"])));
    Ok(counts)
}

async fn times(set: &ReplicaSet, tasks: usize) -> Result<()> {
    let store = prepared(&set.url()).await?;
    let held = format!("held-{tasks}");
    hold(&store, &held).await?;
    let documents = raw::collection(&set.url(), "locks").await?;
    let loader = Arc::new(prepared(&set.url()).await?);
    let mut load = JoinSet::new();
    for task in 0..tasks {
        load.spawn(pairs_without_end(Arc::clone(&loader), task));
    }
    let free = Key::new("free")?;
    through_store(&store, &free).await?;
    let [mut refusals, mut pairs, mut reads] = [const { Vec::new() }; 3];
    for _ in 0..SAMPLES {
        let start = now();
        is_refused(&store, &held).await?;
        refusals.push(now() - start);
        let start = now();
        through_store(&store, &free).await?;
        pairs.push(now() - start);
        let start = now();
        let read = documents.find_one(doc! { "resource": &held });
        read.read_concern(ReadConcern::majority()).await.map_err(refused)?;
        reads.push(now() - start);
    }
    load.shutdown().await;
    for (name, mut times) in [("a refusal", refusals), ("a pair", pairs), ("a read", reads)] {
        let [p50, p99] = [50, 99].map(|percent| micros(percentile(&mut times, percent)));
        println!("| {tasks} | {name} | {p50} | {p99} |");
    }
    Ok(())
}

async fn pairs_without_end(store: Arc<MongodbStore>, task: usize) -> Result<()> {
    let key = Key::new(&format!("load-{task}"))?;
    loop {
        through_store(&*store, &key).await?;
    }
}

async fn hold(store: &impl Store, name: &str) -> Result<()> {
    match acquire(store, name, 100 * TTL).await? {
        AcquireReply::Granted(_) => Ok(()),
        AcquireReply::Refused(_) => Err(Error::unexpected("a free key was refused")),
    }
}

async fn is_refused(store: &impl Store, name: &str) -> Result<()> {
    match acquire(store, name, TTL).await? {
        AcquireReply::Refused(_) => Ok(()),
        AcquireReply::Granted(_) => Err(Error::unexpected("a held key was granted")),
    }
}

async fn acquire(store: &impl Store, name: &str, term: Duration) -> Result<AcquireReply> {
    let claims = Claims::one(Key::new(name)?, Mode::Exclusive);
    store.acquire(&AcquireRequest::new(LeaseId::mint()?, claims, Ttl::new(term)?)).await
}
