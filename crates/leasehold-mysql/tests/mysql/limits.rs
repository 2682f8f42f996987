//! Operations that end at their limit, whatever they wait for.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_conformance::Fault;
use leasehold_core::{Effect, Mode, Store as _};
use leasehold_mysql::{MysqlConfig, MysqlStore};
use leasehold_testkit::limits::fail_in_time;
use leasehold_testkit::mysql::{Server, pool};
use leasehold_testkit::requests::{acquire, granted};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{fails_within, in_time};

leasehold_testkit::sql_limits!(Server);

const LIMIT: Duration = Duration::from_secs(2);

/// The application has them all, for the store had to give up its own.
#[tokio::test]
async fn an_operation_ends_in_time_when_all_connections_are_in_use() {
    let (server, _) = Server::with_store(&[]).await;
    let proxy = server.proxy().await;
    let pool = pool(proxy.address().port(), 3);
    let config = MysqlConfig::pool(pool.clone(), "leasehold").timeout(LIMIT);
    let store = config.connect().await.unwrap();
    proxy.set(Fault::Refuse);
    proxy.cut();
    store.acquire(&acquire("k", "a", Mode::Exclusive)).await.unwrap_err();
    proxy.set(Fault::None);
    let _taken = in_time(join_all((0..3).map(|_| pool.get_conn()))).await;
    for (name, error) in fail_in_time(&store, LIMIT).await {
        assert_eq!(error.effect(), Effect::NotApplied, "{name}: {error}");
        assert!(error.to_string().contains("all 3 connections of the pool"), "{name}: {error}");
    }
}

/// The server hangs when most of the time is over, in which it has answered that another transaction holds the row.
#[tokio::test]
async fn an_operation_ends_in_time_when_its_server_hangs_at_the_last_try() {
    let (server, _) = Server::with_store(&[]).await;
    let store = server.prepared("timeout=2s").await;
    granted(store.acquire(&acquire("s", "a", Mode::SHARED)).await);
    let _user = server.hold("slot >= 0").await;
    let request = acquire("s", "b", Mode::SHARED);
    let hangs = async {
        tokio::time::sleep(LIMIT * 3 / 4).await;
        server.pause();
    };
    let (error, ()) = tokio::join!(fails_within(LIMIT, store.acquire(&request)), hangs);
    server.resume();
    assert_eq!(error.effect(), Effect::Unknown, "{error}");
}

/// Each statement is answered within the limit, and all of them are not.
#[tokio::test]
async fn preparing_ends_in_time_when_its_server_is_slow() {
    let server = Server::start(&[]).await.unwrap();
    let proxy = server.proxy().await;
    let url = Server::plain_url_at(proxy.address().port(), "timeout=5s");
    let store = MysqlStore::connect(&url).await.unwrap();
    let limit = Duration::from_secs(5);
    proxy.set(Fault::Delay(limit / 25));
    fails_within(limit, store.prepare()).await;
    proxy.set(Fault::None);
    in_time(store.prepare()).await.unwrap();
}
