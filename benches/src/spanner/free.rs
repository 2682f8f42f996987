//! What a free lock costs after a pause.

use std::time::Duration;

use leasehold::store::Store as _;
use leasehold::{LeaseId, Locker, Result, SpannerStore, Wait};
use leasehold_testkit::spanner::Emulator;

use super::failed;
use super::raw::Plain;
use crate::measure::{micros, now, or_few, percentile, ratio};
use crate::subjects::TTL;

/// Before each transaction.
const PAUSE: Duration = Duration::from_millis(100);

const ROUNDS: usize = or_few(100, 2);

pub(crate) async fn run() -> Result<()> {
    println!("## A free lock beside a transaction, after a pause of 0.1 s (`free`)\n");
    let emulator = Emulator::start().await.map_err(failed)?;
    let store = SpannerStore::connect(&emulator.url()).await?;
    store.prepare().await?;
    let (locks, plain) = (Locker::new(store), Plain::new(&emulator).await?);
    let (mut transactions, mut free) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let id = LeaseId::mint()?.to_string();
        tokio::time::sleep(PAUSE).await;
        let begun = now();
        plain.transact("job", &id, true).await?;
        transactions.push(now() - begun);
        plain.transact("job", &id, false).await?;
        tokio::time::sleep(PAUSE).await;
        let begun = now();
        let guard = locks.lock("job").ttl(TTL).wait(Wait::No).await?;
        free.push(now() - begun);
        guard.release().await?;
    }
    println!("| | p50, µs | p90 | p50 as a multiple of the first |");
    println!("|---|---|---|---|");
    let first = percentile(&mut transactions, 50);
    for (name, times) in [
        ("a transaction of the driver, on the rows of the store", &mut transactions),
        ("a free lock of `Locker`", &mut free),
    ] {
        let (half, most) = (percentile(times, 50), percentile(times, 90));
        println!("| {name} | {} | {} | {:.2} |", micros(half), micros(most), ratio(half, first));
    }
    println!();
    Ok(())
}
