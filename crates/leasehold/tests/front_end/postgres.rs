//! The front end on a real PostgreSQL server.

use std::future::IntoFuture as _;
use std::time::Duration;

use leasehold::{Effect, ErrorKind, Level, Locker, Wait};
use leasehold_conformance::Proxy;
use leasehold_testkit::postgres::{Server, url};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{LONG, until};

use crate::sql::{setup, sql_tests};

sql_tests!(Server);

#[tokio::test]
async fn a_server_without_the_schema_fails_new_locks_and_ends_no_lease() {
    let (server, _) = setup::<Server>().await;
    let other = Server::start(&[]).await.unwrap();
    let at = |server: &Server| ([127, 0, 0, 1], server.port()).into();
    let address = Proxy::before(at(&server)).await.unwrap();
    let locks = Locker::connect(&url(address.address().port())).await.unwrap();
    let guard = locks.lock("held").ttl(LONG).await.unwrap();
    address.lead_to(at(&other));
    address.cut();
    let mut error = None;
    until(async || {
        error = locks.lock("free").wait(Wait::Forever).await.err();
        error.is_some()
    })
    .await;
    let error = error.unwrap();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Incompatible, Effect::NotApplied));
    assert!(error.to_string().contains("`leasehold init`"), "{error}");
    assert_eq!(guard.renew().await.unwrap_err().kind(), ErrorKind::Incompatible);
    assert!(guard.is_held());
    address.lead_to(at(&server));
    address.cut();
    until(async || guard.renew().await.is_ok()).await;
    locks.lock("free").await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_release_hands_over_to_another_process_at_once() {
    let (server, locks) = setup::<Server>().await;
    let others = Locker::connect(&server.url()).await.unwrap();
    assert_eq!(others.level(), Level::Fenced);
    // A term and a poll that are longer than the test.
    let guard = others.lock("k").ttl(Duration::from_secs(3_600)).await.unwrap();
    let waits = locks.lock("k").wait(Wait::UpTo(LONG)).into_future();
    let waiters = "SELECT count(*) FROM leasehold.waiters";
    let releases = async {
        until(async || server.rows(waiters).await[0].get::<_, i64>(0) > 0).await;
        guard.release().await.unwrap();
        // Before any poll.
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    tokio::select! {
        guard = waits => guard.unwrap().release().await.unwrap(),
        () = releases => panic!("nobody was woken"),
    };
}
