//! Operations that end at their limit, whatever they wait for.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_conformance::{Fault, Proxy};
use leasehold_core::{
    Claims, Effect, Error, ErrorKind, Mode, RenewEntry, RenewRequest, Store as _, Ttl,
};
use leasehold_postgres::deadpool_postgres::{Manager, Pool};
use leasehold_postgres::tokio_postgres::{Config, NoTls};
use leasehold_postgres::{PostgresConfig, PostgresStore};
use leasehold_testkit::postgres::{Server, url};
use leasehold_testkit::requests::{acquire, granted, id, key};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{LONG, fails_within, until};

leasehold_testkit::sql_limits!(Server);

const LIMIT: Duration = Duration::from_secs(2);

/// The store has one connection for what goes in no batch, and the application has the others.
#[tokio::test]
async fn an_operation_ends_in_time_when_all_connections_are_in_use() {
    let server = Server::start(&[]).await.unwrap();
    server.store().await;
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into()).await.unwrap();
    let config: Config = url(proxy.address().port()).parse().unwrap();
    let pool = Pool::builder(Manager::new(config, NoTls)).max_size(3).build().unwrap();
    let store = PostgresConfig::pool(pool.clone()).timeout(LIMIT).connect().await.unwrap();
    let _taken = pool.get().await.unwrap();
    proxy.set(Fault::BlackHole);
    let renewals = (0..4).map(|n| {
        let claims = Claims::one(key(&format!("s{n}")), Mode::SHARED);
        RenewRequest::new(vec![RenewEntry::extend(id("a"), claims, Ttl::new(LONG).unwrap())])
    });
    let renewals: Vec<_> = renewals.collect();
    let failures =
        join_all(renewals.iter().map(|request| fails_within(LIMIT, store.renew(request)))).await;
    let in_use = |error: &Error| {
        error.effect() == Effect::NotApplied
            && error.to_string().contains("all 3 connections of the pool")
    };
    assert_eq!(failures.iter().filter(|error| in_use(error)).count(), 3, "{failures:?}");
}

#[tokio::test]
async fn an_operation_ends_in_time_when_its_server_hangs_at_the_last_try() {
    let server = Server::start(&[]).await.unwrap();
    server.store().await;
    let url = format!("{}&timeout=2s&connections=2", server.url());
    let store = PostgresStore::connect(&url).await.unwrap();
    granted(store.acquire(&acquire("s", "h", Mode::SHARED)).await);
    let user = server.connect().await.unwrap();
    user.batch_execute("BEGIN; SELECT FROM leasehold.leases FOR UPDATE").await.unwrap();
    let request = acquire("s", "a", Mode::SHARED);
    let hangs = async {
        let waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        for _ in 0..2 {
            until(async || !server.rows(waits).await.is_empty()).await;
            until(async || server.rows(waits).await.is_empty()).await;
        }
        server.pause();
    };
    let (error, ()) = tokio::join!(fails_within(LIMIT, store.acquire(&request)), hangs);
    server.resume();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
