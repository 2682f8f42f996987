//! Renewal of many leases by one process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

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
        "One `Locker`, leases of 30 s, which it renews by itself. \"in sequence\": the longest chain of commands of which \
         each was sent after the answer to the one before, so that those in flight together are one. An exchange is \
         everything that is sent on one connection before an answer arrives; a proxy counts them. \"others\": acquires \
         and releases of another key by another client during the round.\n"
    );
    println!("| round | commands | in sequence | {COLUMNS}");
    println!("|---|---|---|---|---|---|---|");
    let other = prepared(&set.url()).await?;
    let address = ([127, 0, 0, 1], set.nodes[0].port()).into();
    let sent = Arc::new(Mutex::new(Sent::default()));
    let count = Arc::clone(&sent);
    let mut held = Held::open(address, async move |proxy| {
        // What the driver asks each connection, and the server at intervals.
        proxy.ignore(|sent| sent.windows(12).any(|part| part == b"backpressure"));
        let mut options = raw::options_of(&proxy.address().to_string()).await?;
        options.command_event_handler = Some(EventHandler::callback(move |event| {
            count.lock().unwrap_or_else(PoisonError::into_inner).note(&event);
        }));
        let client = Client::with_options(options).map_err(refused)?;
        MongodbConfig::database(&client.database(DATABASE), client.clone()).connect().await
    })
    .await?;
    for round in 1..=ROUNDS {
        *sent.lock().unwrap_or_else(PoisonError::into_inner) = Sent::default();
        let cells = held.round(|samples| pair_after_pair(other.clone(), samples)).await;
        let sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
        println!("| {round} | {} | {} | {cells}", sent.commands, sent.in_sequence);
    }
    println!();
    held.check()
}

/// Commands that were sent.
#[derive(Default)]
struct Sent {
    commands: usize,
    /// The longest chain of commands of which each was sent after the answer to the one before.
    in_sequence: usize,
    /// The places in their chains of those that are not answered.
    open: HashMap<i32, usize>,
}

impl Sent {
    fn note(&mut self, event: &CommandEvent) {
        let answered = match event {
            CommandEvent::Started(started) => {
                self.commands += 1;
                self.open.insert(started.request_id, self.in_sequence + 1);
                return;
            }
            CommandEvent::Succeeded(succeeded) => self.open.remove(&succeeded.request_id),
            CommandEvent::Failed(failed) => self.open.remove(&failed.request_id),
            _ => None,
        };
        self.in_sequence = self.in_sequence.max(answered.unwrap_or_default());
    }
}
