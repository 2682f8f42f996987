//! Measures the store in a directory: `cargo run --release -p leasehold-sqlite --example measure -- DIRECTORY`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, Clock, EvictRequest, Filter, GroupName, Key, LeaseId,
    ListRequest, Mode, ReleaseEntry, ReleaseRequest, Result, Store, Ttl,
};
use leasehold_driver::SystemClock;
use leasehold_sqlite::SqliteStore;
use rusqlite::Connection;

const RECORDS: u32 = 1_000_000;

/// An old token: microseconds since 1970.
const TOKEN: u64 = 1_767_225_600_000_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let file = tempfile::Builder::new()
        .prefix("measure")
        .tempdir_in(directory)
        .expect("a directory that can be written");
    let path = file.path().join("locks.db");
    let store = SqliteStore::open(&path).await?;

    report("acquire + release, 1 task", pairs(&store, 0, 2_000).await?);
    let start = now();
    let tasks = join_all((1..=64).map(|task| pairs(&store, task, 100))).await;
    let took = now() - start;
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task?);
    }
    println!("64 tasks: {:.0} pairs/s", f64::from(6_400) / took.as_secs_f64());
    report("acquire + release, 64 tasks", all);
    report("a refused acquire", refusals(&store).await?);

    fill(&path).expect("the records can be written");
    let nobody = ListRequest::new(Filter::default().with_group(GroupName::new("nobody")?));
    let start = now();
    store.list(&nobody).await?;
    println!("a page that looks at 10,000 records: {:?}", now() - start);
    purge(&store, &path).await
}

/// How a purge affects other processes: pairs through another store, on another thread.
async fn purge(store: &SqliteStore, path: &Path) -> Result<()> {
    let other = SqliteStore::open(path).await?;
    let done = Arc::new(AtomicBool::new(false));
    let watch = Arc::clone(&done);
    let watcher = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime can be made");
        runtime.block_on(async {
            let mut took = Vec::new();
            while !watch.load(Ordering::SeqCst) {
                took.extend(pairs(&other, 99, 1).await?);
            }
            Ok::<_, leasehold_core::Error>(took)
        })
    });
    let (start, mut removed, mut batches) = (now(), 0, Vec::new());
    loop {
        let began = now();
        let evicted = store.evict(&EvictRequest::expired(Filter::default())).await?;
        batches.push(now() - began);
        removed += evicted.removed.len();
        if !evicted.more {
            break;
        }
    }
    println!("{removed} expired records purged in {:?}", now() - start);
    done.store(true, Ordering::SeqCst);
    report("a batch of 100", batches);
    report("acquire + release meanwhile", watcher.join().expect("no panic")?);
    Ok(())
}

async fn pairs(store: &SqliteStore, task: u32, count: u32) -> Result<Vec<Duration>> {
    let key = Key::new(&format!("task {task}"))?;
    let mut took = Vec::new();
    for _ in 0..count {
        let (id, start) = (LeaseId::mint()?, now());
        acquire(store, id.clone(), key.clone()).await?;
        store.release(&ReleaseRequest::new(vec![ReleaseEntry::new(id, [key.clone()])])).await?;
        took.push(now() - start);
    }
    Ok(took)
}

async fn refusals(store: &SqliteStore) -> Result<Vec<Duration>> {
    let key = Key::new("held")?;
    acquire(store, LeaseId::mint()?, key.clone()).await?;
    let mut took = Vec::new();
    for _ in 0..2_000 {
        let start = now();
        acquire(store, LeaseId::mint()?, key.clone()).await?;
        took.push(now() - start);
    }
    Ok(took)
}

async fn acquire(store: &SqliteStore, id: LeaseId, key: Key) -> Result<AcquireReply> {
    let ttl = Ttl::new(Duration::from_secs(30))?;
    store.acquire(&AcquireRequest::new(id, Claims::one(key, Mode::Exclusive), ttl)).await
}

fn fill(path: &Path) -> rusqlite::Result<()> {
    Connection::open(path)?.execute_batch(&format!(
        "BEGIN;
         WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {RECORDS})
         INSERT INTO leasehold_holders (key, id, mode, state, token, epoch, expires, granted_at)
         SELECT 'x' || i, randomblob(36), 'exclusive', 'held', {TOKEN}, 1, abs(random()) % 1000000, {TOKEN}
         FROM n;
         UPDATE leasehold_mark SET mark = max(mark, {TOKEN});
         COMMIT;"
    ))
}

fn report(what: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let at = |permille: usize| took[(took.len() - 1) * permille / 1_000];
    println!("{what}: n {}, p50 {:?}, p99 {:?}, max {:?}", took.len(), at(500), at(990), at(1_000));
}

fn now() -> Duration {
    SystemClock::new().now()
}
