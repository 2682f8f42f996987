//! A replica set of three whose primary steps down, is killed, and is cut off, under the checker of histories.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_conformance::history::check;
use leasehold_core::{
    Claims, Effect, Error, ErrorKind, Filter, LeaseId, ListRequest, Mode, ReleaseOutcome,
    RenewOutcome, Result, Store,
};
use leasehold_mongodb::{MongodbConfig, MongodbStore};
use leasehold_testkit::contender::Habit;
use leasehold_testkit::crowd::{Crowd, Tally};
use leasehold_testkit::faulty::{Faulty, Hook, Reply, Request};
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use leasehold_testkit::requests::{acquire, granted, id, is_renewed, key, refused, until_refused};
use leasehold_testkit::{fails_within, until};

const KEYS: usize = 3;
const CLIENTS: usize = 3;
const TERM: Duration = Duration::from_secs(2);

async fn connect(set: &ReplicaSet, timeout: Duration) -> MongodbStore {
    let url = format!("{}&timeout={}ms&skew=0s", set.url(), timeout.as_millis());
    MongodbConfig::parse(&url).unwrap().connect().await.unwrap()
}

async fn start() -> (ReplicaSet, MongodbStore) {
    let set = ReplicaSet::start(3).await.unwrap();
    let store = connect(&set, 2 * TERM).await;
    store.prepare().await.unwrap();
    (set, store)
}

/// Keeps every error that the store reports.
#[derive(Debug, Clone)]
struct Watched {
    store: MongodbStore,
    errors: Arc<Mutex<Vec<(ErrorKind, String)>>>,
}

impl Watched {
    fn note(&self, error: &Error) {
        self.errors.lock().unwrap().push((error.kind(), error.to_string()));
    }
}

impl Hook for Watched {
    fn store(&self) -> impl Store {
        self.store.clone()
    }

    async fn handle(&self, request: Request) -> Result<Reply> {
        let reply = request.send_to(self.store.clone()).await;
        match &reply {
            Ok(Reply::Renew(reply)) => reply.leases.iter().for_each(|outcome| {
                if let RenewOutcome::Failed(error) = outcome {
                    self.note(error);
                }
            }),
            Ok(Reply::Release(reply)) => reply.leases.iter().for_each(|outcome| {
                if let ReleaseOutcome::Failed(error) = outcome {
                    self.note(error);
                }
            }),
            Ok(_) => {}
            Err(error) => self.note(error),
        }
        reply
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_holds_beside_another_while_primaries_step_down_and_die() {
    let (set, _) = start().await;
    let errors = Arc::new(Mutex::new(Vec::new()));
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let store = connect(&set, TERM).await;
        let store = Faulty(Watched { store, errors: Arc::clone(&errors) });
        for at in 0..KEYS {
            let claims = Claims::one(key(&format!("job {at}")), Mode::Exclusive);
            clients.push((store.clone(), Habit { claims, term: TERM, hold: 300, rest: 60 }));
        }
    }
    let crowd = Crowd::start(clients);
    crowd.continues(8).await;
    set.step_down().await.unwrap();
    crowd.continues(8).await;
    let old = set.primary().await;
    old.kill();
    crowd.continues(8).await;
    old.restart().await.unwrap();
    set.until_well().await;
    set.step_down().await.unwrap();
    crowd.continues(8).await;
    let (history, _) = crowd.stop().await;
    let tally = Tally::of(&history);
    let errors = std::mem::take(&mut *errors.lock().unwrap());
    println!("{tally}, {} errors", errors.len());
    let found = check(&history);
    assert!(found.is_empty(), "{} violations: {}", found.len(), found[0]);
    let other = errors.iter().find(|(kind, _)| *kind != ErrorKind::Unavailable);
    assert_eq!(other, None);
    assert!(tally.kept >= 10 && tally.refused >= 10 && !errors.is_empty(), "too little happened");
}

#[tokio::test]
async fn a_granted_lease_outlives_the_server_that_granted_it() {
    let (set, store) = start().await;
    let token = granted(store.acquire(&acquire("k", "holder", Mode::Exclusive)).await).token;
    set.primary().await.kill();
    set.primary().await;
    until_refused(&store, "k").await;
    is_renewed(&store, "k", "holder", Mode::Exclusive).await;
    let next = granted(store.acquire(&acquire("other", "holder", Mode::Exclusive)).await);
    assert!(token.is_some() && next.token.is_some());
    let held = store.list(&ListRequest::new(Filter::default().with_key(key("k")))).await.unwrap();
    assert_eq!(held.records[0].token, token);
}

/// What only the primary has was not granted.
#[tokio::test]
async fn a_write_without_a_majority_is_no_grant() {
    let (set, store) = start().await;
    let limit = Duration::from_secs(1);
    let hasty = connect(&set, limit).await;
    // Its connection is there.
    let before = acquire("before", "a", Mode::Exclusive);
    until(async || hasty.acquire(&before).await.is_ok()).await;
    let primary = set.primary().await.port();
    let others: Vec<_> = set.nodes.iter().filter(|node| node.port() != primary).collect();
    others.iter().for_each(|node| node.pause());
    let request = acquire("k", "a", Mode::Exclusive);
    let error = fails_within(limit, hasty.acquire(&request)).await;
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
    others.iter().for_each(|node| node.resume());
    set.until_well().await;
    until(async || holders(&store, "k").await.is_some()).await;
    let holders = holders(&store, "k").await.unwrap();
    assert!(holders.is_empty() || holders == [id("a")], "{holders:?}");
    // Whether it was kept is learned by the same request.
    granted(store.acquire(&request.again(None)).await);
    refused(store.acquire(&acquire("k", "b", Mode::Exclusive)).await);
}

/// Those who hold a key; `None` while no server can tell.
async fn holders(store: &MongodbStore, name: &str) -> Option<Vec<LeaseId>> {
    let listed = store.list(&ListRequest::new(Filter::default().with_key(key(name)))).await.ok()?;
    Some(listed.records.into_iter().filter_map(|record| record.id).collect())
}
