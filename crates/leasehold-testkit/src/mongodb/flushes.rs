//! The journal of a server whose clock stands still.

use std::thread;
use std::time::Duration;

use leasehold_conformance::Result;
use mongodb::Client;
use mongodb::bson::doc;
use mongodb::options::ClientOptions;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::DATABASE;

/// Has a member of a replica set write its journal every so often, as it does by its clock while that moves.
///
/// A write that a majority shall have on disk asks for the journal to be written. Who else has it written at that moment may not
/// note how far it is now: then the write waits for the next time. It ends when this is dropped.
pub(super) struct Flushes {
    _end: oneshot::Sender<()>,
}

/// As often as by its clock.
const EVERY: Duration = Duration::from_millis(100);

impl Flushes {
    pub(super) fn start(server: ClientOptions) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel();
        // A replica set may outlive the runtime that started it.
        thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = ended => {}
                    _ = flush(server) => {}
                }
            });
        });
        Ok(Self { _end: end })
    }
}

async fn flush(server: ClientOptions) -> Result<()> {
    let database = Client::with_options(server)?.database(DATABASE);
    let updates = [doc! { "q": { "_id": 0 }, "u": { "$set": { "found": true } } }];
    let nothing = doc! { "update": "none", "updates": updates.to_vec(), "writeConcern": { "w": 1, "j": true } };
    loop {
        // It fails while the server does not run.
        drop(database.run_command(nothing.clone()).await);
        tokio::time::sleep(EVERY).await;
    }
}
