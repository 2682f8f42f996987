//! Removal of many expired leases beside live traffic.

use std::time::Duration;

use leasehold::Result;
use leasehold::inspect::Filter;
use leasehold::store::Store;
use leasehold_core::EvictRequest;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Server;
use crate::measure::{micros, now, or_few, percentile};
use crate::renewal::pair_after_pair;

/// Expired leases.
const LEASES: u32 = or_few(1_000_000, 1_000);

/// How long others are measured alone.
const ALONE: Duration = or_few(Duration::from_secs(10), Duration::from_millis(500));

pub(crate) async fn run(server: &impl Server) -> Result<()> {
    println!("## Purge of {LEASES} expired leases\n");
    println!(
        "By `evict` with its default limit, again and again. Others: acquires and releases of another key by another client.\n"
    );
    let store = server.store_at(server.port(), 4).await?;
    store.prepare().await?;
    server.fill(LEASES).await;
    println!("| others | pairs | p50, µs | p99, µs | worst, µs |");
    println!("|---|---|---|---|---|");
    let (pairs, mut samples) = mpsc::unbounded_channel();
    let mut others = JoinSet::new();
    others.spawn(pair_after_pair(server.store_at(server.port(), 2).await?, pairs));
    tokio::time::sleep(ALONE).await;
    row("alone", &mut samples);
    let start = now();
    let mut removed = 0;
    loop {
        let reply = store.evict(&EvictRequest::expired(Filter::default())).await?;
        removed += reply.removed.len();
        if !reply.more {
            break;
        }
    }
    let took = now() - start;
    row("during the purge", &mut samples);
    others.shutdown().await;
    println!("\n{removed} leases were removed in {:.0} s.\n", took.as_secs_f64());
    Ok(())
}

/// Of the samples since the last row.
fn row(when: &str, samples: &mut mpsc::UnboundedReceiver<(Duration, Duration)>) {
    let mut pairs = Vec::new();
    while let Ok((_, took)) = samples.try_recv() {
        pairs.push(took);
    }
    println!(
        "| {when} | {} | {} | {} | {} |",
        pairs.len(),
        micros(percentile(&mut pairs, 50)),
        micros(percentile(&mut pairs, 99)),
        micros(percentile(&mut pairs, 100))
    );
}
