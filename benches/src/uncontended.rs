//! Uncontended acquire + release: through `Locker`, on the store itself, and by hand.

use std::future::Future;
use std::time::Duration;

use leasehold::store::Store;
use leasehold::{Key, Locker, Result};
use tokio::task::JoinSet;

use crate::measure::{micros, now, or_few, percentile};
use crate::subjects::{self, Keys, RawSqlite};

/// How often the variants take turns, so that other load on the machine affects them alike.
const ROUNDS: usize = or_few(9, 1);

/// Measures every store at every number of tasks.
pub(crate) async fn run() -> Result<()> {
    println!("## Uncontended acquire + release\n");
    println!(
        "Each task has its own key. µs per pair is wall time / pairs x tasks, the median of {ROUNDS} rounds.\n"
    );
    println!(
        "| store | tasks | on the store, µs | through `Locker`, µs | ratio | pairs/s through `Locker` |"
    );
    println!("|---|---|---|---|---|---|");
    let folder = tempfile::tempdir().map_err(subjects::io)?;
    let (local_store, local_locks) = subjects::local();
    let (sqlite_store, sqlite_locks) = subjects::sqlite(folder.path()).await?;
    for (keys, which) in [(Keys::Known, ""), (Keys::Fresh, ", keys used once")] {
        let name = |store: &str| format!("{store}{which}");
        rows((&name("local"), keys), or_few(20_000, 64), &local_store, &local_locks).await?;
        rows((&name("sqlite"), keys), 256, &sqlite_store, &sqlite_locks).await?;
    }
    by_hand(folder.path(), &sqlite_store).await
}

/// One store at every number of tasks.
async fn rows<S: Store + Clone>(
    what: (&str, Keys),
    pairs: usize,
    store: &S,
    locks: &Locker,
) -> Result<()> {
    for tasks in [1, 16, 64] {
        let (store, locks) = (store.clone(), locks.clone());
        let on_store = move |key| {
            let store = store.clone();
            async move { subjects::through_store(&store, &key).await }
        };
        let through_locker = move |key| {
            let locks = locks.clone();
            async move { subjects::through_locker(&locks, &key).await }
        };
        row(what, tasks, pairs, on_store, through_locker).await?;
    }
    Ok(())
}

/// SQLite alone, one task: the store against hand-written statements on one connection.
async fn by_hand(folder: &std::path::Path, store: &leasehold_sqlite::SqliteStore) -> Result<()> {
    let mut raw = RawSqlite::open(folder)?;
    let key = Key::new("by-hand")?;
    let (mut hand, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS * or_few(64, 1) {
        let start = now();
        raw.pair(&key)?;
        hand.push(now() - start);
        let start = now();
        subjects::through_store(store, &key).await?;
        ours.push(now() - start);
    }
    let (hand, ours) = (percentile(&mut hand, 50), percentile(&mut ours, 50));
    println!(
        "\nSQLite, one task, taking turns pair by pair: hand-written statements {} µs, the store {} µs, ratio {:.2}.\n",
        micros(hand),
        micros(ours),
        ours.as_secs_f64() / hand.as_secs_f64()
    );
    Ok(())
}

async fn row<A, B, FA, FB>(
    (store, keys): (&str, Keys),
    tasks: usize,
    pairs: usize,
    raw: A,
    ours: B,
) -> Result<()>
where
    A: Fn(Key) -> FA + Clone + Send + 'static,
    B: Fn(Key) -> FB + Clone + Send + 'static,
    FA: Future<Output = Result<()>> + Send + 'static,
    FB: Future<Output = Result<()>> + Send + 'static,
{
    let each = pairs / tasks.min(pairs);
    timed(keys, tasks, each.min(16), raw.clone()).await?;
    timed(keys, tasks, each.min(16), ours.clone()).await?;
    let (mut raw_rounds, mut our_rounds) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        raw_rounds.push(timed(keys, tasks, each, raw.clone()).await?);
        our_rounds.push(timed(keys, tasks, each, ours.clone()).await?);
    }
    let raw = percentile(&mut raw_rounds, 50);
    let ours = percentile(&mut our_rounds, 50);
    let pairs = f64::from(u32::try_from(each * tasks).unwrap_or(u32::MAX));
    let per_pair =
        |wall: Duration| Duration::from_secs_f64(wall.as_secs_f64() / pairs * tasks_f64(tasks));
    println!(
        "| {store} | {tasks} | {} | {} | {:.2} | {:.0} |",
        micros(per_pair(raw)),
        micros(per_pair(ours)),
        ours.as_secs_f64() / raw.as_secs_f64(),
        pairs / ours.as_secs_f64()
    );
    Ok(())
}

fn tasks_f64(tasks: usize) -> f64 {
    f64::from(u32::try_from(tasks).unwrap_or(u32::MAX))
}

async fn timed<A, F>(keys: Keys, tasks: usize, each: usize, pair: A) -> Result<Duration>
where
    A: Fn(Key) -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut set = JoinSet::new();
    let start = now();
    for task in 0..tasks {
        let pair = pair.clone();
        set.spawn(async move {
            for _ in 0..each {
                pair(Key::new(&keys.of(task))?).await?;
            }
            Result::<()>::Ok(())
        });
    }
    while let Some(done) = set.join_next().await {
        done.expect("a task of the benchmark does not panic")?;
    }
    Ok(now() - start)
}
