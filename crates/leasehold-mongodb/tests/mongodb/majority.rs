//! Writes whose majority is late: beyond the patience of a request, and within the time limit of its operation.

use std::pin::pin;
use std::time::Duration;

use leasehold_core::{
    Effect, ErrorKind, Granted, Mode, ReleaseEntry, ReleaseOutcome, ReleaseRequest, RenewOutcome,
    Store as _, Ttl,
};
use leasehold_mongodb::mongodb::bson::{DateTime, Document, doc};
use leasehold_mongodb::{MongodbConfig, MongodbStore};
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use leasehold_testkit::mongodb::{DATABASE, Server};
use leasehold_testkit::requests::{
    acquire, failed, granted, id, key, refused, release, released, renew, renewed,
};
use leasehold_testkit::{LONG, in_time, until};

/// Of an operation; its patience is a tenth of it. A primary steps down after two seconds without the others.
const LIMIT: Duration = Duration::from_secs(3);

struct Late {
    set: ReplicaSet,
    store: MongodbStore,
}

/// The exclusive lock of a key, as this server has it.
async fn lock(server: &Server, key: &str) -> Option<Document> {
    let find = doc! { "find": "locks", "filter": { "resource": key }, "limit": 1 };
    let found = server.command(DATABASE, find).await.unwrap();
    let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let lock = found.first()?.as_document().unwrap().get_document("exclusive").unwrap();
    lock.get_bool("acquired").unwrap().then(|| lock.clone())
}

async fn renewed_at(server: &Server, key: &str) -> Option<DateTime> {
    lock(server, key).await.and_then(|lock| lock.get_datetime("renewedAt").ok().copied())
}

/// The commands of this name that the server has had.
async fn commands(server: &Server, name: &str) -> i64 {
    let status = server.command("admin", doc! { "serverStatus": 1 }).await.unwrap();
    let commands = status.get_document("metrics").unwrap().get_document("commands").unwrap();
    commands.get_document(name).unwrap().get_i64("total").unwrap()
}

/// The updates of single documents.
async fn updates(server: &Server) -> i64 {
    commands(server, "findAndModify").await
}

impl Late {
    async fn start() -> Self {
        let set = ReplicaSet::start(3).await.unwrap();
        let store = connect(&set).await;
        store.prepare().await.unwrap();
        // Its connection is there.
        granted(store.acquire(&acquire("first", "a", Mode::Exclusive)).await);
        Self { set, store }
    }

    fn primary(&self) -> &Server {
        &self.set.nodes[0]
    }

    /// Carries a request out while nobody follows the primary, until `event`.
    async fn until<T>(
        &self,
        request: impl Future<Output = T>,
        event: impl Future<Output = ()>,
    ) -> T {
        let others = &self.set.nodes[1..];
        others.iter().for_each(|node| node.pause());
        let mut request = pin!(in_time(request));
        let early = tokio::select! {
            outcome = request.as_mut() => Some(outcome),
            () = event => None,
        };
        others.iter().for_each(|node| node.resume());
        match early {
            Some(outcome) => outcome,
            None => request.await,
        }
    }

    /// An acquire whose majority is there once it has been sent again, after so many updates.
    async fn acquired_late(&self, key: &str, tries: i64) -> Granted {
        let before = updates(self.primary()).await;
        let again = until(async || updates(self.primary()).await > before + tries);
        let request = acquire(key, "a", Mode::Exclusive);
        granted(self.until(self.store.acquire(&request), again).await)
    }
}

async fn connect(set: &ReplicaSet) -> MongodbStore {
    let url = format!("{}&timeout={}ms", set.url(), LIMIT.as_millis());
    MongodbConfig::parse(&url).unwrap().connect().await.unwrap()
}

#[tokio::test]
async fn a_grant_that_a_second_try_finds_is_fresh() {
    let late = Late::start().await;
    let taken = late.acquired_late("k", 1).await;
    assert!(taken.fresh, "{taken:?}");
    let at = lock(late.primary(), "k").await.unwrap().get_i64("token").unwrap();
    assert_eq!(taken.token.map(i64::from), Some(at));
    refused(late.store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
    let again = granted(late.store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    assert!(!again.fresh && again.token == taken.token, "{taken:?}, {again:?}");
}

/// An acquire of a lease that was granted before it is not, however long it takes.
#[tokio::test]
async fn an_earlier_grant_that_a_second_try_finds_is_not_fresh() {
    let late = Late::start().await;
    let taken = granted(late.store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let locks = late.primary().client().unwrap().database(DATABASE).collection::<Document>("locks");
    let earlier = doc! { "$set": { "exclusive.createdAt": DateTime::from_millis(1) } };
    locks.update_one(doc! { "resource": "k" }, earlier).await.unwrap();
    // The first try takes no free key, and continues the lease.
    let again = late.acquired_late("k", 2).await;
    assert!(!again.fresh && again.token == taken.token, "{taken:?}, {again:?}");
}

/// Sent again, it would not find out whether it ended the lease: it has more patience.
#[tokio::test]
async fn a_release_whose_majority_is_late_succeeds() {
    let late = Late::start().await;
    let other = connect(&late.set).await;
    for key in ["k", "l"] {
        granted(other.acquire(&acquire(key, "a", Mode::Exclusive)).await);
    }
    // A renewal that is sent after it loses its patience first.
    let again = async {
        let mut first = None;
        until(async || {
            first = renewed_at(late.primary(), "l").await;
            first.is_some()
        })
        .await;
        until(async || renewed_at(late.primary(), "l").await > first).await;
    };
    let requests = async {
        let release = release("k", "a");
        let renewal = renew("l", "a", Mode::Exclusive, Ttl::new(2 * LONG).unwrap());
        let renewing = async {
            until(async || lock(late.primary(), "k").await.is_none()).await;
            renewed(&other, &renewal).await
        };
        tokio::join!(released(&late.store, &release), renewing)
    };
    let (released, renewed) = late.until(requests, again).await;
    assert!(matches!(renewed, Ok(RenewOutcome::Held(_))), "{renewed:?}");
    assert!(matches!(released, Ok(ReleaseOutcome::Released)), "{released:?}");
}

#[tokio::test]
async fn a_release_whose_majority_is_too_late_is_not_sent_again() {
    let late = Late::start().await;
    granted(late.store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let before = updates(late.primary()).await;
    let again = until(async || updates(late.primary()).await > before + 1);
    let request = release("k", "a");
    let outcome = late.until(released(&late.store, &request), again).await;
    failed(outcome, ErrorKind::Unavailable, Effect::Unknown, "");
}

/// The batch is looked at only when a majority has it.
#[tokio::test]
async fn releases_whose_majority_is_late_succeed_together() {
    let late = Late::start().await;
    for key in ["k", "l"] {
        granted(late.store.acquire(&acquire(key, "a", Mode::Exclusive)).await);
    }
    let before = commands(late.primary(), "update").await;
    // The batch, and a write that waits for it.
    let waiting = until(async || commands(late.primary(), "update").await >= before + 2);
    let entries = ["k", "l"].map(|name| ReleaseEntry::new(id("a"), [key(name)]));
    let request = ReleaseRequest::new(entries.to_vec());
    let outcome = late.until(late.store.release(&request), waiting).await.unwrap().leases;
    let are_released = |one: &ReleaseOutcome| matches!(one, ReleaseOutcome::Released);
    assert!(outcome.len() == 2 && outcome.iter().all(are_released), "{outcome:?}");
}
