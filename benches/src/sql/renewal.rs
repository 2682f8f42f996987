//! Renewal of many leases by one process.

use leasehold::Result;

use super::Server;
use crate::renewal::{COLUMNS, Held, LEASES, ROUNDS, pair_after_pair};

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
    let mut held =
        Held::open(address, async |proxy| server.store_at(proxy.address().port(), 4).await).await?;
    let other = server.store_at(server.port(), 2).await?;
    for round in 1..=ROUNDS {
        let cells = held.round(|samples| pair_after_pair(other.clone(), samples)).await;
        println!("| {round} | {cells}");
    }
    println!();
    held.check()
}
