//! Operations that end at their limit, whatever they wait for.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_conformance::Fault;
use leasehold_core::{Effect, Error, ErrorKind, Mode, Store as _, Ttl};
use leasehold_postgres::PostgresConfig;
use leasehold_testkit::postgres::{Server, pool, url};
use leasehold_testkit::requests::{acquire, granted, key, renew};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{fails_within, until};

leasehold_testkit::sql_limits!(Server);

const LIMIT: Duration = Duration::from_secs(2);

/// One connects for all who begin to wait, and the last of them ask no earlier than it has failed.
#[tokio::test]
async fn who_begins_to_wait_is_known_not_to_listen_when_nobody_answers_who_connects() {
    let (server, _) = Server::with_store(&[]).await;
    let proxy = server.proxy().await;
    let config = PostgresConfig::parse(&url(proxy.address().port())).unwrap();
    let store = config.timeout(LIMIT).connect().await.unwrap();
    proxy.set(Fault::BlackHole);
    let keys = [key("k")];
    let waits =
        (0..3).map(|_| fails_within(LIMIT, async { store.subscribe(&keys).await.map(drop) }));
    for error in join_all(waits).await {
        assert_eq!(error.effect(), Effect::NotApplied, "{error}");
    }
}

/// The store has one connection for what goes in no batch, and the application has the others.
#[tokio::test]
async fn an_operation_ends_in_time_when_all_connections_are_in_use() {
    let (server, _) = Server::with_store(&[]).await;
    let proxy = server.proxy().await;
    let pool = pool(&url(proxy.address().port()), 3);
    let store = PostgresConfig::pool(pool.clone()).timeout(LIMIT).connect().await.unwrap();
    let _taken = pool.get().await.unwrap();
    proxy.set(Fault::BlackHole);
    let renewals = ["s0", "s1", "s2", "s3"].map(|name| renew(name, "a", Mode::SHARED, Ttl::NEVER));
    let failures = renewals.iter().map(|request| fails_within(LIMIT, store.renew(request)));
    let failures = join_all(failures).await;
    let in_use = |error: &Error| {
        error.effect() == Effect::NotApplied
            && error.to_string().contains("all 3 connections of the pool")
    };
    assert_eq!(failures.iter().filter(|error| in_use(error)).count(), 3, "{failures:?}");
}

#[tokio::test]
async fn an_operation_ends_in_time_when_its_server_hangs_at_the_last_try() {
    let (server, _) = Server::with_store(&[]).await;
    let store = server.prepared("timeout=2s&connections=2").await;
    granted(store.acquire(&acquire("s", "h", Mode::SHARED)).await);
    let _user = server.hold("true").await;
    let request = acquire("s", "a", Mode::SHARED);
    let hangs = async {
        for _ in 0..2 {
            until(async || server.waits("Lock").await).await;
            until(async || !server.waits("Lock").await).await;
        }
        server.pause();
    };
    let (error, ()) = tokio::join!(fails_within(LIMIT, store.acquire(&request)), hangs);
    server.resume();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
