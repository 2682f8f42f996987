//! A primary that was deposed and does not know it: the others have elected another, which it does not reach.

use std::cell::Cell;
use std::time::Duration;

use leasehold_conformance::{Fault, Proxy};
use leasehold_core::{Effect, ErrorKind, Filter, ListRequest, Mode, RenewOutcome, Store as _, Ttl};
use leasehold_mongodb::mongodb::bson::{Document, doc};
use leasehold_mongodb::{MongodbConfig, MongodbStore};
use leasehold_testkit::mongodb::replica_set::{ReplicaSet, SetOptions};
use leasehold_testkit::mongodb::{DATABASE, Server};
use leasehold_testkit::requests::{
    acquire, failed, granted, id, is_renewed, refused, release, released, renew, renewed,
};
use leasehold_testkit::{LONG, fails_within, in_time, until};

/// The time limit of the store that knows only the deposed primary.
const LIMIT: Duration = Duration::from_secs(3);

/// A replica set whose first server can be cut off, and a store that knows only that one, with a short time limit.
async fn start() -> (ReplicaSet, MongodbStore) {
    let options = SetOptions { can_be_cut_off: true, ..SetOptions::default() };
    let set = ReplicaSet::start_with(options).await.unwrap();
    connect(&set.nodes[0], LONG).await.prepare().await.unwrap();
    let old = connect(&set.nodes[0], LIMIT).await;
    (set, old)
}

async fn connect(server: &Server, timeout: Duration) -> MongodbStore {
    connect_to(&server.address(), timeout).await
}

async fn connect_to(address: &str, timeout: Duration) -> MongodbStore {
    // A command that waits for a change of the topology has no end while the clock stands still.
    let options = "directConnection=true&serverMonitoringMode=poll&heartbeatFrequencyMS=500";
    let url = format!("mongodb://{address}/{DATABASE}?{options}&skew=0s");
    let url = format!("{url}&timeout={}ms", timeout.as_millis());
    MongodbConfig::parse(&url).unwrap().connect().await.unwrap()
}

/// The exclusive lock of a key, as this server has it.
async fn lock(server: &Server, key: &str) -> Option<Document> {
    let find = doc! { "find": "locks", "filter": { "resource": key }, "limit": 1 };
    let found = server.command(DATABASE, find).await.ok()?;
    let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let lock = found.first()?.as_document().unwrap().get_document("exclusive").unwrap();
    lock.get_bool("acquired").unwrap().then(|| lock.clone())
}

/// Who holds it.
async fn holder(server: &Server, key: &str) -> Option<String> {
    lock(server, key).await.map(|lock| lock.get_str("lockId").unwrap().to_owned())
}

/// Whether its lease was renewed.
async fn was_renewed(server: &Server, key: &str) -> bool {
    lock(server, key).await.is_some_and(|lock| lock.get_datetime("renewedAt").is_ok())
}

async fn is_primary(server: &Server) -> bool {
    server.hello().await.unwrap().get_bool("isWritablePrimary").unwrap()
}

/// Whether a store can list its leases.
async fn is_listed(store: &MongodbStore) -> bool {
    store.list(&ListRequest::new(Filter::default())).await.is_ok()
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
    let error = fails_within(LIMIT, old.acquire(&acquire("k", "a", Mode::Exclusive))).await;
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

/// A store behind an address that moves to the new primary while a request waits on the deposed one, as the driver of a whole
/// replica set does when it learns of an election.
struct Moving {
    set: ReplicaSet,
    proxy: Proxy,
    store: MongodbStore,
    new: MongodbStore,
}

/// How long a request waits for a majority until it loses its patience.
const PATIENCE: Duration = Duration::from_secs(1);

impl Moving {
    /// With this limit for its operations.
    async fn start(limit: Duration) -> Self {
        let (set, _) = start().await;
        let patient = connect(&set.nodes[0], LONG).await;
        granted(patient.acquire(&acquire("before", "a", Mode::Exclusive)).await);
        let proxy = Proxy::before(set.nodes[0].address().parse().unwrap()).await.unwrap();
        proxy.ignore(|sent| sent.windows(12).any(|part| part == b"backpressure"));
        let store = connect_to(&proxy.address().to_string(), limit).await;
        // Its connection is there.
        until(async || is_listed(&store).await).await;
        let new = connect(set.cut_off().await.unwrap(), LONG).await;
        Self { set, proxy, store, new }
    }

    fn old(&self) -> &Server {
        &self.set.nodes[0]
    }

    /// Sends a request to the deposed primary, which loses its patience after it has carried it out and the store has moved.
    async fn carry_out<T>(
        &self,
        request: impl Future<Output = T>,
        is_carried_out: impl AsyncFnMut() -> bool,
    ) -> T {
        let is_done = Cell::new(false);
        let moving = async {
            until(is_carried_out).await;
            let new = self.set.primary().await;
            self.proxy.lead_to(new.address().parse().unwrap());
            let before = self.proxy.accepted();
            // The driver's own connection is cut, and it sends nothing more on the other.
            self.proxy.set_present(Fault::CutBefore);
            until(async || self.proxy.accepted() > before).await;
            // The store has another connection.
            until(async || is_listed(&self.store).await).await;
            // Nobody tells the deposed one that it is deposed before it answers.
            let others = &self.set.nodes[1..];
            others.iter().for_each(|node| node.pause());
            let before = self.proxy.exchanges();
            self.set.advance_cut_off(PATIENCE).unwrap();
            until(async || self.proxy.exchanges() > before || is_done.get()).await;
            others.iter().for_each(|node| node.resume());
        };
        let request = async {
            let outcome = request.await;
            is_done.set(true);
            outcome
        };
        in_time(async { tokio::join!(request, moving) }).await.0
    }
}

#[tokio::test]
async fn a_grant_that_the_successor_lacks_is_sent_again() {
    let moving = Moving::start(10 * PATIENCE).await;
    let request = acquire("k", "a", Mode::Exclusive);
    let is_there = async || holder(moving.old(), "k").await.is_some();
    let acquired = moving.carry_out(moving.store.acquire(&request), is_there).await;
    assert!(granted(acquired).fresh);
    refused(moving.new.acquire(&acquire("k", "b", Mode::Exclusive)).await);
    moving.set.rejoin().await.unwrap();
    is_renewed(&moving.new, "k", "a", Mode::Exclusive).await;
}

#[tokio::test]
async fn a_renewal_that_the_successor_lacks_is_sent_again() {
    let moving = Moving::start(10 * PATIENCE).await;
    let renewal = renew("before", "a", Mode::Exclusive, Ttl::new(2 * LONG).unwrap());
    let is_there = async || was_renewed(moving.old(), "before").await;
    let renewal = moving.carry_out(renewed(&moving.store, &renewal), is_there).await;
    assert!(matches!(renewal, Ok(RenewOutcome::Held(_))), "{renewal:?}");
    assert!(was_renewed(moving.set.primary().await, "before").await);
}

#[tokio::test]
async fn a_release_that_the_successor_lacks_has_an_unknown_effect() {
    // It has more patience.
    let moving = Moving::start(2 * PATIENCE).await;
    let release = release("before", "a");
    let is_gone = async || holder(moving.old(), "before").await.is_none();
    let released = released(&moving.store, &release);
    let outcome = moving.carry_out(released, is_gone).await;
    failed(outcome, ErrorKind::Unavailable, Effect::Unknown, "");
    is_renewed(&moving.new, "before", "a", Mode::Exclusive).await;
}
