//! How large the tables grow.

use leasehold::store::Store;
use leasehold::{Key, Result};

use super::Server;
use crate::measure::or_few;
use crate::subjects::through_store;

/// Acquires and releases of one key.
const PAIRS: usize = or_few(1_000_000, 100);

pub(crate) async fn run(server: &impl Server) -> Result<()> {
    println!("## Size after {PAIRS} acquires of one key\n");
    println!("The tables with their indexes, in KiB. This server does not wait for the disk.\n");
    println!("| acquires | KiB |");
    println!("|---|---|");
    let store = server.store_at(server.port(), 4).await?;
    store.prepare().await?;
    let key = Key::new("one")?;
    for tenth in 0..=10 {
        if tenth > 0 {
            for _ in 0..PAIRS / 10 {
                through_store(&store, &key).await?;
            }
        }
        println!("| {} | {} |", PAIRS / 10 * tenth, server.size().await / 1024);
    }
    println!();
    Ok(())
}
