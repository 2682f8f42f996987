//! How failures of the server are reported.

use leasehold_core::{
    AcquireRequest, Claims, Effect, Error, ErrorKind, Filter, Key, LeaseId, Level, ListRequest,
    Mode, Store as _, Ttl,
};
use leasehold_mongodb::MongodbStore;
use leasehold_mongodb::mongodb::bson::{Bson, Document, doc};
use leasehold_testkit::mongodb::{DATABASE, Server};

use ErrorKind::{Denied, Incompatible, Unavailable, Unexpected};

fn request(key: &str) -> AcquireRequest {
    let claims = Claims::one(Key::new(key).unwrap(), Mode::Exclusive);
    let id = LeaseId::foreign(b"a").unwrap();
    AcquireRequest::new(id, claims, Ttl::new(std::time::Duration::from_secs(60)).unwrap())
}

async fn store(server: &Server) -> MongodbStore {
    MongodbStore::connect(&server.url()).await.unwrap()
}

async fn command(server: &Server, command: Document) {
    server.command(DATABASE, command).await.unwrap();
}

#[track_caller]
fn assert_error(error: &Error, kind: ErrorKind, effect: Effect, part: &str) {
    assert_eq!((error.kind(), error.effect()), (kind, effect), "{error}");
    assert!(error.to_string().contains(part), "{error}");
}

#[tokio::test]
async fn each_failure_of_the_server_has_its_kind_and_effect() {
    let server = Server::start(&["--setParameter", "enableTestCommands=1"]).await.unwrap();
    // The driver takes the server for lost, and sees at once that it is there.
    let poll = "?serverMonitoringMode=poll&heartbeatFrequencyMS=500";
    let store = MongodbStore::connect(&format!("{}{poll}", server.url())).await.unwrap();
    store.prepare().await.unwrap();
    let none = Effect::NotApplied;
    for (code, kind, effect) in [
        (13, Denied, none),
        (18, Denied, none),
        (11, Denied, none),
        (10_107, Unavailable, none),
        (13_435, Unavailable, none),
        (10_058, Unavailable, none),
        (112, Unavailable, none),
        (50, Unavailable, Effect::Unknown),
        (11_600, Unavailable, Effect::Unknown),
        (11_601, Unavailable, Effect::Unknown),
        (11_602, Unavailable, Effect::Unknown),
        (13_436, Unavailable, Effect::Unknown),
        (91, Unavailable, Effect::Unknown),
        (189, Unavailable, Effect::Unknown),
        (94, Unavailable, Effect::Unknown),
        (6, Unavailable, Effect::Unknown),
        (7, Unavailable, Effect::Unknown),
        (89, Unavailable, Effect::Unknown),
        (9_001, Unavailable, Effect::Unknown),
        (134, Unavailable, Effect::Unknown),
        (262, Unavailable, Effect::Unknown),
        (9, Incompatible, none),
        (14, Incompatible, none),
        (59, Incompatible, none),
        (40_324, Incompatible, none),
        (168, Incompatible, none),
        (8_000, Unexpected, Effect::Unknown),
    ] {
        let fails = doc! { "failCommands": ["findAndModify"], "errorCode": code };
        // A first try that was given up at its own, short limit is followed by another.
        let times = if code == 50 { 2 } else { 1 };
        fail(&server, times, fails).await;
        let error = store.acquire(&request("k")).await.unwrap_err();
        assert_error(&error, kind, effect, "mongodb acquire");
        assert!(error.cause().is_none(), "{error:?}");
    }
    let closed = doc! { "failCommands": ["findAndModify"], "closeConnection": true };
    fail_once(&server, closed).await;
    let error = store.acquire(&request("k")).await.unwrap_err();
    assert_error(&error, Unavailable, Effect::Unknown, "broke before its reply");
    let concern = doc! { "code": 64, "errmsg": "waiting for replication timed out" };
    let late = doc! { "failCommands": ["findAndModify"], "writeConcernError": concern };
    fail_once(&server, late).await;
    let error = store.acquire(&request("k")).await.unwrap_err();
    assert_error(&error, Unavailable, Effect::Unknown, "not on a majority");
    store.acquire(&request("k")).await.unwrap();
}

async fn fail_once(server: &Server, data: Document) {
    fail(server, 1, data).await;
}

async fn fail(server: &Server, times: i32, data: Document) {
    let mode = doc! { "times": times };
    let fail = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data };
    server.command("admin", fail).await.unwrap();
}

#[tokio::test]
async fn a_server_that_has_gone_is_unavailable() {
    let server = Server::start(&[]).await.unwrap();
    let url = format!("{}?timeout=300ms", server.url());
    let store = MongodbStore::connect(&url).await.unwrap();
    server.kill();
    let error = store.list(&ListRequest::new(Filter::default())).await.unwrap_err();
    assert_eq!(error.kind(), Unavailable, "{error}");
    let error = MongodbStore::connect(&url).await.unwrap_err();
    assert_error(&error, Unavailable, Effect::NotApplied, "mongodb connect");
}

#[tokio::test]
async fn a_wrong_password_is_denied_and_not_shown() {
    let server = Server::start_secured(&[]).await.unwrap();
    let error = MongodbStore::connect(&server.url_of("root", "hunter2")).await.unwrap_err();
    assert_error(&error, Denied, Effect::NotApplied, "refuses the login");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
}

/// Every write needs the unique index; `leasehold init` is named.
#[tokio::test]
async fn without_the_index_nothing_is_granted() {
    let server = Server::start(&[]).await.unwrap();
    let store = store(&server).await;
    let is_refused = async || {
        for error in [
            store.acquire(&request("k")).await.map(drop).unwrap_err(),
            store.check().await.map(drop).unwrap_err(),
        ] {
            assert_error(&error, Incompatible, Effect::NotApplied, "leasehold init");
        }
        let count = server.command(DATABASE, doc! { "count": "locks" }).await.unwrap();
        assert_eq!(count.get("n"), Some(&Bson::Int32(0)));
    };
    is_refused().await;
    // The refused acquire has added the collection.
    is_refused().await;
    store.prepare().await.unwrap();
    assert_eq!(store.check().await.unwrap().level, Level::Lease);
    command(&server, doc! { "dropIndexes": "locks", "index": "resource_1" }).await;
    is_refused().await;
    store.prepare().await.unwrap();
    store.acquire(&request("k")).await.unwrap();
}

#[tokio::test]
async fn a_collection_that_does_not_fit_is_named() {
    let server = Server::start(&[]).await.unwrap();
    let store = store(&server).await;
    let key = doc! { "resource": 1 };
    let other = doc! { "locale": "en" };
    let index = |index| doc! { "createIndexes": "locks", "indexes": [index] };
    let part = doc! { "resource": "k" };
    for (created, part) in [
        (vec![doc! { "create": "locks", "capped": true, "size": 4_096 }], "is capped"),
        (vec![doc! { "create": "locks", "viewOn": "other" }], "is a view"),
        (
            vec![doc! { "create": "locks", "timeseries": { "timeField": "t" } }],
            "of another type, such as a time series",
        ),
        (vec![index(doc! { "name": "resource_1", "key": &key })], "not a unique one"),
        (
            vec![index(doc! { "name": "resource_1", "key": { "other": 1 }, "unique": true })],
            "not a unique one",
        ),
        (
            vec![index(
                doc! { "name": "resource_1", "key": &key, "unique": true, "collation": other },
            )],
            "not a unique one",
        ),
        (
            vec![index(
                doc! { "name": "resource_1", "key": &key, "unique": true, "partialFilterExpression": part },
            )],
            "not a unique one",
        ),
    ] {
        for one in created {
            command(&server, one).await;
        }
        let checked = store.check().await.unwrap_err();
        assert_error(&checked, Incompatible, Effect::NotApplied, part);
        let prepared = store.prepare().await.unwrap_err();
        assert_error(&prepared, Incompatible, Effect::NotApplied, part);
        command(&server, doc! { "drop": "locks" }).await;
    }
}

#[tokio::test]
async fn two_documents_of_one_key_are_named() {
    let server = Server::start(&[]).await.unwrap();
    let documents = ["k", "k", "other"].map(|key| doc! { "resource": key });
    command(&server, doc! { "insert": "locks", "documents": documents.to_vec() }).await;
    let error = store(&server).await.prepare().await.unwrap_err();
    assert_error(&error, Incompatible, Effect::NotApplied, "several documents of one key");
}

/// mongo-lock's index of the same name need not be sparse.
#[tokio::test]
async fn an_index_that_is_not_sparse_fits() {
    let server = Server::start(&[]).await.unwrap();
    let store = store(&server).await;
    let index = doc! { "name": "resource_1", "key": { "resource": 1 }, "unique": true };
    command(&server, doc! { "createIndexes": "locks", "indexes": [index] }).await;
    store.prepare().await.unwrap();
    store.check().await.unwrap();
    store.acquire(&request("k")).await.unwrap();
}

/// What neither this store nor mongo-lock writes is never granted, and hides no other key.
#[tokio::test]
async fn a_damaged_document_is_corrupt_and_its_key_is_never_granted() {
    let server = Server::start(&[]).await.unwrap();
    let store = store(&server).await;
    store.prepare().await.unwrap();
    store.acquire(&request("other")).await.unwrap();
    for damage in [
        doc! { "exclusive": 1 },
        doc! { "exclusive.acquired": "yes" },
        doc! { "exclusive.acquired": true, "exclusive.lockId": 7 },
        doc! { "exclusive.acquired": true, "exclusive.lockId": "x", "exclusive.expiresAt": "soon" },
        doc! { "exclusive.acquired": true, "exclusive.lockId": "x", "exclusive.token": "1" },
        doc! { "shared.count": 1 },
        doc! { "shared.locks": "none" },
        doc! { "shared.count": 1, "shared.locks": [{ "expiresAt": null }] },
        doc! { "counter": "1" },
        doc! { "evicted": "none" },
    ] {
        let free = doc! {
            "resource": "k",
            "exclusive": { "lockId": null, "expiresAt": null, "acquired": false },
            "shared": { "count": 0, "locks": [] },
        };
        command(&server, doc! { "insert": "locks", "documents": [free] }).await;
        let update = doc! { "q": { "resource": "k" }, "u": { "$set": &damage } };
        command(&server, doc! { "update": "locks", "updates": [update] }).await;
        let error = store.acquire(&request("k")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{damage}: {error}");
        let listed = store.list(&ListRequest::new(Filter::default())).await.unwrap();
        assert_eq!((listed.records.len(), listed.unreadable.len()), (1, 1), "{damage}");
        let delete = doc! { "q": { "resource": "k" }, "limit": 1 };
        command(&server, doc! { "delete": "locks", "deletes": [delete] }).await;
    }
}

/// What forgets leases when it ends.
#[tokio::test]
async fn a_server_that_keeps_nothing_on_disk_is_noticed() {
    let in_memory = Server::start(&["--storageEngine", "ephemeralForTest"]).await.unwrap();
    let unjournaled = Server::start(&["--nojournal"]).await.unwrap();
    for (server, is_durable) in [(in_memory, false), (unjournaled, true)] {
        let store = store(&server).await;
        let part = "needs a server with a journal";
        assert_error(&store.prepare().await.unwrap_err(), Incompatible, Effect::NotApplied, part);
        let index =
            doc! { "key": { "resource": 1 }, "name": "resource_1", "unique": true, "sparse": true };
        command(&server, doc! { "createIndexes": "locks", "indexes": [index] }).await;
        let refused = store.acquire(&request("k")).await.unwrap_err();
        assert_error(&refused, Incompatible, Effect::NotApplied, part);
        let health = store.check().await.unwrap();
        assert_eq!(health.durable, is_durable);
        if !is_durable {
            assert_eq!(health.level, Level::BestEffort);
            assert!(health.hazards.iter().any(|hazard| hazard.contains("in memory")));
        }
    }
}
