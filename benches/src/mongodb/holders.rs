//! Updates of a key with many shared holders.

use std::time::Duration;

use leasehold::store::{
    AcquireRequest, ReleaseEntry, ReleaseRequest, RenewEntry, RenewRequest, Store,
};
use leasehold::{Claims, Error, Key, LeaseId, Mode, MongodbStore, Result, Ttl};
use leasehold_mongodb::mongodb::Collection;
use leasehold_mongodb::mongodb::bson::{Document, doc};
use leasehold_testkit::mongodb::DATABASE;
use leasehold_testkit::mongodb::Server;
use leasehold_testkit::mongodb::replica_set::ReplicaSet;

use super::{failed, number, raw, refused};
use crate::measure::{micros, now, or_few, percentile};
use crate::subjects::TTL;

/// Requests of each kind.
const COUNT: usize = or_few(300, 2);

/// What one update may take on the server at the default limit.
const MOST: Duration = Duration::from_millis(10);

pub(crate) async fn run(set: &ReplicaSet) -> Result<()> {
    println!("## Updates of a key with many shared holders\n");
    println!(
        "{COUNT} requests of each kind, one after the other. \"processor\": the time of the server's process for each request. \
         \"server\": the mean time of its commands by the server's own statistics (`latencyStats`), with the wait for the journal. \
         \"slow\": commands that its log reports as longer than {} ms.\n",
        MOST.as_millis()
    );
    println!("| holders | | processor, µs | server, µs | p50, µs | p99, µs | slow |");
    println!("|---|---|---|---|---|---|---|");
    let server = &set.nodes[0];
    let slow = i64::try_from(MOST.as_millis()).unwrap_or(i64::MAX);
    let threshold = async |millis: i64| {
        let command = doc! { "profile": 0, "slowms": millis };
        server.command(DATABASE, command).await.map_err(failed)
    };
    threshold(slow).await?;
    for holders in [1, or_few(1_024, 2), or_few(10_000, 3)] {
        rows(set, holders).await?;
    }
    threshold(100).await?;
    println!();
    Ok(())
}

async fn rows(set: &ReplicaSet, holders: u32) -> Result<()> {
    let server = &set.nodes[0];
    let url = format!("{}&max_holders=10000", set.url());
    let store = super::prepared(&url).await?;
    let documents = raw::collection(&set.url(), "locks").await?;
    let key = Key::new(&format!("shared-by-{holders}"))?;
    let name = key.as_str();
    acquire(&store, &key, lease(0)?, Mode::SHARED).await?;
    multiply(&documents, name, holders).await?;
    let last = lease(holders - 1)?;
    let renewal =
        RenewEntry::extend(last, Claims::one(key.clone(), Mode::SHARED), Ttl::new(100 * TTL)?);
    let renewal = RenewRequest::new(vec![renewal]);
    row(server, (holders, "renew"), async || store.renew(&renewal).await.map(drop)).await?;
    if holders < 10_000 {
        let pair = async || {
            let id = LeaseId::mint()?;
            acquire(&store, &key, id.clone(), Mode::SHARED).await?;
            let entry = ReleaseEntry::new(id, [key.clone()]);
            store.release(&ReleaseRequest::new(vec![entry])).await.map(drop)
        };
        row(server, (holders, "acquire and release another"), pair).await?;
    }
    let refusal = async || acquire(&store, &key, LeaseId::mint()?, Mode::Exclusive).await;
    row(server, (holders, "refuse an exclusive lease"), refusal).await
}

async fn row(
    server: &Server,
    (holders, name): (u32, &str),
    request: impl AsyncFn() -> Result<()>,
) -> Result<()> {
    request().await?;
    let (slow, worked, [latency, count]) =
        (slow(server), server.processor_time(), statistics(server).await?);
    let mut times = Vec::with_capacity(COUNT);
    for _ in 0..COUNT {
        let start = now();
        request().await?;
        times.push(now() - start);
    }
    let worked = server.processor_time() - worked;
    let [latency_after, count_after] = statistics(server).await?;
    let commands = (count_after - count).max(1);
    let mean = Duration::from_micros((latency_after - latency) / commands);
    println!(
        "| {holders} | {name} | {} | {} | {} | {} | {} of {commands} |",
        micros(worked / u32::try_from(COUNT).unwrap_or(u32::MAX)),
        micros(mean),
        micros(percentile(&mut times, 50)),
        micros(percentile(&mut times, 99)),
        self::slow(server) - slow,
    );
    Ok(())
}

/// How long all writes of the collection have taken on the server, in microseconds, and how many there were.
async fn statistics(server: &Server) -> Result<[u64; 2]> {
    let stages = vec![doc! { "$collStats": { "latencyStats": {} } }];
    let command = doc! { "aggregate": "locks", "pipeline": stages, "cursor": {} };
    let reply = server.command(DATABASE, command).await.map_err(failed)?;
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let found = batch.ok().and_then(|batch| batch.first()?.as_document());
    let found = found.ok_or_else(|| Error::unexpected("the server has no statistics"))?;
    Ok(["latency", "ops"].map(|name| number(found, &["latencyStats", "writes", name])))
}

/// How many slow updates the log reports.
fn slow(server: &Server) -> usize {
    let is_slow = |line: &&str| line.contains("\"Slow query\"") && line.contains("findAndModify");
    server.log().lines().filter(is_slow).count()
}

/// Gives the document of a key with one shared holder so many.
async fn multiply(documents: &Collection<Document>, name: &str, holders: u32) -> Result<()> {
    let id = doc! { "$concat": ["holder-", { "$toString": "$$n" }] };
    let lock = doc! { "$mergeObjects": [{ "$first": "$shared.locks" }, { "lockId": id }] };
    let range = doc! { "$range": [0, holders] };
    let locks = doc! { "$map": { "input": range, "as": "n", "in": lock } };
    let count = i64::from(holders);
    let update =
        vec![doc! { "$set": { "shared": { "count": { "$literal": count }, "locks": locks } } }];
    documents.update_one(doc! { "resource": name }, update).await.map_err(refused)?;
    Ok(())
}

fn lease(n: u32) -> Result<LeaseId> {
    Ok(LeaseId::foreign(format!("holder-{n}").as_bytes())?)
}

/// Asks for a lease of this key, which is granted or refused.
async fn acquire(store: &MongodbStore, key: &Key, id: LeaseId, mode: Mode) -> Result<()> {
    let claims = Claims::one(key.clone(), mode);
    store.acquire(&AcquireRequest::new(id, claims, Ttl::new(100 * TTL)?)).await.map(drop)
}
