//! What mongo-lock's tests state, by their names, of the functions of this store.

mod beside;
mod groups;
mod status;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use leasehold_conformance::ServerClock;
use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, Clock as _, GroupName, Key, LeaseId, ManualClock, Mode,
    Note, Remaining, RenewEntry, RenewOutcome, RenewRequest, Store as _, Ttl,
};
use leasehold_mongodb::mongodb::Collection;
use leasehold_mongodb::mongodb::bson::Document;
use leasehold_mongodb::mongodb::bson::oid::ObjectId;
use leasehold_mongodb::{LockStatus, MongodbConfig, MongodbStore, StatusFilter};
use leasehold_testkit::mongodb::mongo_lock::MongoLock;
use leasehold_testkit::mongodb::{DATABASE, Server};
use tempfile::TempDir;

/// A store with a skew of a second in an empty collection, and a client of mongo-lock beside it.
pub(crate) struct Setup {
    pub(crate) store: MongodbStore,
    pub(crate) go: MongoLock,
    pub(crate) collection: Collection<Document>,
    server: Server,
    clock: ManualClock,
    _directory: TempDir,
}

impl Setup {
    pub(crate) async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = ServerClock::new(directory.path().join("time")).unwrap();
        let server = Server::start_on(Some(clock.clone()), &[]).await.unwrap();
        let name = format!("c{}", ObjectId::new());
        let store = connect(&server, &name, "1s").await;
        store.prepare().await.unwrap();
        let collection = server.client().unwrap().database(DATABASE).collection(&name);
        let clock = clock.manual();
        let go = MongoLock::new(collection.clone(), Arc::new(clock.clone()));
        Self { store, go, collection, server, clock, _directory: directory }
    }

    /// Another store in the same collection.
    pub(crate) async fn store_with_skew(&self, skew: &str) -> MongodbStore {
        connect(&self.server, self.collection.name(), skew).await
    }

    pub(crate) fn passes(&self, millis: u64) {
        Server::advance(&[&self.server], Duration::from_millis(millis)).unwrap();
    }

    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(self.clock.wall_micros())
    }

    /// As the front end does it: a lease without an end is one with an end at first.
    async fn lock(&self, request: AcquireRequest, ttl: u64) -> bool {
        let is_granted =
            matches!(self.store.acquire(&request).await.unwrap(), AcquireReply::Granted(_));
        if is_granted && ttl == 0 {
            let (id, claims) = (request.id().clone(), request.claims().clone());
            let never = RenewRequest::new(vec![RenewEntry::extend(id, claims, Ttl::NEVER)]);
            let outcomes = self.store.renew(&never).await.unwrap().leases;
            assert!(matches!(outcomes[..], [RenewOutcome::Held(Remaining::Never)]));
        }
        is_granted
    }

    pub(crate) async fn x_lock(&self, resource: &str, id: &str, ttl: u64) -> bool {
        self.lock(request(resource, id, Mode::Exclusive, ttl), ttl).await
    }

    pub(crate) async fn s_lock(&self, resource: &str, id: &str, ttl: u64) -> bool {
        self.lock(request(resource, id, Mode::SHARED, ttl), ttl).await
    }

    pub(crate) async fn s_lock_limited(&self, resource: &str, id: &str, max: u32) -> bool {
        let mode = Mode::Shared { max: max.try_into().ok() };
        self.lock(request(resource, id, mode, 0), 0).await
    }

    async fn found(&self, filter: StatusFilter) -> Vec<(String, String)> {
        self.store.status(&filter).await.unwrap().into_iter().map(names).collect()
    }

    pub(crate) async fn all(&self) -> Vec<(String, String)> {
        self.found(StatusFilter::default()).await
    }

    /// Seconds, in the order of the locks.
    async fn ttls(&self, lock: &str) -> Vec<Option<u64>> {
        let filter = StatusFilter::default().lock_id(&id(lock));
        self.store.status(&filter).await.unwrap().iter().map(LockStatus::ttl).collect()
    }
}

async fn connect(server: &Server, collection: &str, skew: &str) -> MongodbStore {
    let options = format!("serverMonitoringMode=poll&collection={collection}&skew={skew}");
    let url = format!("{}?{options}", server.url());
    MongodbConfig::parse(&url).unwrap().connect().await.unwrap()
}

fn id(text: &str) -> LeaseId {
    LeaseId::foreign(text.as_bytes()).unwrap()
}

fn term(seconds: u64) -> Ttl {
    Duration::from_secs(seconds).try_into().unwrap()
}

pub(crate) fn request(resource: &str, lock: &str, mode: Mode, ttl: u64) -> AcquireRequest {
    let claims = Claims::one(Key::new(resource).unwrap(), mode);
    AcquireRequest::new(id(lock), claims, term(if ttl == 0 { 30 } else { ttl }))
}

fn names(lock: LockStatus) -> (String, String) {
    (lock.resource, lock.lock_id)
}

fn is(resource: &str, id: &str) -> (String, String) {
    (resource.to_owned(), id.to_owned())
}

fn of(owner: &str) -> GroupName {
    GroupName::new(owner).unwrap()
}

fn at(host: &str) -> Note {
    Note::default().with_host(host).unwrap()
}

#[tokio::test]
async fn create_indexes() {
    let setup = Setup::new().await;
    setup.store.prepare().await.unwrap();
    let expected = [
        "_id_",
        "resource_1",
        "exclusive.lockId_1",
        "exclusive.expiresAt_1",
        "shared.locks.lockId_1",
        "shared.locks.expiresAt_1",
    ];
    assert_eq!(setup.collection.list_index_names().await.unwrap(), expected);
    // They are what mongo-lock creates.
    setup.go.create_indexes().await.unwrap();
    assert_eq!(setup.collection.list_index_names().await.unwrap(), expected);
}

/// Locking again with one's own live id confirms the lock.
#[tokio::test]
async fn lock_exclusive() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("resource1", "aaaa", 0).await);
    assert!(setup.x_lock("resource2", "aaaa", 0).await);
    assert!(setup.x_lock("resource3", "bbbb", 0).await);
    assert!(setup.x_lock("resource1", "aaaa", 0).await);
    assert!(!setup.x_lock("resource1", "zzzz", 0).await);
    assert_eq!(setup.all().await.len(), 3);
    assert!(setup.x_lock("resource4", "cccc", 1).await);
    setup.passes(1_100);
    assert!(setup.x_lock("resource4", "cccc", 0).await);
}

#[tokio::test]
async fn lock_shared() {
    let setup = Setup::new().await;
    assert!(setup.s_lock_limited("resource1", "aaaa", 10).await);
    assert!(setup.s_lock_limited("resource1", "bbbb", 10).await);
    assert!(setup.s_lock_limited("resource2", "bbbb", 10).await);
    // Confirmed.
    assert!(setup.s_lock_limited("resource1", "aaaa", 10).await);
    assert_eq!(setup.all().await.len(), 3);
}

#[tokio::test]
async fn lock_max_concurrent() {
    let setup = Setup::new().await;
    assert!(setup.s_lock_limited("resource1", "aaaa", 2).await);
    assert!(setup.s_lock_limited("resource1", "bbbb", 2).await);
    assert!(!setup.s_lock_limited("resource1", "cccc", 2).await);
}

#[tokio::test]
async fn lock_interactions() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("resource1", "aaaa", 0).await);
    assert!(!setup.s_lock("resource1", "bbbb", 0).await);
    assert!(setup.s_lock("resource2", "aaaa", 0).await);
    assert!(!setup.x_lock("resource2", "bbbb", 0).await);
}
