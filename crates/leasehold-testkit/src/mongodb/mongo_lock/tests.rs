//! What the library's own tests state, by their names: that the script behaves as the library.

mod defects;
mod documents;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Clock as _, ManualClock};
use mongodb::Collection;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{DateTime, Document, doc};
use tokio::sync::OnceCell;

use super::{Filter, LockDetails, LockStatus, LockType, MongoLock, MongoLockError, newest_first};
use crate::mongodb::{DATABASE, Server};

const NO_END: LockDetails =
    LockDetails { owner: String::new(), host: String::new(), comment: String::new(), ttl: 0 };

/// A client on an empty collection, and its clock.
struct Setup {
    client: MongoLock,
    collection: Collection<Document>,
    clock: ManualClock,
}

impl Setup {
    /// With the index that the library requires.
    async fn new() -> Self {
        let setup = Self::without_indexes().await;
        setup.client.create_indexes().await.unwrap();
        setup
    }

    async fn without_indexes() -> Self {
        // One for all, which ends with the program.
        static SERVER: OnceCell<Server> = OnceCell::const_new();
        let server = SERVER.get_or_init(async || Server::start(&[]).await.unwrap()).await;
        let name = ObjectId::new().to_hex();
        let collection = server.client().unwrap().database(DATABASE).collection(&name);
        let clock = ManualClock::new();
        let client = MongoLock::new(collection.clone(), Arc::new(clock.clone()));
        Self { client, collection, clock }
    }

    async fn x_lock(&self, resource: &str, lock_id: &str, ttl: u32) -> Result<(), MongoLockError> {
        self.client.x_lock(resource, lock_id, &LockDetails::ttl(ttl)).await
    }

    /// Without a limit.
    async fn s_lock(&self, resource: &str, lock_id: &str, ttl: u32) -> Result<(), MongoLockError> {
        self.client.s_lock(resource, lock_id, &LockDetails::ttl(ttl), -1).await
    }

    /// Resources and ids of what matches, newest first.
    async fn found(&self, filter: &Filter) -> Vec<(String, String, LockType)> {
        let mut found = self.client.status(filter).await.unwrap();
        newest_first(&mut found);
        found.into_iter().map(|lock| (lock.resource, lock.lock_id, lock.lock_type)).collect()
    }

    async fn all(&self) -> usize {
        self.client.status(&Filter::default()).await.unwrap().len()
    }

    fn passes(&self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    fn now(&self) -> DateTime {
        DateTime::from_millis((self.clock.wall_micros() / 1_000).try_into().unwrap())
    }

    /// The locks that the library's tests of `Status` look for; returns a time between the first three and the others.
    async fn with_locks(&self) -> DateTime {
        let details = LockDetails {
            owner: "john".into(),
            host: "host.name".into(),
            ..LockDetails::ttl(3_600)
        };
        let smith = LockDetails { owner: "smith".into(), ..NO_END };
        self.client.x_lock("resource1", "aaaa", &details).await.unwrap();
        self.client.s_lock("resource2", "aaaa", &details, -1).await.unwrap();
        self.client.s_lock("resource2", "bbbb", &smith, -1).await.unwrap();
        self.passes(1);
        let between = self.now();
        self.passes(1);
        self.s_lock("resource2", "cccc", 7_200).await.unwrap();
        self.client.x_lock("resource3", "bbbb", &smith).await.unwrap();
        self.s_lock("resource4", "cccc", 7_200).await.unwrap();
        between
    }
}

fn resources(locks: &[LockStatus]) -> Vec<&str> {
    locks.iter().map(|lock| &*lock.resource).collect()
}

fn exclusive(resource: &str, lock_id: &str) -> (String, String, LockType) {
    (resource.into(), lock_id.into(), LockType::Exclusive)
}

fn shared(resource: &str, lock_id: &str) -> (String, String, LockType) {
    (resource.into(), lock_id.into(), LockType::Shared)
}

#[track_caller]
fn refused(outcome: Result<(), MongoLockError>) {
    assert!(outcome.unwrap_err().is_already_locked());
}

#[tokio::test]
async fn create_indexes() {
    let setup = Setup::without_indexes().await;
    setup.client.create_indexes().await.unwrap();
    setup.client.create_indexes().await.unwrap();
    let expected = [
        "_id_",
        "resource_1",
        "exclusive.lockId_1",
        "exclusive.expiresAt_1",
        "shared.locks.lockId_1",
        "shared.locks.expiresAt_1",
    ];
    assert_eq!(setup.collection.list_index_names().await.unwrap(), expected);
}

#[tokio::test]
async fn lock_exclusive() {
    let setup = Setup::new().await;
    setup.x_lock("resource1", "aaaa", 0).await.unwrap();
    setup.x_lock("resource2", "aaaa", 0).await.unwrap();
    setup.x_lock("resource3", "bbbb", 0).await.unwrap();
    refused(setup.x_lock("resource1", "aaaa", 0).await);
    refused(setup.x_lock("resource1", "zzzz", 0).await);
    setup.x_lock("resource4", "cccc", 1).await.unwrap();
    setup.passes(1_100);
    setup.x_lock("resource4", "cccc", 0).await.unwrap();
}

#[tokio::test]
async fn lock_shared() {
    let Setup { client, .. } = Setup::new().await;
    client.s_lock("resource1", "aaaa", &NO_END, 10).await.unwrap();
    client.s_lock("resource1", "bbbb", &NO_END, 10).await.unwrap();
    client.s_lock("resource2", "bbbb", &NO_END, 10).await.unwrap();
    refused(client.s_lock("resource1", "aaaa", &NO_END, 10).await);
    refused(client.s_lock("resource2", "bbbb", &NO_END, 10).await);
}

#[tokio::test]
async fn lock_max_concurrent() {
    let Setup { client, .. } = Setup::new().await;
    client.s_lock("resource1", "aaaa", &NO_END, 2).await.unwrap();
    client.s_lock("resource1", "bbbb", &NO_END, 2).await.unwrap();
    refused(client.s_lock("resource1", "cccc", &NO_END, 2).await);
}

#[tokio::test]
async fn lock_interactions() {
    let setup = Setup::new().await;
    setup.x_lock("resource1", "aaaa", 0).await.unwrap();
    refused(setup.s_lock("resource1", "bbbb", 0).await);
    setup.s_lock("resource2", "aaaa", 0).await.unwrap();
    refused(setup.x_lock("resource2", "bbbb", 0).await);
}

#[tokio::test]
async fn unlock() {
    let setup = Setup::new().await;
    setup.x_lock("resource1", "aaaa", 0).await.unwrap();
    let unlocked = setup.client.unlock("aaaa").await.all().unwrap();
    assert_eq!(resources(&unlocked), ["resource1"]);
    setup.s_lock("resource2", "bbbb", 0).await.unwrap();
    let unlocked = setup.client.unlock("bbbb").await.all().unwrap();
    assert_eq!(resources(&unlocked), ["resource2"]);
    assert!(setup.client.unlock("zzzz").await.all().unwrap().is_empty());
}

#[tokio::test]
async fn unlock_order() {
    let setup = Setup::new().await;
    setup.x_lock("resource1", "aaaa", 0).await.unwrap();
    setup.s_lock("resource4", "aaaa", 0).await.unwrap();
    setup.x_lock("resource3", "bbbb", 0).await.unwrap();
    setup.s_lock("resource2", "bbbb", 0).await.unwrap();
    setup.s_lock("resource2", "aaaa", 0).await.unwrap();
    let unlocked = setup.client.unlock("aaaa").await.all().unwrap();
    assert_eq!(resources(&unlocked), ["resource2", "resource4", "resource1"]);
    let left = [shared("resource2", "bbbb"), exclusive("resource3", "bbbb")];
    assert_eq!(setup.found(&Filter::default()).await, left);
}

#[tokio::test]
async fn status_filter_ttl_gte() {
    let setup = Setup::new().await;
    setup.with_locks().await;
    let filter = Filter { ttl_gte: 3_700, ..Filter::default() };
    let expected = [shared("resource4", "cccc"), shared("resource2", "cccc")];
    assert_eq!(setup.found(&filter).await, expected);
}

#[tokio::test]
async fn status_filter_ttl_lt() {
    let setup = Setup::new().await;
    setup.with_locks().await;
    assert_eq!(setup.found(&Filter::ttl_lt(600)).await, []);
}

#[tokio::test]
async fn status_filter_created_after() {
    let setup = Setup::new().await;
    let between = setup.with_locks().await;
    let filter = Filter { created_after: Some(between), ..Filter::default() };
    let expected =
        [shared("resource4", "cccc"), exclusive("resource3", "bbbb"), shared("resource2", "cccc")];
    assert_eq!(setup.found(&filter).await, expected);
}

#[tokio::test]
async fn status_filter_created_before() {
    let setup = Setup::new().await;
    let between = setup.with_locks().await;
    let filter = Filter { created_before: Some(between), ..Filter::default() };
    let expected =
        [shared("resource2", "bbbb"), shared("resource2", "aaaa"), exclusive("resource1", "aaaa")];
    assert_eq!(setup.found(&filter).await, expected);
    let mut locks = setup.client.status(&filter).await.unwrap();
    newest_first(&mut locks);
    let details = |lock: &LockStatus| (lock.owner.clone(), lock.host.clone());
    assert_eq!(details(&locks[0]), ("smith".to_owned(), String::new()));
    assert_eq!(details(&locks[2]), ("john".to_owned(), "host.name".to_owned()));
}

#[tokio::test]
async fn status_filter_owner() {
    let setup = Setup::new().await;
    setup.with_locks().await;
    let filter = Filter { owner: "smith".into(), ..Filter::default() };
    let expected = [exclusive("resource3", "bbbb"), shared("resource2", "bbbb")];
    assert_eq!(setup.found(&filter).await, expected);
}

#[tokio::test]
async fn status_filter_multiple() {
    let setup = Setup::new().await;
    setup.with_locks().await;
    let filter = Filter { resource: "resource1".into(), ttl_lt: 5_000, ..Filter::lock_id("aaaa") };
    assert_eq!(setup.found(&filter).await, [exclusive("resource1", "aaaa")]);
}

#[tokio::test]
async fn status_ttl_value() {
    let setup = Setup::new().await;
    setup.x_lock("resource1", "aaaa", 3_600).await.unwrap();
    setup.x_lock("resource2", "bbbb", 0).await.unwrap();
    setup.x_lock("resource3", "cccc", 1).await.unwrap();
    let ttl = async |lock_id| {
        let found = setup.client.status(&Filter::lock_id(lock_id)).await.unwrap();
        found.iter().map(|lock| lock.ttl).collect::<Vec<_>>()
    };
    assert_eq!(ttl("aaaa").await, [3_600]);
    assert_eq!(ttl("bbbb").await, [-1]);
    setup.passes(2_100);
    assert_eq!(ttl("aaaa").await, [3_597]);
    assert_eq!(ttl("cccc").await, [0]);
}

#[tokio::test]
async fn renew() {
    let setup = Setup::new().await;
    setup.s_lock("resource4", "cccc", 3_600).await.unwrap();
    setup.x_lock("resource1", "aaaa", 3_600).await.unwrap();
    setup.s_lock("resource4", "aaaa", 3_600).await.unwrap();
    setup.x_lock("resource3", "bbbb", 0).await.unwrap();
    setup.s_lock("resource2", "bbbb", 0).await.unwrap();
    setup.s_lock("resource2", "aaaa", 3_600).await.unwrap();
    let renewed = setup.client.renew("aaaa", 7_200).await.all().unwrap();
    assert_eq!(renewed.len(), 3);
    let ttls = async |lock_id| {
        let found = setup.client.status(&Filter::lock_id(lock_id)).await.unwrap();
        found.iter().map(|lock| lock.ttl).collect::<Vec<_>>()
    };
    assert_eq!(ttls("aaaa").await, [7_200; 3]);
    assert_eq!(ttls("cccc").await, [3_600]);
    assert_eq!(ttls("bbbb").await, [-1; 2]);
    assert!(renewed.iter().all(|lock| lock.ttl == 7_200 && lock.renewed_at == Some(setup.now())));
}

#[tokio::test]
async fn renew_lock_id_not_found() {
    let setup = Setup::new().await;
    setup.x_lock("resource1", "aaaa", 3_600).await.unwrap();
    let renewed = setup.client.renew("bbbb", 7_200).await;
    assert!(renewed.locks.is_empty());
    assert!(renewed.error.unwrap().is_not_found());
}

#[tokio::test]
async fn renew_ttl_expired() {
    let setup = Setup::new().await;
    setup.x_lock("resource1", "aaaa", 3_600).await.unwrap();
    setup.s_lock("resource4", "aaaa", 1).await.unwrap();
    setup.passes(100);
    let renewed = setup.client.renew("aaaa", 7_200).await;
    assert!(renewed.error.unwrap().is_not_found());
    assert!(renewed.locks.len() <= 1);
}

#[tokio::test]
async fn purge() {
    let setup = Setup::new().await;
    setup.x_lock("resource1", "aaaa", 0).await.unwrap();
    setup.x_lock("resource2", "bbbb", 1).await.unwrap();
    setup.s_lock("resource3", "cccc", 1).await.unwrap();
    setup.passes(1_500);
    let mut purged = setup.client.purge().await.all().unwrap();
    newest_first(&mut purged);
    assert_eq!(resources(&purged), ["resource3", "resource2"]);
    assert_eq!(setup.found(&Filter::default()).await, [exclusive("resource1", "aaaa")]);
}

#[tokio::test]
async fn purge_same_lock_id_diff_ttls() {
    let setup = Setup::new().await;
    setup.x_lock("resource1", "aaaa", 0).await.unwrap();
    setup.x_lock("resource2", "aaaa", 30).await.unwrap();
    setup.s_lock("resource3", "aaaa", 1).await.unwrap();
    setup.passes(1_500);
    let purged = setup.client.purge().await.all().unwrap();
    assert_eq!(resources(&purged), ["resource3", "resource2", "resource1"]);
    assert_eq!(setup.all().await, 0);
}
