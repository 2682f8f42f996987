//! What the front end does on every SQL server.

use leasehold::{ErrorKind, Locker, LostReason, Ttl};
use leasehold_testkit::sql::SqlTestServer;
use leasehold_testkit::{SECOND, in_time};

use crate::{mixed, stalls};

/// The tests on this server.
macro_rules! sql_tests {
    ($server:ty: $($name:ident)+) => {$(
        #[tokio::test]
        async fn $name() {
            crate::sql::$name::<$server>().await;
        }
    )+};
    ($server:ty) => {
        crate::sql::sql_tests! { $server:
            a_database_that_is_not_prepared_is_refused_with_the_way_to_prepare_it
            locks_of_every_kind_are_held_renewed_and_lost
            short_leases_outlive_dead_connections
            a_leader_is_elected_and_followed_by_another
            a_quorum_of_different_stores_decides
        }
    };
}

pub(crate) use sql_tests;

pub(crate) async fn setup<S: SqlTestServer>() -> (S, Locker) {
    let server = S::start(&[]).await.unwrap();
    let locks = Locker::connect_unchecked(&server.url("")).await.unwrap();
    locks.prepare().await.unwrap();
    (server, locks)
}

pub(crate) async fn a_database_that_is_not_prepared_is_refused_with_the_way_to_prepare_it<
    S: SqlTestServer,
>() {
    let server = S::start(&[]).await.unwrap();
    let error = Locker::connect(&server.url("")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("`Locker::prepare`"), "{error}");
    let locks = Locker::connect_unchecked(&server.url("")).await.unwrap();
    let error = locks.try_lock("k").await.unwrap_err();
    assert!(error.to_string().contains("`Locker::prepare`"), "{error}");
    locks.prepare().await.unwrap();
    Locker::connect(&server.url(""))
        .await
        .unwrap()
        .lock("k")
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

pub(crate) async fn locks_of_every_kind_are_held_renewed_and_lost<S: SqlTestServer>() {
    let (server, locks) = setup::<S>().await;
    let all = locks.lock_all(["a", "b"]).await.unwrap();
    let one = locks.lock("one").ttl(4 * SECOND).await.unwrap();
    let ever = locks.lock("ever").ttl(Ttl::NEVER).await.unwrap();
    let shared =
        (locks.lock("s").permits(2).await.unwrap(), locks.lock("s").permits(2).await.unwrap());
    assert!(locks.try_lock("s").permits(2).await.unwrap().is_none());
    assert!(locks.try_lock("b").await.unwrap().is_none());
    // For longer than its term: it is renewed after a third.
    stalls::renewed([&one], 3).await;
    for guard in [&all, &one, &ever, &shared.0, &shared.1] {
        guard.verify().await.unwrap();
    }
    let (leases, free, key) = (S::LEASES, S::FREE, S::KEY);
    server.ask(&format!("UPDATE {leases} SET {free} WHERE {key} = 'one'")).await;
    assert_eq!(in_time(one.lost()).await, LostReason::Gone);
    all.release().await.unwrap();
    ever.release().await.unwrap();
    assert!(locks.try_lock("b").await.unwrap().is_some());
}

pub(crate) async fn short_leases_outlive_dead_connections<S: SqlTestServer>() {
    let (server, _) = setup::<S>().await;
    let proxy = server.proxy().await;
    let url = S::plain_url_at(proxy.address().port(), "timeout=60s");
    stalls::leases_outlive_dead_connections(&url, &proxy, 4 * SECOND).await;
}

pub(crate) async fn a_leader_is_elected_and_followed_by_another<S: SqlTestServer>() {
    let (server, locks) = setup::<S>().await;
    let others = Locker::connect(&server.url("")).await.unwrap();
    let first = locks.election("job").campaign().await.unwrap();
    let election = others.election("job");
    let (second, resigned) = tokio::join!(in_time(election.campaign()), first.resign());
    resigned.unwrap();
    assert!(second.unwrap().is_leader());
}

pub(crate) async fn a_quorum_of_different_stores_decides<S: SqlTestServer>() {
    let (server, _) = setup::<S>().await;
    mixed::decides(server.url(""), || server.kill()).await;
}
