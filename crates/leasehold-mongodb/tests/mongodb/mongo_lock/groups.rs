use leasehold_core::ErrorKind;

use super::*;

fn resources(locks: Vec<LockStatus>) -> Vec<String> {
    locks.into_iter().map(|lock| lock.resource).collect()
}

#[tokio::test]
async fn unlock() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("resource1", "aaaa", 0).await);
    let unlocked = setup.store.unlock(&id("aaaa")).await.all().unwrap();
    assert_eq!(resources(unlocked), ["resource1"]);
    assert!(setup.s_lock("resource2", "bbbb", 0).await);
    let unlocked = setup.store.unlock(&id("bbbb")).await.all().unwrap();
    assert_eq!(resources(unlocked), ["resource2"]);
    assert!(setup.store.unlock(&id("zzzz")).await.all().unwrap().is_empty());
    // Both are free.
    assert!(
        setup.x_lock("resource1", "zzzz", 0).await && setup.x_lock("resource2", "zzzz", 0).await
    );
}

#[tokio::test]
async fn unlock_order() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("resource1", "aaaa", 0).await);
    assert!(setup.s_lock("resource4", "aaaa", 0).await);
    assert!(setup.x_lock("resource3", "bbbb", 0).await);
    assert!(setup.s_lock("resource2", "bbbb", 0).await);
    assert!(setup.s_lock("resource2", "aaaa", 0).await);
    let unlocked = setup.store.unlock(&id("aaaa")).await.all().unwrap();
    assert_eq!(resources(unlocked), ["resource2", "resource4", "resource1"]);
    assert_eq!(setup.all().await, [is("resource2", "bbbb"), is("resource3", "bbbb")]);
}

#[tokio::test]
async fn renew() {
    let setup = Setup::new().await;
    assert!(setup.s_lock("resource4", "cccc", 3_600).await);
    assert!(setup.x_lock("resource1", "aaaa", 3_600).await);
    assert!(setup.s_lock("resource4", "aaaa", 3_600).await);
    assert!(setup.x_lock("resource3", "bbbb", 0).await);
    assert!(setup.s_lock("resource2", "bbbb", 0).await);
    assert!(setup.s_lock("resource2", "aaaa", 3_600).await);
    let renewed = setup.store.renew_all(&id("aaaa"), term(7_200)).await.all().unwrap();
    let ttls: Vec<_> = renewed.iter().map(LockStatus::ttl).collect();
    assert_eq!(ttls, [Some(7_201); 3]);
    assert!(renewed.iter().all(|lock| lock.renewed_at.is_some()));
    assert_eq!(resources(renewed), ["resource2", "resource4", "resource1"]);
    assert_eq!(setup.ttls("cccc").await, [Some(3_601)]);
    assert_eq!(setup.ttls("bbbb").await, [None; 2]);
}

#[tokio::test]
async fn renew_lock_id_not_found() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("resource1", "aaaa", 3_600).await);
    let renewed = setup.store.renew_all(&id("bbbb"), term(7_200)).await;
    assert!(renewed.locks.is_empty());
    assert_eq!(renewed.error.unwrap().kind(), ErrorKind::Lost);
}

/// A lock with less than a second left is renewed too; one that has ended is not.
#[tokio::test]
async fn renew_ttl_expired() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("resource1", "aaaa", 3_600).await);
    assert!(setup.s_lock("resource4", "aaaa", 1).await);
    setup.passes(999);
    assert_eq!(setup.store.renew_all(&id("aaaa"), term(1)).await.all().unwrap().len(), 2);
    setup.passes(1_000);
    let renewed = setup.store.renew_all(&id("aaaa"), term(7_200)).await;
    assert_eq!(resources(renewed.locks), ["resource1"]);
    assert_eq!(renewed.error.unwrap().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_renewal_shortens_nothing_and_ends_nothing() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("resource1", "aaaa", 3_600).await);
    assert!(setup.x_lock("resource2", "aaaa", 0).await);
    assert_eq!(setup.store.renew_all(&id("aaaa"), term(1)).await.all().unwrap().len(), 2);
    assert_eq!(setup.ttls("aaaa").await, [None, Some(3_601)]);
}

/// The holder of a lock of ours learns of an unlock by its next renewal.
#[tokio::test]
async fn the_holder_of_an_unlocked_lock_has_lost_it() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("resource1", "aaaa", 3_600).await);
    let _ = setup.store.unlock(&id("aaaa")).await.all().unwrap();
    let claims = Claims::one(Key::new("resource1").unwrap(), Mode::Exclusive);
    let renewal = RenewRequest::new(vec![RenewEntry::extend(id("aaaa"), claims, term(10))]);
    let outcomes = setup.store.renew(&renewal).await.unwrap().leases;
    assert!(matches!(outcomes[..], [RenewOutcome::Lost(_)]));
}

#[tokio::test]
async fn purge() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("resource1", "aaaa", 0).await);
    assert!(setup.x_lock("resource2", "bbbb", 1).await);
    assert!(setup.s_lock("resource3", "cccc", 1).await);
    setup.passes(1_999);
    assert!(setup.store.purge_groups().await.all().unwrap().is_empty());
    setup.passes(1);
    let purged = setup.store.purge_groups().await.all().unwrap();
    assert_eq!(resources(purged), ["resource3", "resource2"]);
    assert_eq!(setup.all().await, [is("resource1", "aaaa")]);
}

#[tokio::test]
async fn purge_same_lock_id_diff_ttls() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("resource1", "aaaa", 0).await);
    assert!(setup.x_lock("resource2", "aaaa", 30).await);
    assert!(setup.s_lock("resource3", "aaaa", 1).await);
    setup.passes(2_000);
    let purged = setup.store.purge_groups().await.all().unwrap();
    assert_eq!(resources(purged), ["resource3", "resource2", "resource1"]);
    assert_eq!(setup.all().await, []);
}

/// A store that is down is an error, and the lock is still there.
#[tokio::test]
async fn an_unlock_that_fails_is_an_error() {
    let setup = Setup::new().await;
    assert!(setup.x_lock("resource1", "aaaa", 3_600).await);
    // Refuses the second step and not the first.
    let keep_locked = leasehold_mongodb::mongodb::bson::doc! {
        "collMod": setup.collection.name(),
        "validator": { "exclusive.acquired": true },
    };
    setup.server.command(DATABASE, keep_locked).await.unwrap();
    let unlocked = setup.store.unlock(&id("aaaa")).await;
    assert!(unlocked.locks.is_empty());
    let error = unlocked.error.unwrap().to_string();
    assert!(error.contains("unlock") && error.contains("validation"), "{error}");
    assert_eq!(setup.all().await.len(), 1);
}
