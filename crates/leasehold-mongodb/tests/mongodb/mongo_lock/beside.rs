//! The same functions on locks of mongo-lock.

use leasehold_testkit::mongodb::mongo_lock::{Filter, LockDetails};

use super::*;

impl Setup {
    async fn go_locks(&self, resource: &str, lock: &str, ttl: u32) {
        self.go.x_lock(resource, lock, &LockDetails::ttl(ttl)).await.unwrap();
    }

    async fn go_shares(&self, resource: &str, lock: &str, ttl: u32) {
        self.go.s_lock(resource, lock, &LockDetails::ttl(ttl), -1).await.unwrap();
    }
}

#[tokio::test]
async fn both_sides_show_the_same_locks() {
    let setup = Setup::new().await;
    setup.go_locks("x", "aaaa", 60).await;
    setup.go_shares("s", "bbbb", 0).await;
    assert!(setup.s_lock("s", "cccc", 60).await);
    let ours = setup.store.status(&StatusFilter::default()).await.unwrap();
    let theirs = setup.go.status(&Filter::default()).await.unwrap();
    assert_eq!((ours.len(), theirs.len()), (3, 3));
    for lock in &ours {
        let their = theirs.iter().find(|their| their.lock_id == lock.lock_id).unwrap();
        let ttl = lock.ttl().map_or(-1, |ttl| i64::try_from(ttl).unwrap());
        assert_eq!((&lock.resource, ttl), (&their.resource, their.ttl));
        assert_eq!(lock.token.is_some(), lock.lock_id == "cccc");
    }
}

#[tokio::test]
async fn locks_of_both_sides_are_unlocked_and_leave_what_the_other_side_takes() {
    let setup = Setup::new().await;
    setup.go_locks("x", "aaaa", 60).await;
    setup.go_shares("s", "aaaa", 60).await;
    setup.go_shares("s", "bbbb", 60).await;
    assert!(setup.s_lock("s", "cccc", 60).await);
    assert_eq!(setup.store.unlock(&id("aaaa")).await.all().unwrap().len(), 2);
    assert_eq!(setup.store.unlock(&id("cccc")).await.all().unwrap().len(), 1);
    assert_eq!(setup.all().await, [is("s", "bbbb")]);
    assert_eq!(setup.store.unlock(&id("bbbb")).await.all().unwrap().len(), 1);
    setup.go_locks("x", "dddd", 60).await;
    setup.go_locks("s", "dddd", 60).await;
}

#[tokio::test]
async fn a_lock_of_mongo_lock_is_renewed_for_both_sides() {
    let setup = Setup::new().await;
    setup.go_locks("x", "aaaa", 60).await;
    setup.go_shares("s", "aaaa", 60).await;
    assert_eq!(setup.store.renew_all(&id("aaaa"), term(600)).await.all().unwrap().len(), 2);
    setup.passes(590_000);
    assert!(!setup.x_lock("x", "bbbb", 1).await && !setup.x_lock("s", "bbbb", 1).await);
    assert_eq!(setup.go.renew("aaaa", 60).await.all().unwrap().len(), 2);
}

/// Until then a client whose clock is slow may hold it.
#[tokio::test]
async fn a_purge_takes_a_lock_of_mongo_lock_after_the_skew() {
    let setup = Setup::new().await;
    setup.go_locks("x", "aaaa", 1).await;
    setup.passes(1_999);
    assert!(setup.store.purge_groups().await.all().unwrap().is_empty());
    setup.passes(1);
    assert_eq!(setup.store.purge_groups().await.all().unwrap().len(), 1);
}

/// An id that no lease can have, and which for mongo-lock means every lock.
#[tokio::test]
async fn an_empty_id_is_its_own_group() {
    let setup = Setup::new().await;
    setup.go_locks("x", "", 1).await;
    setup.go_locks("y", "aaaa", 60).await;
    setup.passes(2_000);
    assert_eq!(setup.store.purge_groups().await.all().unwrap().len(), 1);
    assert_eq!(setup.all().await, [is("y", "aaaa")]);
}
