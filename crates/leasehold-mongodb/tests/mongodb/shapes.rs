//! Batches that send a short update, which only simple documents fit.

use futures_util::future::join_all;
use leasehold_core::{
    FencingToken, Granted, Mode, ReleaseEntry, ReleaseOutcome, ReleaseRequest, Store as _,
};
use leasehold_mongodb::MongodbStore;
use leasehold_mongodb::mongodb::bson::{DateTime, doc};
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use leasehold_testkit::requests::{acquire, acquire_for, granted, id, key, refused};

use crate::late::TERM;
use crate::on_clock::OnClock;
use crate::race::Setup;

const NAMES: [&str; 3] = ["j", "k", "l"];

async fn acquire_all(store: &MongodbStore, lease: &str, mode: Mode) -> Vec<Granted> {
    let requests = NAMES.map(|name| acquire(name, lease, mode));
    join_all(requests.iter().map(|request| store.acquire(request)))
        .await
        .into_iter()
        .map(granted)
        .collect()
}

async fn release_all(store: &MongodbStore, lease: &str) -> Vec<ReleaseOutcome> {
    let entries = NAMES.map(|name| ReleaseEntry::new(id(lease), [key(name)]));
    store.release(&ReleaseRequest::new(entries.to_vec())).await.unwrap().leases
}

fn all_released(outcomes: &[ReleaseOutcome]) -> bool {
    outcomes.iter().all(|one| matches!(one, ReleaseOutcome::Released))
}

/// What the server has received, in bytes.
async fn received(set: &ReplicaSet) -> i64 {
    let status = set.nodes[0].command("admin", doc! { "serverStatus": 1 }).await.unwrap();
    status.get_document("network").unwrap().get_i64("bytesIn").unwrap()
}

#[tokio::test]
async fn batches_about_exclusive_leases_are_short() {
    let set = ReplicaSet::start(1).await.unwrap();
    let store = MongodbStore::connect(&set.url()).await.unwrap();
    store.prepare().await.unwrap();
    let mut bytes = [0; 2];
    for (mode, bytes) in [Mode::SHARED, Mode::Exclusive].into_iter().zip(&mut bytes) {
        for lease in ["a", "b"] {
            let before = received(&set).await;
            acquire_all(&store, lease, mode).await;
            assert!(all_released(&release_all(&store, lease).await));
            *bytes = received(&set).await - before;
        }
    }
    let [shared, exclusive] = bytes;
    assert!(exclusive * 2 < shared, "{exclusive} and {shared} bytes");
}

#[tokio::test]
async fn documents_that_were_deleted_are_created_again() {
    let setup = Setup::new().await;
    acquire_all(&setup.proxied, "a", Mode::Exclusive).await;
    assert!(all_released(&release_all(&setup.proxied, "a").await));
    assert_eq!(setup.locks().delete_many(doc! {}).await.unwrap().deleted_count, 3);
    acquire_all(&setup.proxied, "b", Mode::Exclusive).await;
    assert_eq!(setup.locks().count_documents(doc! {}).await.unwrap(), 3);
    assert!(all_released(&release_all(&setup.proxied, "b").await));
}

/// Another store has evicted a lease of each key meanwhile.
#[tokio::test]
async fn a_release_ends_a_lease_beside_marks_that_the_store_has_not_seen() {
    let setup = Setup::new().await;
    acquire_all(&setup.proxied, "a", Mode::Exclusive).await;
    let until = DateTime::from_millis(DateTime::now().timestamp_millis() + 3_600_000);
    let mark = doc! { "$set": { "evicted": [{ "lockId": "z", "token": 1_i64, "until": until }] } };
    assert_eq!(setup.locks().update_many(doc! {}, mark).await.unwrap().modified_count, 3);
    let released = release_all(&setup.proxied, "a").await;
    assert!(all_released(&released), "{released:?}");
    // The mark counts for the lease that was evicted, and for no other.
    acquire_all(&setup.proxied, "b", Mode::Exclusive).await;
}

/// Another program has shared each key since the store saw its document.
#[tokio::test]
async fn a_key_is_refused_that_is_shared_by_now() {
    let setup = Setup::new().await;
    acquire_all(&setup.proxied, "a", Mode::Exclusive).await;
    assert!(all_released(&release_all(&setup.proxied, "a").await));
    acquire_all(&setup.direct, "b", Mode::SHARED).await;
    // The second time, the store has seen the shared locks, and has the server decide.
    for _ in 0..2 {
        let requests = NAMES.map(|name| acquire(name, "c", Mode::Exclusive));
        for reply in join_all(requests.iter().map(|request| setup.proxied.acquire(request))).await {
            refused(reply);
        }
    }
    let requests = NAMES.map(|name| acquire(name, "c", Mode::SHARED));
    for reply in join_all(requests.iter().map(|request| setup.proxied.acquire(request))).await {
        granted(reply);
    }
}

#[tokio::test]
async fn leases_that_are_held_are_confirmed() {
    let setup = Setup::new().await;
    let first = acquire_all(&setup.proxied, "a", Mode::Exclusive).await;
    let renewed = async || {
        let are_renewed = doc! { "exclusive.renewedAt": { "$type": "date" } };
        setup.locks().count_documents(are_renewed).await.unwrap()
    };
    assert!(first.iter().all(|one| one.fresh) && renewed().await == 0, "{first:?}");
    let again = acquire_all(&setup.proxied, "a", Mode::Exclusive).await;
    assert!(again.iter().all(|one| !one.fresh) && renewed().await == 3, "{again:?}");
    assert!(first.iter().zip(&again).all(|(first, again)| first.token == again.token));
}

#[tokio::test]
async fn keys_whose_leases_have_expired_are_granted() {
    let on = OnClock::new().await;
    for name in NAMES {
        granted(on.store.acquire(&acquire_for(name, "a", Mode::Exclusive, TERM)).await);
    }
    on.passes(2 * u64::try_from(TERM.as_millis()).unwrap());
    let granted = acquire_all(&on.store, "b", Mode::Exclusive).await;
    assert!(granted.iter().all(|one| one.fresh), "{granted:?}");
    assert!(
        release_all(&on.store, "a").await.iter().all(|one| matches!(one, ReleaseOutcome::NotHeld))
    );
    assert!(all_released(&release_all(&on.store, "b").await));
}

#[tokio::test]
async fn a_release_that_comes_late_is_told_so() {
    let on = OnClock::new().await;
    for name in NAMES {
        granted(on.store.acquire(&acquire_for(name, "a", Mode::Exclusive, TERM)).await);
    }
    on.passes(2 * u64::try_from(TERM.as_millis()).unwrap());
    let released = release_all(&on.store, "a").await;
    let is_expired = |one: &ReleaseOutcome| matches!(one, ReleaseOutcome::Expired);
    assert!(released.iter().all(is_expired), "{released:?}");
}

#[tokio::test]
async fn a_batch_may_have_leases_of_both_modes() {
    let setup = Setup::new().await;
    for lease in ["a", "b"] {
        let modes = [Mode::Exclusive, Mode::SHARED, Mode::Exclusive];
        let requests: Vec<_> =
            NAMES.iter().zip(modes).map(|(name, mode)| acquire(name, lease, mode)).collect();
        for reply in join_all(requests.iter().map(|request| setup.proxied.acquire(request))).await {
            assert!(granted(reply).fresh);
        }
        refused(setup.direct.acquire(&acquire("k", "z", Mode::Exclusive)).await);
        granted(setup.direct.acquire(&acquire("k", "z", Mode::SHARED)).await);
        for name in ["j", "l"] {
            refused(setup.direct.acquire(&acquire(name, "z", Mode::SHARED)).await);
        }
        assert!(all_released(&release_all(&setup.proxied, lease).await));
        let left = ReleaseRequest::new(vec![ReleaseEntry::new(id("z"), [key("k")])]);
        assert!(all_released(&setup.direct.release(&left).await.unwrap().leases));
    }
}

#[tokio::test]
async fn a_release_by_another_token_ends_nothing() {
    let setup = Setup::new().await;
    let held = acquire_all(&setup.proxied, "a", Mode::Exclusive).await;
    let entries = NAMES.iter().zip(&held).map(|(name, granted)| {
        let token = granted.token.unwrap().get() + 1;
        ReleaseEntry::new(id("a"), [key(name)]).with_token(FencingToken::new(token).unwrap())
    });
    let releases = ReleaseRequest::new(entries.collect());
    let released = setup.proxied.release(&releases).await.unwrap().leases;
    assert!(released.iter().all(|one| matches!(one, ReleaseOutcome::NotHeld)), "{released:?}");
    assert!(all_released(&release_all(&setup.proxied, "a").await));
}
