//! Collections that do not keep a key to one document, and those that are none.

use leasehold_core::{AcquireRequest, Claim, Claims, Effect, ErrorKind, Mode, Store as _, Ttl};
use leasehold_mongodb::MongodbStore;
use leasehold_mongodb::mongodb::Database;
use leasehold_mongodb::mongodb::bson::{Document, doc};
use leasehold_testkit::LONG;
use leasehold_testkit::mongodb::DATABASE;
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use leasehold_testkit::requests::{
    acquire, evict, failed, granted, id, is_renewed, key, release, released, renew, renewed,
};

struct Setup {
    set: ReplicaSet,
    database: Database,
}

impl Setup {
    async fn new() -> Self {
        let set = ReplicaSet::start(1).await.unwrap();
        let database = set.nodes[0].client().unwrap().database(DATABASE);
        Self { set, database }
    }

    async fn run(&self, command: Document) {
        self.database.run_command(command).await.unwrap();
    }

    async fn store(&self, collection: &str) -> MongodbStore {
        let url = format!("{}&collection={collection}", self.set.url());
        MongodbStore::connect(&url).await.unwrap()
    }

    async fn create_index(&self, collection: &str, index: Document) {
        self.run(doc! { "createIndexes": collection, "indexes": [index] }).await;
    }
}

fn is_incompatible<T: std::fmt::Debug>(outcome: leasehold_core::Result<T>, fragment: &str) {
    failed(outcome, ErrorKind::Incompatible, Effect::NotApplied, fragment);
}

/// No request acts, and each names the command that creates the index.
async fn all_name_the_command(store: &MongodbStore) {
    let init = "leasehold init";
    is_incompatible(store.acquire(&acquire("k", "b", Mode::Exclusive)).await, init);
    let renewal = renew("k", "a", Mode::Exclusive, Ttl::new(LONG).unwrap());
    is_incompatible(renewed(store, &renewal).await, init);
    is_incompatible(released(store, &release("k", "a")).await, init);
    is_incompatible(store.check().await, init);
}

#[tokio::test]
async fn a_collection_that_is_not_there_is_named_and_created_by_prepare() {
    let setup = Setup::new().await;
    let store = setup.store("none").await;
    is_incompatible(store.check().await, "leasehold init");
    let acquired = store.acquire(&acquire("k", "b", Mode::Exclusive)).await;
    is_incompatible(acquired, "leasehold init");
    store.prepare().await.unwrap();
    granted(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
}

#[tokio::test]
async fn without_the_index_nobody_is_granted_anything() {
    let setup = Setup::new().await;
    setup.run(doc! { "create": "bare" }).await;
    all_name_the_command(&setup.store("bare").await).await;
    let store = setup.store("dropped").await;
    store.prepare().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    setup.run(doc! { "dropIndexes": "dropped", "index": "resource_1" }).await;
    all_name_the_command(&store).await;
    is_incompatible(store.evict(&evict("k", "a")).await, "leasehold init");
    let pair = ["k", "l"].map(|name| Claim { key: key(name), mode: Mode::Exclusive });
    let claims = Claims::new(pair).unwrap();
    let both = AcquireRequest::new(id("c"), claims, Ttl::new(LONG).unwrap());
    setup.run(doc! { "delete": "dropped", "deletes": [{ "q": {}, "limit": 0 }] }).await;
    is_incompatible(store.acquire(&both).await, "leasehold init");
    store.prepare().await.unwrap();
    granted(store.acquire(&both).await);
}

#[tokio::test]
async fn a_collection_that_is_dropped_is_an_error_until_it_is_there_again() {
    let setup = Setup::new().await;
    let store = setup.store("locks").await;
    store.prepare().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    setup.run(doc! { "drop": "locks" }).await;
    is_incompatible(store.acquire(&acquire("k", "b", Mode::Exclusive)).await, "leasehold init");
    is_incompatible(store.check().await, "leasehold init");
    store.prepare().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    is_renewed(&store, "k", "a", Mode::Exclusive).await;
}

#[tokio::test]
async fn another_index_of_that_name_is_refused() {
    let setup = Setup::new().await;
    let by_resource = doc! { "resource": 1 };
    let others = [
        ("plain", doc! { "key": &by_resource }),
        ("of_two", doc! { "key": { "resource": 1, "other": 1 }, "unique": true }),
        ("of_another", doc! { "key": { "other": 1 }, "unique": true }),
        (
            "partial",
            doc! { "key": &by_resource, "unique": true, "partialFilterExpression": { "counter": { "$gt": 0 } } },
        ),
        (
            "collated",
            doc! { "key": &by_resource, "unique": true, "collation": { "locale": "en", "strength": 1 } },
        ),
    ];
    for (collection, mut index) in others {
        index.insert("name", "resource_1");
        setup.create_index(collection, index).await;
        let store = setup.store(collection).await;
        let fragment = format!("db.{collection}.dropIndex(\"resource_1\")");
        is_incompatible(store.check().await, &fragment);
        is_incompatible(store.prepare().await, &fragment);
    }
}

#[tokio::test]
async fn what_is_no_plain_collection_is_refused() {
    let setup = Setup::new().await;
    setup.run(doc! { "create": "seen", "viewOn": "locks", "pipeline": [] }).await;
    setup.run(doc! { "create": "capped", "capped": true, "size": 4_096 }).await;
    setup.run(doc! { "create": "series", "timeseries": { "timeField": "at" } }).await;
    let kinds = [
        ("seen", "the collection seen is a view; give another name"),
        ("capped", "the collection capped is capped; give another name"),
        ("series", "the collection series is of another type, such as a time series; give another"),
    ];
    for (collection, words) in kinds {
        let store = setup.store(collection).await;
        is_incompatible(store.check().await, words);
        is_incompatible(store.prepare().await, words);
        let acquired = store.acquire(&acquire("k", "a", Mode::Exclusive)).await;
        is_incompatible(acquired, "");
    }
}
