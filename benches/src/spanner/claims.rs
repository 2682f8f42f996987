//! What many claim rows of a lock cost.

use leasehold::inspect::Filter;
use leasehold::store::Store as _;
use leasehold::{Key, Result, SpindleStore};
use leasehold_core::EvictRequest;
use leasehold_testkit::spanner::Emulator;

use super::failed;
use crate::measure::{micros, now, or_few};
use crate::subjects::through_store;

const CLAIMS: usize = or_few(100_000, 100);

/// At most so many rows in a statement that adds them.
const AT_ONCE: usize = or_few(10_000, 50);

pub(crate) async fn run() -> Result<()> {
    println!("## {CLAIMS} claim rows of one lock (`claims`)\n");
    let emulator = Emulator::start().await.map_err(failed)?;
    let url = emulator.spindle_url().replace("=1s", "=60s") + "&timeout=60s";
    time(&url, "without them").await?;
    let old = "TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 2 DAY)";
    for part in 0..CLAIMS / AT_ONCE {
        let (from, to) = (part * AT_ONCE, (part + 1) * AT_ONCE - 1);
        emulator
            .write(format!(
                "INSERT locktable (name, heartbeat) SELECT CONCAT('job_', CAST(n AS STRING)), {old} \
                 FROM UNNEST(GENERATE_ARRAY({from}, {to})) AS n"
            ))
            .await
            .map_err(failed)?;
    }
    let store = time(&url, "with them").await?;
    let (begun, mut calls) = (now(), 0);
    while store.evict(&EvictRequest::expired(Filter::default())).await?.more {
        calls += 1;
    }
    let took = (now() - begun).as_secs_f64();
    println!(
        "- a purge of them all: {took:.1} s, in {} calls, with transactions of 1,000 rows",
        calls + 1
    );
    time(&url, "after it").await?;
    println!();
    Ok(())
}

async fn time(url: &str, what: &str) -> Result<SpindleStore> {
    let (store, key) = (SpindleStore::connect(url).await?, Key::new("job")?);
    for way in ["the first pair of a process", "the next one"] {
        let begun = now();
        through_store(&store, &key).await?;
        println!("- {way}, {what}: {} µs", micros(now() - begun));
    }
    Ok(store)
}
