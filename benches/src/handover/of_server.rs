//! Hand-over on a server that wakes those who wait.

use std::time::Duration;

use leasehold::store::Store;
use leasehold::{Key, LeaseId, Locker, Result};

use super::measure;
use crate::measure::{micros, now, or_few, percentile};
use crate::subjects::through_store;

/// Hand-overs of a row.
const COUNT: usize = or_few(300, 2);

/// How long each holds.
const HOLD: Duration = Duration::from_millis(5);

/// With 1, 10 and 100 waiters, in stores with so many connections each.
pub(crate) async fn of_server<S: Store + Clone>(
    open: impl AsyncFn(usize) -> Result<S>,
) -> Result<()> {
    println!("## Hand-over\n");
    println!(
        "From the call of `release` to the next waiter's guard. \"one `Locker`\": waiters queue in one process; \"a \
         `Locker` each\": connections of its own for each, as if in separate processes, woken by the server. Each \
         holds for {} ms, releases, and waits again. A pair is an acquire and a release of a free key on the store, \
         after such a pause.\n",
        HOLD.as_millis()
    );
    println!("| waiters | queue | pair p50, µs | p50, µs | p99, µs |");
    println!("|---|---|---|---|---|");
    for waiters in [1, 10, or_few(100, 11)] {
        let store = open(4).await?;
        let one = Locker::new(store.clone());
        let mut each = Vec::with_capacity(waiters + 1);
        for _ in 0..=waiters {
            each.push(Locker::new(open(2).await?));
        }
        row(waiters, "one `Locker`", &store, |_| one.clone()).await?;
        row(waiters, "a `Locker` each", &store, |n| each[n].clone()).await?;
    }
    println!();
    Ok(())
}

async fn row(
    waiters: usize,
    queue: &str,
    store: &impl Store,
    locker: impl Fn(usize) -> Locker,
) -> Result<()> {
    let mut handovers = measure(waiters, COUNT, waiters.min(100), HOLD, locker).await?;
    let mut pairs = Vec::new();
    for _ in 0..or_few(100, 2) {
        tokio::time::sleep(HOLD).await;
        let key = Key::new(&LeaseId::mint()?.to_string())?;
        through_store(store, &key).await?;
        let start = now();
        through_store(store, &key).await?;
        pairs.push(now() - start);
    }
    println!(
        "| {waiters} | {queue} | {} | {} | {} |",
        micros(percentile(&mut pairs, 50)),
        micros(percentile(&mut handovers, 50)),
        micros(percentile(&mut handovers, 99))
    );
    Ok(())
}
