//! Hand-over: from the call of `release` until the next waiter has its guard.

mod of_server;

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Key, LocalStore, Locker, Result, Wait};
use leasehold_sqlite::SqliteStore;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::measure::{micros, now, or_few, percentile};
use crate::subjects::{self, TTL};

pub(crate) use of_server::of_server;

/// Hand-overs measured per row.
const HANDOVERS: usize = or_few(200, 2);

/// Measures every store with 1, 10 and 100 waiters.
pub(crate) async fn run() -> Result<()> {
    println!("## Hand-over latency\n");
    println!(
        "From the call of `release` to the next waiter's guard. \"one `Locker`\": waiters queue in one process; \"a \
         `Locker` each\": as if in separate processes, woken by the store (local) or polling (SQLite).\n"
    );
    println!("| store | waiters | queue | p50, µs | p99, µs |");
    println!("|---|---|---|---|---|");
    let folder = tempfile::tempdir().map_err(subjects::io)?;
    for waiters in [1, 10, 100] {
        let store = LocalStore::new();
        let one = Locker::new(store.clone());
        row("local", "one `Locker`", waiters, |_| one.clone()).await?;
        row("local", "a `Locker` each", waiters, |_| Locker::new(store.clone())).await?;
        let path = folder.path().join(format!("{waiters}.db"));
        let store = SqliteStore::open(path).await?;
        let one = Locker::new(store.clone());
        row("sqlite", "one `Locker`", waiters, |_| one.clone()).await?;
        row("sqlite", "a `Locker` each", waiters, |_| Locker::new(store.clone())).await?;
    }
    println!();
    Ok(())
}

async fn row(
    store: &str,
    line: &str,
    waiters: usize,
    locker: impl Fn(usize) -> Locker,
) -> Result<()> {
    let mut handovers = measure(waiters, HANDOVERS, 0, Duration::ZERO, locker).await?;
    println!(
        "| {store} | {waiters} | {line} | {} | {} |",
        micros(percentile(&mut handovers, 50)),
        micros(percentile(&mut handovers, 99))
    );
    Ok(())
}

/// `waiters` wait while one holds for a while. A task that releases lets another have its turn before it waits
/// again. The first `warm` hand-overs do not count.
pub(crate) async fn measure(
    waiters: usize,
    count: usize,
    warm: usize,
    hold: Duration,
    locker: impl Fn(usize) -> Locker,
) -> Result<Vec<Duration>> {
    let key = Arc::new(Key::new("hand-over")?);
    let (sender, mut latencies) = mpsc::unbounded_channel();
    let (turns, _) = watch::channel(Turn { number: 0, released: now() });
    let turns = Arc::new(turns);
    let mut set = JoinSet::new();
    for n in 0..=waiters {
        let (locks, key) = (locker(n), Arc::clone(&key));
        let (sender, turns) = (sender.clone(), Arc::clone(&turns));
        set.spawn(async move {
            loop {
                let guard = locks.lock(&*key).ttl(TTL).wait(Wait::Forever).await?;
                let granted = now();
                let latency = granted.saturating_sub(turns.borrow().released);
                if sender.send(latency).is_err() {
                    return Result::<()>::Ok(());
                }
                turns.send_modify(|turn| turn.number += 1);
                let mine = turns.borrow().number;
                if !hold.is_zero() {
                    tokio::time::sleep(hold).await;
                }
                turns.send_modify(|turn| turn.released = now());
                let mut others = turns.subscribe();
                guard.release().await?;
                if others.wait_for(|turn| turn.number > mine).await.is_err() {
                    return Ok(());
                }
            }
        });
    }
    drop(sender);
    let mut handovers = Vec::with_capacity(count);
    // The first grant follows no release.
    for _ in 0..=warm {
        latencies.recv().await;
    }
    while handovers.len() < count {
        let Some(latency) = latencies.recv().await else { break };
        handovers.push(latency);
    }
    set.shutdown().await;
    Ok(handovers)
}

/// How often the lock was handed over, and when its last holder began to release it.
struct Turn {
    number: usize,
    released: Duration,
}
