//! Renewal of many leases by one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::{MongodbConfig, Result};
use leasehold_mongodb::mongodb::Client;
use leasehold_mongodb::mongodb::event::EventHandler;
use leasehold_mongodb::mongodb::event::command::CommandEvent;
use leasehold_testkit::mongodb::DATABASE;
use leasehold_testkit::mongodb::replica_set::ReplicaSet;

use super::{prepared, raw, refused};
use crate::renewal::{COLUMNS, Held, LEASES, ROUNDS, pair_after_pair};

/// Counts what a round of renewals sends, and how it affects others.
pub(crate) async fn run(set: &ReplicaSet) -> Result<()> {
    println!("## Renewal of {LEASES} leases\n");
    println!(
        "One `Locker`, leases of 30 s, which it renews by itself. An exchange is everything sent before an answer \
         arrives; a proxy counts them. \"others\": acquires and releases of another key by another client during the \
         round.\n"
    );
    println!("| round | commands | {COLUMNS}");
    println!("|---|---|---|---|---|---|");
    let other = prepared(&set.url()).await?;
    let address = ([127, 0, 0, 1], set.nodes[0].port()).into();
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    let mut held = Held::open(address, async move |proxy| {
        // What the driver asks each connection, and the server at intervals.
        proxy.ignore(|sent| sent.windows(12).any(|part| part == b"backpressure"));
        let mut options = raw::options_of(&proxy.address().to_string()).await?;
        options.command_event_handler = Some(EventHandler::callback(move |event| {
            if matches!(event, CommandEvent::Started(_)) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }));
        let client = Client::with_options(options).map_err(refused)?;
        MongodbConfig::database(&client.database(DATABASE), client.clone()).connect().await
    })
    .await?;
    for round in 1..=ROUNDS {
        let before = sent.load(Ordering::Relaxed);
        let cells = held.round(|samples| pair_after_pair(other.clone(), samples)).await;
        println!("| {round} | {} | {cells}", sent.load(Ordering::Relaxed) - before);
    }
    println!();
    held.check()
}
