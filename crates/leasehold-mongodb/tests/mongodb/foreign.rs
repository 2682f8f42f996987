//! Clients of mongo-lock beside the store, in both directions.

use leasehold_core::{
    AcquireReply, EvictRequest, Expired, FencingToken, Filter, ListRequest, Mode, RenewEntry,
    RenewOutcome, RenewRequest, Store as _,
};
use leasehold_mongodb::MongodbStore;
use leasehold_mongodb::mongodb::bson::{Bson, doc};
use leasehold_testkit::mongodb::mongo_lock::{LockDetails, MongoLockError};

use crate::mongo_lock::{Setup, request};

impl Setup {
    async fn go_x_lock(&self, resource: &str, id: &str, ttl: u32) -> bool {
        taken(self.go.x_lock(resource, id, &LockDetails::ttl(ttl)).await)
    }

    async fn go_s_lock(&self, resource: &str, id: &str, ttl: u32) -> bool {
        taken(self.go.s_lock(resource, id, &LockDetails::ttl(ttl), -1).await)
    }

    /// The token of a grant.
    async fn token(&self, resource: &str, id: &str, ttl: u64) -> FencingToken {
        let request = request(resource, id, Mode::Exclusive, ttl);
        match self.store.acquire(&request).await.unwrap() {
            AcquireReply::Granted(granted) => granted.token.unwrap(),
            refused => panic!("{refused:?}"),
        }
    }

    /// Whether its holder can renew a lock of ours.
    async fn is_renewed(&self, resource: &str, id: &str, mode: Mode, ttl: u64) -> bool {
        let of = request(resource, id, mode, ttl);
        let entry = RenewEntry::extend(of.id().clone(), of.claims().clone(), of.term());
        let outcomes = self.store.renew(&RenewRequest::new(vec![entry])).await.unwrap().leases;
        match &outcomes[..] {
            [RenewOutcome::Held(_)] => true,
            [RenewOutcome::Lost(_)] => false,
            other => panic!("{other:?}"),
        }
    }

    /// How many a purge of ours removes.
    async fn purged(&self) -> usize {
        purged(&self.store).await
    }

    /// The counter of a resource is the number of its shared locks, which is this.
    async fn is_shared_by(&self, resource: &str, holders: usize) {
        let document = self.collection.find_one(doc! { "resource": resource }).await.unwrap();
        let shared = document.unwrap().get_document("shared").unwrap().clone();
        assert_eq!(shared.get_array("locks").unwrap().len(), holders);
        let count = match shared.get("count") {
            Some(Bson::Int32(count)) => i64::from(*count),
            Some(Bson::Int64(count)) => *count,
            other => panic!("{other:?}"),
        };
        assert_eq!(count, i64::try_from(holders).unwrap());
    }
}

async fn purged(store: &MongodbStore) -> usize {
    let expired = EvictRequest::expired(Filter::default()).with_limit(100);
    store.evict(&expired).await.unwrap().removed.len()
}

fn taken(outcome: Result<(), MongoLockError>) -> bool {
    match outcome {
        Ok(()) => true,
        Err(MongoLockError::AlreadyLocked) => false,
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn both_sides_exclude_each_other() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("x", "aaaa", 60).await);
    assert!(!setup.go_x_lock("x", "bbbb", 60).await && !setup.go_s_lock("x", "bbbb", 60).await);
    assert!(setup.go_x_lock("y", "aaaa", 60).await);
    assert!(!setup.x_lock("y", "bbbb", 60).await && !setup.s_lock("y", "bbbb", 60).await);
    // Nor is it a confirmation that another client has this id.
    assert!(!setup.x_lock("y", "aaaa", 60).await);
}

#[tokio::test]
async fn both_sides_share() {
    let setup = Setup::new().await;
    assert!(setup.s_lock("s", "aaaa", 60).await && setup.go_s_lock("s", "bbbb", 60).await);
    assert!(setup.s_lock("s", "cccc", 60).await);
    setup.is_shared_by("s", 3).await;
    assert!(!setup.x_lock("s", "dddd", 60).await && !setup.go_x_lock("s", "dddd", 60).await);
    assert!(!setup.s_lock_limited("s", "dddd", 3).await);
    let limited = setup.go.s_lock("s", "dddd", &LockDetails::ttl(60), 3).await;
    assert!(!taken(limited));
    let _ = setup.go.unlock("bbbb").await.all().unwrap();
    setup.is_shared_by("s", 2).await;
    let _ = setup.go.unlock("aaaa").await.all().unwrap();
    assert!(!setup.is_renewed("s", "aaaa", Mode::SHARED, 60).await);
    assert!(setup.is_renewed("s", "cccc", Mode::SHARED, 60).await);
    setup.is_shared_by("s", 1).await;
}

/// The holder's term is 10 s, and nobody else gets the key before the clocks of all say so.
#[tokio::test]
async fn a_lock_ends_for_the_other_side_after_the_skew() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("ours", "aaaa", 10).await);
    assert!(setup.go_x_lock("theirs", "aaaa", 10).await);
    let ahead = setup.go.ahead(1_000);
    setup.passes(9_999);
    assert!(!taken(ahead.x_lock("ours", "bbbb", &LockDetails::ttl(1)).await));
    assert!(setup.is_renewed("ours", "aaaa", Mode::Exclusive, 1).await);
    setup.passes(1_000);
    // At its end, for a clock that is a second ahead.
    assert!(!setup.is_renewed("ours", "aaaa", Mode::Exclusive, 1).await);
    assert!(!setup.go_x_lock("ours", "bbbb", 1).await);
    assert!(!setup.x_lock("theirs", "bbbb", 1).await && !setup.s_lock("theirs", "bbbb", 1).await);
    assert!(taken(ahead.x_lock("ours", "bbbb", &LockDetails::ttl(1)).await));
    setup.passes(1);
    assert!(setup.x_lock("theirs", "bbbb", 1).await);
}

#[tokio::test]
async fn what_has_ended_of_either_mode_is_no_obstacle_to_us() {
    let setup = Setup::new().await;
    assert!(setup.go_x_lock("x", "aaaa", 1).await && setup.go_s_lock("s", "aaaa", 1).await);
    assert!(setup.go_s_lock("limited", "aaaa", 1).await);
    assert!(setup.x_lock("own x", "aaaa", 1).await && setup.s_lock("own s", "aaaa", 1).await);
    setup.passes(2_000);
    assert!(setup.s_lock("x", "bbbb", 60).await && setup.x_lock("s", "bbbb", 60).await);
    assert!(setup.s_lock("own x", "bbbb", 60).await && setup.x_lock("own s", "bbbb", 60).await);
    assert!(setup.s_lock_limited("limited", "bbbb", 1).await);
    for (resource, holders) in [("x", 1), ("s", 0), ("own x", 1), ("own s", 0), ("limited", 1)] {
        setup.is_shared_by(resource, holders).await;
    }
}

#[tokio::test]
async fn what_has_ended_of_ours_keeps_mongo_lock_out_until_a_purge() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("x", "aaaa", 1).await && setup.s_lock("s", "aaaa", 1).await);
    setup.passes(1_999);
    assert_eq!(setup.purged().await, 0);
    setup.passes(1);
    assert!(!setup.go_s_lock("x", "bbbb", 60).await && !setup.go_x_lock("s", "bbbb", 60).await);
    assert_eq!(setup.purged().await, 2);
    assert!(setup.go_s_lock("x", "bbbb", 60).await && setup.go_x_lock("s", "bbbb", 60).await);
}

#[tokio::test]
async fn a_purge_of_ours_takes_locks_of_mongo_lock_after_the_skew() {
    let setup = Setup::new().await;
    assert!(setup.go_x_lock("x", "aaaa", 1).await && setup.go_s_lock("s", "aaaa", 1).await);
    assert!(setup.go_x_lock("y", "aaaa", 60).await);
    setup.passes(1_999);
    assert_eq!(setup.purged().await, 0);
    setup.passes(1);
    assert_eq!(setup.purged().await, 2);
    assert_eq!(setup.all().await.len(), 1);
}

#[tokio::test]
async fn first_shared_locks_at_one_time_are_all_granted() {
    let setup = Setup::new().await;
    for resource in 0..100 {
        let resource = format!("r{resource}");
        let ids: Vec<_> = (0..16).map(|id| id.to_string()).collect();
        let locks = ids.iter().map(|id| setup.s_lock(&resource, id, 60));
        assert!(futures_util::future::join_all(locks).await.into_iter().all(|granted| granted));
        setup.is_shared_by(&resource, 16).await;
    }
}

/// A hazard of `.lease_id`.
#[tokio::test]
async fn an_unlock_of_mongo_lock_ends_a_lease_under_its_holder() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("x", "aaaa", 60).await);
    assert_eq!(setup.go.unlock("aaaa").await.all().unwrap().len(), 1);
    assert!(setup.x_lock("x", "bbbb", 60).await);
    assert!(!setup.is_renewed("x", "aaaa", Mode::Exclusive, 60).await);
}

/// A hazard of `.lease_id`.
#[tokio::test]
async fn a_renewal_of_mongo_lock_may_shorten_a_lease_under_its_holder() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("x", "aaaa", 60).await);
    assert_eq!(setup.go.renew("aaaa", 2).await.all().unwrap().len(), 1);
    // It still is ours.
    assert!(setup.is_renewed("x", "aaaa", Mode::Exclusive, 60).await);
    assert_eq!(setup.go.renew("aaaa", 0).await.all().unwrap().len(), 1);
    assert!(!setup.is_renewed("x", "aaaa", Mode::Exclusive, 60).await);
    assert!(setup.x_lock("x", "bbbb", 60).await);
}

/// A hazard of one `.lease_id` for several locks.
#[tokio::test]
async fn a_purge_of_mongo_lock_removes_all_locks_of_an_id() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("x", "aaaa", 1).await && setup.x_lock("y", "aaaa", 60).await);
    assert!(setup.x_lock("z", "bbbb", 60).await);
    setup.passes(2_001);
    assert_eq!(setup.go.purge().await.all().unwrap().len(), 2);
    assert!(!setup.is_renewed("y", "aaaa", Mode::Exclusive, 60).await);
    assert!(setup.is_renewed("z", "bbbb", Mode::Exclusive, 60).await);
}

#[tokio::test]
async fn tokens_grow_through_takeovers_and_collections_of_mongo_lock() {
    let setup = Setup::new().await;
    let first = setup.token("x", "aaaa", 1).await;
    setup.passes(2_000);
    assert!(setup.go_x_lock("x", "bbbb", 1).await);
    assert!(!setup.is_renewed("x", "aaaa", Mode::Exclusive, 1).await);
    setup.passes(2_000);
    let second = setup.token("x", "aaaa", 1).await;
    assert!(second > first);
    assert_eq!(setup.go.unlock("aaaa").await.all().unwrap().len(), 1);
    // Within one millisecond: the counter is still there.
    let third = setup.token("x", "cccc", 1).await;
    assert!(third > second);
    assert_eq!(setup.go.unlock("cccc").await.all().unwrap().len(), 1);
    setup.go.gc().await.unwrap();
    assert_eq!(setup.collection.count_documents(doc! {}).await.unwrap(), 0);
    setup.passes(1);
    assert!(setup.token("x", "aaaa", 1).await > third);
}

#[tokio::test]
async fn values_beyond_our_limits_are_listed_without_an_id() {
    let setup = Setup::new().await;
    let long = LockDetails { comment: "x".repeat(10_000), ..LockDetails::ttl(60) };
    setup.go.x_lock("id", &"i".repeat(256), &long).await.unwrap();
    setup.go.x_lock("", "aaaa", &LockDetails::ttl(60)).await.unwrap();
    setup.go.s_lock("empty", "", &LockDetails::ttl(60), -1).await.unwrap();
    let all = ListRequest::new(Filter::default().with_expired(Expired::In));
    let listed = setup.store.list(&all).await.unwrap();
    assert_eq!(listed.records.len(), 2);
    assert!(listed.records.iter().all(|record| record.id.is_none() && record.token.is_none()));
    assert_eq!(listed.unreadable.len(), 1);
    assert!(!setup.x_lock("id", "bbbb", 60).await && !setup.x_lock("empty", "bbbb", 60).await);
    assert!(setup.s_lock("empty", "bbbb", 60).await);
    setup.is_shared_by("empty", 2).await;
}

/// Each lock has its own skew.
#[tokio::test]
async fn stores_with_and_without_a_skew_exclude_each_other() {
    let setup = Setup::new().await;
    let alone = setup.store_with_skew("0").await;
    let of_alone = request("alone", "aaaa", Mode::Exclusive, 10);
    assert!(matches!(alone.acquire(&of_alone).await.unwrap(), AcquireReply::Granted(_)));
    assert!(setup.x_lock("ours", "aaaa", 10).await);
    let other = |resource| request(resource, "bbbb", Mode::Exclusive, 10);
    setup.passes(9_500);
    assert_eq!((setup.purged().await, purged(&alone).await), (0, 0));
    assert!(!setup.x_lock("alone", "bbbb", 10).await);
    setup.passes(500);
    let refused = alone.acquire(&other("ours")).await.unwrap();
    assert!(matches!(refused, AcquireReply::Refused(_)));
    assert!(setup.x_lock("alone", "bbbb", 10).await);
    setup.passes(1_000);
    assert!(matches!(alone.acquire(&other("ours")).await.unwrap(), AcquireReply::Granted(_)));
}
