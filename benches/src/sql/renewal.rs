//! Renewal of many leases by one process.

use std::time::Duration;

use leasehold::{Guard, Locker, Result, Store};
use leasehold_conformance::Proxy;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Server;
use crate::measure::{micros, now, percentile};
use crate::redis::renewal::{LEASES, ROUNDS, hold, renewed};
use crate::subjects::through_store;

/// Counts what a round of renewals sends, and how it affects others.
pub(crate) async fn run(server: &impl Server) -> Result<()> {
    println!("## Renewal of {LEASES} leases\n");
    println!(
        "One `Locker`, leases of 30 s, which it renews by itself. An exchange is everything sent before an answer \
         arrives; a proxy counts them. \"others\": acquires and releases of another key by another client during the \
         round.\n"
    );
    println!(
        "| round | exchanges | from the first to the last lease, ms | others p50, µs | others worst, µs |"
    );
    println!("|---|---|---|---|---|");
    let address = ([127, 0, 0, 1], server.port()).into();
    let proxy = Proxy::before(address).await.map_err(super::failed)?;
    let locks = Locker::new(server.store_at(proxy.address().port(), 4).await?);
    let guards = hold(&locks).await?;
    let mut events: Vec<_> = guards.iter().map(Guard::events).collect();
    let other = server.store_at(server.port(), 2).await?;
    for round in 1..=ROUNDS {
        let exchanges = proxy.exchanges();
        let (pairs, mut said) = mpsc::unbounded_channel();
        let mut others = JoinSet::new();
        others.spawn(pair_after_pair(other.clone(), pairs));
        let (first, last) = renewed(&mut events).await;
        others.shutdown().await;
        let mut during = Vec::new();
        while let Some((start, took)) = said.recv().await {
            if start + took >= first && start <= last {
                during.push(took);
            }
        }
        println!(
            "| {round} | {} | {:.0} | {} | {} |",
            proxy.exchanges() - exchanges,
            (last - first).as_secs_f64() * 1e3,
            micros(percentile(&mut during, 50)),
            micros(percentile(&mut during, 100)),
        );
    }
    for guard in &guards {
        guard.check()?;
    }
    println!();
    Ok(())
}

/// Acquires and releases a key, and says when each pair began and how long it took.
pub(crate) async fn pair_after_pair(
    store: impl Store,
    said: mpsc::UnboundedSender<(Duration, Duration)>,
) -> Result<()> {
    let key = leasehold::Key::new("another")?;
    loop {
        let start = now();
        through_store(&store, &key).await?;
        if said.send((start, now() - start)).is_err() {
            return Ok(());
        }
    }
}
