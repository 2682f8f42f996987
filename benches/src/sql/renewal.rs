//! Renewal of many leases by one process.

use leasehold::store::Store;
use leasehold::{Key, Result};

use super::Server;
use crate::measure::now;
use crate::renewal::{COLUMNS, Held, LEASES, ROUNDS, Samples};
use crate::subjects::through_store;

/// Counts what a round of renewals sends, and how it affects others.
pub(crate) async fn run(server: &impl Server) -> Result<()> {
    println!("## Renewal of {LEASES} leases\n");
    println!(
        "One `Locker`, leases of 30 s, which it renews by itself. An exchange is everything sent before an answer \
         arrives; a proxy counts them. \"others\": acquires and releases of another key by another client during the \
         round.\n"
    );
    println!("| round | {COLUMNS}");
    println!("|---|---|---|---|---|");
    let address = ([127, 0, 0, 1], server.port()).into();
    let mut held = Held::open(address, |proxy| server.store_at(proxy.port(), 4)).await?;
    let other = server.store_at(server.port(), 2).await?;
    for round in 1..=ROUNDS {
        let cells = held.round(|samples| pair_after_pair(other.clone(), samples)).await;
        println!("| {round} | {cells}");
    }
    println!();
    held.check()
}

/// Acquires and releases a key, and states when each pair began and how long it took.
pub(crate) async fn pair_after_pair(store: impl Store, samples: Samples) -> Result<()> {
    let key = Key::new("another")?;
    loop {
        let start = now();
        through_store(&store, &key).await?;
        if samples.send((start, now() - start)).is_err() {
            return Ok(());
        }
    }
}
