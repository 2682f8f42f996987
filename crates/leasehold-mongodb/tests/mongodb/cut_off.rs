//! A primary that was deposed and does not know it: the others have elected another, which it does not reach.

use std::time::Duration;

use leasehold_core::{Effect, ErrorKind, Mode, RenewOutcome, Store as _, Ttl};
use leasehold_mongodb::mongodb::bson::{Document, doc};
use leasehold_mongodb::{MongodbConfig, MongodbStore};
use leasehold_testkit::mongodb::replica_set::{ReplicaSet, SetOptions};
use leasehold_testkit::mongodb::{DATABASE, Server};
use leasehold_testkit::requests::{acquire, granted, id, is_renewed, refused, renew};
use leasehold_testkit::{LONG, SECOND, fails_within, until};

/// A replica set whose first server can be cut off, and a store that knows only that one, with a short time limit.
async fn start() -> (ReplicaSet, MongodbStore) {
    let options = SetOptions { can_be_cut_off: true, ..SetOptions::default() };
    let set = ReplicaSet::start_with(options).await.unwrap();
    let old = connect(&set.nodes[0], SECOND).await;
    old.prepare().await.unwrap();
    (set, old)
}

async fn connect(server: &Server, timeout: Duration) -> MongodbStore {
    // A command that waits for a change of the topology has no end while the clock stands still.
    let options = "directConnection=true&serverMonitoringMode=poll&skew=0s";
    let url = format!("{}?{options}&timeout={}ms", server.url(), timeout.as_millis());
    MongodbConfig::parse(&url).unwrap().connect().await.unwrap()
}

/// Who holds a key exclusively, as this server has it.
async fn holder(server: &Server, key: &str) -> Option<String> {
    let find = doc! { "find": "locks", "filter": { "resource": key }, "limit": 1 };
    let found = server.command(DATABASE, find).await.ok()?;
    let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let lock = found.first()?.as_document().unwrap().get_document("exclusive").unwrap();
    lock.get_bool("acquired").unwrap().then(|| lock.get_str("lockId").unwrap().to_owned())
}

async fn is_primary(server: &Server) -> bool {
    server.hello().await.unwrap().get_bool("isWritablePrimary").unwrap()
}

/// How often it has rolled back.
async fn rolled_back(server: &Server) -> i32 {
    let reply: Document = server.command("admin", doc! { "replSetGetRBID": 1 }).await.unwrap();
    reply.get_i32("rbid").unwrap()
}

#[tokio::test]
async fn a_lease_that_only_the_successor_has_is_not_lost() {
    let (set, old) = start().await;
    let new = connect(set.cut_off().await.unwrap(), LONG).await;
    granted(new.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    assert!(is_primary(&set.nodes[0]).await);
    assert_eq!(holder(&set.nodes[0], "k").await, None);
    let renewal = renew("k", "a", Mode::Exclusive, Ttl::new(LONG).unwrap());
    let error = match old.renew(&renewal).await {
        Err(error) => error,
        Ok(reply) => match reply.leases.into_iter().next() {
            Some(RenewOutcome::Failed(error)) => error,
            other => panic!("the deposed primary decides: {other:?}"),
        },
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(is_primary(&set.nodes[0]).await);
    is_renewed(&new, "k", "a", Mode::Exclusive).await;
}

#[tokio::test]
async fn what_is_rolled_back_was_not_granted() {
    let (set, old) = start().await;
    granted(old.acquire(&acquire("before", "a", Mode::Exclusive)).await);
    let new = connect(set.cut_off().await.unwrap(), LONG).await;
    let error = fails_within(SECOND, old.acquire(&acquire("k", "a", Mode::Exclusive))).await;
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
    let [first, second] = ["a", "b"].map(|name| Some(id(name).to_string()));
    assert_eq!(holder(&set.nodes[0], "k").await, first);
    granted(new.acquire(&acquire("k", "b", Mode::Exclusive)).await);
    let before = rolled_back(&set.nodes[0]).await;
    set.rejoin().await.unwrap();
    until(async || holder(&set.nodes[0], "k").await == second).await;
    assert_eq!(rolled_back(&set.nodes[0]).await, before + 1);
    // What a majority had is still there.
    assert_eq!(holder(&set.nodes[0], "before").await, first);
    is_renewed(&new, "before", "a", Mode::Exclusive).await;
    refused(new.acquire(&acquire("before", "b", Mode::Exclusive)).await);
}
