//! Wake-ups, and what waiters cost the server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use leasehold_core::{
    AcquireRequest, Claim, Claims, Mode, ReleaseEntry, ReleaseRequest, RenewEntry, RenewRequest,
    Store as _, Ttl, Wakeups,
};
use leasehold_driver::SystemClock;
use leasehold_mongodb::mongodb::bson::{Document, doc};
use leasehold_mongodb::{MongodbConfig, MongodbStore};
use leasehold_testkit::mongodb::mongo_lock::{LockDetails, MongoLock};
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use leasehold_testkit::mongodb::{DATABASE, Server};
use leasehold_testkit::requests::{acquire, evict, granted, id, is_renewed, key, refused, release};
use leasehold_testkit::{LONG, in_time, until};

/// How soon a waiter learns of a release on a busy machine: long before it would poll.
const SOON: Duration = Duration::from_secs(5);

/// In which a waiter learns of what has happened, on a machine that is not busy.
const AWHILE: Duration = Duration::from_millis(500);

async fn connect(set: &ReplicaSet) -> MongodbStore {
    // What no client of the test uses costs no time.
    let config = MongodbConfig::parse(&format!("{}&timeout=10s", set.url())).unwrap();
    config.connect().await.unwrap()
}

/// A replica set of one, a store that holds, and one that waits.
async fn start() -> (ReplicaSet, MongodbStore, MongodbStore) {
    let set = ReplicaSet::start(1).await.unwrap();
    let store = connect(&set).await;
    store.prepare().await.unwrap();
    let other = connect(&set).await;
    (set, store, other)
}

fn go(set: &ReplicaSet) -> MongoLock {
    let locks = set.nodes[0].client().unwrap().database(DATABASE).collection("locks");
    MongoLock::new(locks, Arc::new(SystemClock::new()))
}

async fn admin(server: &Server, command: Document) -> Document {
    server.command("admin", command).await.unwrap()
}

async fn status(server: &Server, fields: &[&str]) -> i64 {
    let status = admin(server, doc! { "serverStatus": 1 }).await;
    let mut at = &status;
    let (last, before) = fields.split_last().unwrap();
    for field in before {
        at = at.get_document(field).unwrap();
    }
    at.get_i64(last).unwrap()
}

async fn open_cursors(server: &Server) -> i64 {
    status(server, &["metrics", "cursor", "open", "total"]).await
}

/// What waiters send.
const OF_WAITERS: &[&str] = &["aggregate", "find", "findAndModify", "getMore", "killCursors"];

/// How many of these commands were sent.
async fn commands(server: &Server, names: &[&str]) -> i64 {
    let mut sum = 0;
    for name in names {
        sum += status(server, &["metrics", "commands", name, "total"]).await;
    }
    sum
}

#[track_caller]
fn is_silent(wakeups: &mut Wakeups) {
    assert_eq!(wakeups.next().now_or_never(), None);
}

async fn woken_soon(wakeups: &mut Wakeups, name: &str) {
    let woken = tokio::time::timeout(SOON, wakeups.next()).await;
    assert_eq!(woken.expect("it is woken soon"), key(name));
}

/// Waits until hints have ceased: after a fault there may be several.
async fn until_silent(wakeups: &mut Wakeups) {
    while tokio::time::timeout(3 * AWHILE, wakeups.next()).await.is_ok() {}
}

#[tokio::test]
async fn whatever_ends_a_lease_wakes_who_waits_for_its_key_alone() {
    let (set, store, other) = start().await;
    granted(store.acquire(&acquire("k", "holder", Mode::Exclusive)).await);
    let mut wakeups = other.subscribe(&[key("k"), key("free")]).await.unwrap();
    let mut elsewhere = other.subscribe(&[key("l")]).await.unwrap();
    refused(other.acquire(&acquire("k", "waiter", Mode::Exclusive)).await);
    is_silent(&mut wakeups);
    store.release(&release("k", "holder")).await.unwrap();
    woken_soon(&mut wakeups, "k").await;

    granted(store.acquire(&acquire("k", "evicted", Mode::SHARED)).await);
    store.evict(&evict("k", "evicted")).await.unwrap();
    woken_soon(&mut wakeups, "k").await;

    let go = go(&set);
    go.x_lock("k", "theirs", &LockDetails::ttl(60)).await.unwrap();
    let _ = go.unlock("theirs").await.all().unwrap();
    woken_soon(&mut wakeups, "k").await;
    go.s_lock("k", "shared", &LockDetails::ttl(60), -1).await.unwrap();
    let _ = go.unlock("shared").await.all().unwrap();
    woken_soon(&mut wakeups, "k").await;
    // The first one may also be what is left of two.
    until_silent(&mut wakeups).await;

    // A key that had no document when the wait began.
    go.x_lock("free", "new", &LockDetails::ttl(60)).await.unwrap();
    let _ = go.unlock("new").await.all().unwrap();
    woken_soon(&mut wakeups, "free").await;
    is_silent(&mut elsewhere);
}

/// Grants and renewals of shared locks, of one key and of several, by both kinds of clients.
#[tokio::test]
async fn a_shared_lock_more_wakes_nobody() {
    let (set, store, other) = start().await;
    let server = &set.nodes[0];
    let both = |lease: &str| {
        let pair = ["k", "l"].map(|name| Claim { key: key(name), mode: Mode::SHARED });
        AcquireRequest::new(id(lease), Claims::new(pair).unwrap(), Ttl::new(LONG).unwrap())
    };
    granted(store.acquire(&acquire("k", "first", Mode::SHARED)).await);
    store.release(&release("k", "first")).await.unwrap();
    let mut wakeups = other.subscribe(&[key("k")]).await.unwrap();
    let go = go(&set);
    for (round, more) in [(0, &["a", "b", "c"]), (1, &["d", "e", "f"])] {
        let sent = commands(server, &["getMore"]).await;
        for name in more {
            granted(store.acquire(&acquire("k", name, Mode::SHARED)).await);
            is_renewed(&store, "k", name, Mode::SHARED).await;
            let pair = both(&format!("pair {name}"));
            granted(store.acquire(&pair).await);
            let longer = Ttl::new(2 * LONG).unwrap();
            let entry = RenewEntry::extend(pair.id().clone(), pair.claims().clone(), longer);
            store.renew(&RenewRequest::new(vec![entry])).await.unwrap();
            let details = LockDetails::ttl(60);
            go.s_lock("k", &format!("go {name}"), &details, -1).await.unwrap();
        }
        assert!(tokio::time::timeout(AWHILE, wakeups.next()).await.is_err());
        let sent = commands(server, &["getMore"]).await - sent;
        assert!(sent <= 1, "{sent} commands of the waiter");

        let pair = ReleaseEntry::new(id("pair a"), [key("k"), key("l")]);
        let one = [release("k", "b"), ReleaseRequest::new(vec![pair])];
        store.release(&one[round]).await.unwrap();
        woken_soon(&mut wakeups, "k").await;
    }
    let _ = go.unlock("go a").await.all().unwrap();
    woken_soon(&mut wakeups, "k").await;
    store.evict(&evict("k", "c")).await.unwrap();
    woken_soon(&mut wakeups, "k").await;
    is_silent(&mut wakeups);
}

#[tokio::test]
async fn a_key_whose_document_was_deleted_has_another_one_and_wakes_again() {
    let (set, store, other) = start().await;
    granted(store.acquire(&acquire("k", "holder", Mode::Exclusive)).await);
    let mut wakeups = other.subscribe(&[key("k")]).await.unwrap();
    let server = &set.nodes[0];
    for round in ["one", "two"] {
        delete(server).await;
        woken_soon(&mut wakeups, "k").await;
        granted(store.acquire(&acquire("k", round, Mode::Exclusive)).await);
        is_silent(&mut wakeups);
        store.release(&release("k", round)).await.unwrap();
        woken_soon(&mut wakeups, "k").await;
    }
}

#[tokio::test]
async fn who_may_have_missed_events_is_woken() {
    let (set, store, other) = start().await;
    let server = &set.nodes[0];
    granted(store.acquire(&acquire("k", "holder", Mode::Exclusive)).await);
    let mut wakeups = other.subscribe(&[key("k")]).await.unwrap();

    // The server ends it at the next write.
    let write = doc! { "insert": "other", "documents": [{}] };
    kill_cursor(server).await;
    server.command(DATABASE, write.clone()).await.unwrap();
    woken_soon(&mut wakeups, "k").await;
    until_silent(&mut wakeups).await;

    admin(server, doc! { "killAllSessions": [] }).await;
    server.command(DATABASE, write).await.unwrap();
    woken_soon(&mut wakeups, "k").await;
    until_silent(&mut wakeups).await;

    server.command(DATABASE, doc! { "drop": "locks" }).await.unwrap();
    woken_soon(&mut wakeups, "k").await;
    until_silent(&mut wakeups).await;
    // The stream has the documents of the new collection.
    store.prepare().await.unwrap();
    granted(store.acquire(&acquire("k", "again", Mode::Exclusive)).await);
    store.release(&release("k", "again")).await.unwrap();
    woken_soon(&mut wakeups, "k").await;

    set.restart(0).await.unwrap();
    in_time(wakeups.next()).await;
    until(async || store.acquire(&acquire("k", "last", Mode::Exclusive)).await.is_ok()).await;
    until_silent(&mut wakeups).await;
    store.release(&release("k", "last")).await.unwrap();
    woken_soon(&mut wakeups, "k").await;
}

/// A stream that ended is followed by another a second later.
#[tokio::test]
async fn a_document_that_is_another_one_after_the_stream_was_lost_wakes_too() {
    let (set, store, other) = start().await;
    let server = &set.nodes[0];
    granted(store.acquire(&acquire("k", "holder", Mode::Exclusive)).await);
    let mut wakeups = other.subscribe(&[key("k")]).await.unwrap();
    kill_cursor(server).await;
    delete(server).await;
    granted(store.acquire(&acquire("k", "next", Mode::Exclusive)).await);
    woken_soon(&mut wakeups, "k").await;
    until_silent(&mut wakeups).await;
    store.release(&release("k", "next")).await.unwrap();
    woken_soon(&mut wakeups, "k").await;
}

/// The stream is opened again for the other key, and continues where it was.
#[tokio::test]
async fn one_who_begins_to_wait_wakes_no_other() {
    let (_set, store, other) = start().await;
    granted(store.acquire(&acquire("k", "holder", Mode::Exclusive)).await);
    let mut wakeups = other.subscribe(&[key("k")]).await.unwrap();
    store.release(&release("k", "holder")).await.unwrap();
    woken_soon(&mut wakeups, "k").await;
    for name in ["l", "m"] {
        granted(store.acquire(&acquire(name, "holder", Mode::Exclusive)).await);
        let mut elsewhere = other.subscribe(&[key(name)]).await.unwrap();
        store.release(&release(name, "holder")).await.unwrap();
        woken_soon(&mut elsewhere, name).await;
        is_silent(&mut wakeups);
    }
}

/// Removes the document of `k`.
async fn delete(server: &Server) {
    let delete = doc! { "delete": "locks", "deletes": [{ "q": { "resource": "k" }, "limit": 1 }] };
    server.command(DATABASE, delete).await.unwrap();
}

/// Kills the cursor of the change stream.
async fn kill_cursor(server: &Server) {
    let stages = vec![
        doc! { "$currentOp": { "idleCursors": true, "allUsers": true } },
        doc! { "$match": { "cursor.originatingCommand.aggregate": "locks" } },
    ];
    let found = admin(server, doc! { "aggregate": 1, "pipeline": stages, "cursor": {} }).await;
    let found = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    let cursor = found[0].as_document().unwrap().get_document("cursor").unwrap();
    let cursors = vec![cursor.get_i64("cursorId").unwrap()];
    server.command(DATABASE, doc! { "killCursors": "locks", "cursors": cursors }).await.unwrap();
}

#[tokio::test]
async fn other_keys_send_a_waiter_nothing_and_no_cursor_is_left() {
    const OTHERS: usize = 200;
    let (set, store, other) = start().await;
    let server = &set.nodes[0];
    let names: Vec<_> = (0..OTHERS).map(|n| format!("other {n}")).chain(["k".to_owned()]).collect();
    for name in &names {
        granted(store.acquire(&acquire(name, "holder", Mode::Exclusive)).await);
    }
    let before = open_cursors(server).await;
    let mut wakeups = other.subscribe(&[key("k"), key("free")]).await.unwrap();
    assert_eq!(open_cursors(server).await, before + 1);
    let sent = commands(server, OF_WAITERS).await;
    for name in &names {
        is_renewed(&store, name, "holder", Mode::Exclusive).await;
    }
    // With the renewals, less than the ten seconds in which the front end also polls once.
    tokio::time::sleep(Duration::from_secs(7)).await;
    let sent = commands(server, OF_WAITERS).await - sent - i64::try_from(names.len()).unwrap();
    assert!(sent <= 1, "{sent} commands of the waiter");
    let sent = commands(server, &["getMore"]).await;
    for name in &names[..OTHERS / 4] {
        store.release(&release(name, "holder")).await.unwrap();
    }
    let sent = commands(server, &["getMore"]).await - sent;
    assert!(sent <= 1, "{sent} commands of the waiter");
    is_silent(&mut wakeups);
    // One that has its first document while it is awaited leaves no listener behind.
    granted(store.acquire(&acquire("free", "holder", Mode::Exclusive)).await);
    store.release(&release("free", "holder")).await.unwrap();
    woken_soon(&mut wakeups, "free").await;
    drop(wakeups);
    let closed = until(async || open_cursors(server).await == before);
    tokio::time::timeout(Duration::from_secs(16), closed).await.expect("no cursor is left open");
}
