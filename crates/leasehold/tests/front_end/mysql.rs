//! The front end on a real MariaDB server.

use std::future::IntoFuture as _;
use std::time::Duration;

use leasehold::{ErrorKind, Level, Locker, LostReason, Ttl, Wait};
use leasehold_conformance::Proxy;
use leasehold_testkit::mysql::{Server, url};
use leasehold_testkit::{LONG, SECOND, in_time};

use crate::{mixed, stalls};

async fn setup() -> (Server, Locker) {
    let server = Server::start(&[]).await.unwrap();
    let locks = Locker::connect_unchecked(&server.url()).await.unwrap();
    locks.prepare().await.unwrap();
    (server, locks)
}

#[tokio::test]
async fn a_database_that_is_not_prepared_is_refused_with_the_way_to_prepare_it() {
    let server = Server::start(&[]).await.unwrap();
    let error = Locker::connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains("`Locker::connect_unchecked` and `prepare`"), "{error}");
    let locks = Locker::connect_unchecked(&server.url()).await.unwrap();
    let error = locks.try_lock("k").await.unwrap_err();
    assert!(error.to_string().contains("`Locker::connect_unchecked` and `prepare`"), "{error}");
    locks.prepare().await.unwrap();
    Locker::connect(&server.url()).await.unwrap().lock("k").await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_release_hands_over_to_another_process() {
    let (server, locks) = setup().await;
    let others = Locker::connect(&server.url()).await.unwrap();
    assert_eq!(others.level(), Level::Fenced);
    let guard = others.lock("k").ttl(Duration::from_secs(3_600)).await.unwrap();
    let waits = locks.lock("k").wait(Wait::UpTo(LONG)).into_future();
    let (waited, released) = tokio::join!(waits, guard.release());
    released.unwrap();
    waited.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn locks_of_every_kind_are_held_renewed_and_lost() {
    let (server, locks) = setup().await;
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
    server.run("UPDATE leasehold.leasehold_leases SET state = 'f' WHERE `key` = 'one'").await;
    assert_eq!(in_time(one.lost()).await, LostReason::Gone);
    all.release().await.unwrap();
    ever.release().await.unwrap();
    assert!(locks.try_lock("b").await.unwrap().is_some());
}

#[tokio::test]
async fn short_leases_outlive_dead_connections() {
    let (server, _) = setup().await;
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into()).await.unwrap();
    let url = format!("{}?timeout=60s", url(proxy.address().port()));
    stalls::leases_outlive_dead_connections(&url, &proxy, 4 * SECOND).await;
}

#[tokio::test]
async fn a_leader_is_elected_and_followed_by_another() {
    let (server, locks) = setup().await;
    let others = Locker::connect(&server.url()).await.unwrap();
    let first = locks.election("job").campaign().await.unwrap();
    let election = others.election("job");
    let (second, resigned) = tokio::join!(in_time(election.campaign()), first.resign());
    resigned.unwrap();
    assert!(second.unwrap().is_leader());
}

#[tokio::test]
async fn a_quorum_of_different_stores_decides() {
    let (server, _) = setup().await;
    mixed::decides(server.url(), || server.kill()).await;
}
