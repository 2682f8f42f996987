//! The front end on real servers of MongoDB.

use std::future::IntoFuture as _;
use std::time::Duration;

use leasehold::{ErrorKind, Level, Locker, LostReason, Ttl, Wait};
use leasehold_testkit::mongodb::Server;
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use leasehold_testkit::{LONG, SECOND, in_time, redis, until};

use crate::mixed;

/// A replica set of one, and a `Locker` on it.
async fn setup(options: &str) -> (ReplicaSet, Locker) {
    let set = ReplicaSet::start(1).await.unwrap();
    let locks = connect(&set, options).await;
    locks.prepare().await.unwrap();
    (set, locks)
}

async fn connect(set: &ReplicaSet, options: &str) -> Locker {
    Locker::connect_unchecked(&format!("{}{options}", set.url())).await.unwrap()
}

#[tokio::test]
async fn a_lease_is_renewed_and_lost_with_its_server() {
    let (set, locks) = setup("&skew=0s&timeout=3s").await;
    let other = connect(&set, "&skew=0s").await;
    let guard = locks.lock("k").ttl(6 * SECOND).await.unwrap();
    assert!(guard.token().is_some());
    // Its first term has ended by then.
    let waited = other.lock("k").wait(7 * SECOND).await.unwrap_err();
    assert_eq!(waited.kind(), ErrorKind::TimedOut);
    assert!(guard.is_held());
    set.nodes[0].kill();
    assert_eq!(in_time(guard.lost()).await, LostReason::StoreUnreachable);
}

#[tokio::test]
async fn a_release_hands_over_to_another_process_at_once() {
    let (set, locks) = setup("").await;
    let other = connect(&set, "").await;
    // A term and a poll that are longer than the test.
    let guard = locks.lock("k").ttl(Ttl::new(120 * SECOND).unwrap()).await.unwrap();
    let mut waits = Box::pin(other.lock("k").wait(Wait::UpTo(LONG)).into_future());
    // It tries, and then listens.
    assert!(tokio::time::timeout(SECOND, &mut waits).await.is_err());
    let token = guard.token();
    guard.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_secs(3), waits).await;
    let next = next.expect("before any poll").unwrap();
    assert!(next.token() > token);
    next.release().await.unwrap();
}

/// Without wake-ups on a server alone.
#[tokio::test]
async fn a_leader_is_elected_and_followed_by_another() {
    let (set, _) = setup("").await;
    elects(&format!("{}&skew=0s", set.url())).await;
    let alone = Server::start(&[]).await.unwrap();
    elects(&format!("{}?skew=0s", alone.url())).await;
}

async fn elects(url: &str) {
    let locks = Locker::connect_unchecked(url).await.unwrap();
    locks.prepare().await.unwrap();
    let others = Locker::connect(url).await.unwrap();
    assert_eq!(others.level(), Level::Fenced);
    let first = locks.election("job").campaign().await.unwrap();
    let (token, election) = (first.token(), others.election("job"));
    let mut campaign = Box::pin(in_time(election.campaign()));
    assert!(tokio::time::timeout(SECOND, &mut campaign).await.is_err());
    first.resign().await.unwrap();
    let second = campaign.await.unwrap();
    assert!(second.is_leader() && second.token() > token);
}

#[tokio::test]
async fn a_quorum_of_different_stores_decides() {
    let (set, _) = setup("").await;
    mixed::decides(format!("{}&skew=0s", set.url()), || set.nodes[0].kill()).await;
}

#[tokio::test]
async fn a_node_of_a_fenced_quorum_has_no_clients_of_mongo_lock() {
    let (set, _) = setup("").await;
    let redis = redis::Server::start(redis::DURABLE).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", directory.path().join("locks.db").display());
    let url = |skew| {
        let nodes = [format!("{}&skew={skew}", set.url()), redis.store_url(), file.clone()];
        format!("{}&fenced=1", mixed::url(&nodes))
    };
    let error = Locker::connect(&url("1s")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("tokens that cannot be raised"), "{error}");

    let locks = Locker::connect(&url("0s")).await.unwrap();
    assert_eq!(locks.level(), Level::Fenced);
    let mut before = None;
    let mut passes = async || {
        let guard = locks.lock("k").await.unwrap();
        assert!(guard.token() > before, "{:?} after {before:?}", guard.token());
        before = guard.token();
        guard.release().await.unwrap();
    };
    passes().await;
    // Either majority without one of them continues the tokens of the other.
    redis.kill();
    passes().await;
    redis.restart().await.unwrap();
    set.nodes[0].kill();
    until(async || locks.try_lock("reaches both").await.is_ok()).await;
    passes().await;
}
