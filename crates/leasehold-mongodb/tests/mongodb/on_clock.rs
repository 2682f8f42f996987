//! A store on a replica set of one that reads a clock of the tests.

use std::time::Duration;

use leasehold_conformance::ServerClock;
use leasehold_core::Store as _;
use leasehold_mongodb::mongodb::bson::{Document, doc};
use leasehold_mongodb::mongodb::{ClientSession, Collection};
use leasehold_mongodb::{MongodbConfig, MongodbStore};
use leasehold_testkit::mongodb::DATABASE;
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use leasehold_testkit::until;
use tempfile::TempDir;

pub(crate) struct OnClock {
    pub(crate) store: MongodbStore,
    pub(crate) set: ReplicaSet,
    pub(crate) collection: Collection<Document>,
    _directory: TempDir,
}

impl OnClock {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = ServerClock::new(directory.path().join("time")).unwrap();
        let set = ReplicaSet::start_on(Some(clock), 1).await.unwrap();
        let store = connect(&set.nodes[0].address(), "1s").await;
        let collection = set.nodes[0].client().unwrap().database(DATABASE).collection("locks");
        store.prepare().await.unwrap();
        Self { store, set, collection, _directory: directory }
    }

    pub(crate) fn passes(&self, millis: u64) {
        self.set.advance(Duration::from_millis(millis)).unwrap();
    }

    /// A transaction of another program that has written an unrelated field of this key's document.
    pub(crate) async fn hold(&self, resource: &str) -> ClientSession {
        let mut session = self.collection.client().start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        let of_key = doc! { "resource": resource };
        let update = doc! { "$set": { "unrelated": 1 } };
        let updated = self.collection.update_one(of_key, update).session(&mut session).await;
        assert_eq!(updated.unwrap().matched_count, 1);
        session
    }

    /// Waits until a command about one key waits for the write of another transaction.
    pub(crate) async fn until_it_waits(&self) {
        let waiting = doc! { "currentOp": 1, "ns": "test.locks", "writeConflicts": { "$gte": 1 } };
        until(async || {
            let found = self.command(waiting.clone()).await;
            !found.get_array("inprog").unwrap().is_empty()
        })
        .await;
    }

    /// How many transactions were aborted.
    pub(crate) async fn aborted(&self) -> i64 {
        let status = self.command(doc! { "serverStatus": 1 }).await;
        status.get_document("transactions").unwrap().get_i64("totalAborted").unwrap()
    }

    async fn command(&self, command: Document) -> Document {
        self.set.nodes[0].command("admin", command).await.unwrap()
    }
}

/// A store behind this address, with a skew.
pub(crate) async fn connect(address: &str, skew: &str) -> MongodbStore {
    // A command that waits for a change of the topology has no end while the clock stands still.
    let options =
        "directConnection=true&serverMonitoringMode=poll&heartbeatFrequencyMS=1000&timeout=30s";
    let url = format!("mongodb://{address}/{DATABASE}?{options}&skew={skew}");
    MongodbConfig::parse(&url).unwrap().connect().await.unwrap()
}
