//! Servers that end, connections that are cut, and standbys.

use leasehold_conformance::Fault;
use leasehold_core::{ErrorKind, Level, Mode, Store as _};
use leasehold_mysql::MysqlStore;
use leasehold_mysql::mysql_async::prelude::Queryable as _;
use leasehold_testkit::in_time;
use leasehold_testkit::mysql::{Server, url};
use leasehold_testkit::requests::{acquire, granted, is_renewed, refused};
use leasehold_testkit::sql::SqlTestServer as _;

leasehold_testkit::sql_faults!(Server);

#[tokio::test]
async fn a_statement_time_limit_of_the_session_is_named() {
    let (server, store) = Server::with_store(&["--max-statement-time=0.2"]).await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    // A table lock is not a row lock: a statement waits for it.
    let mut user = server.connect().await.unwrap();
    user.query_drop("LOCK TABLES leasehold.leasehold_leases WRITE").await.unwrap();
    let error = in_time(store.acquire(&acquire("k", "b", Mode::Exclusive))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("interrupted"), "{error}");
    user.query_drop("UNLOCK TABLES").await.unwrap();
    refused(in_time(store.acquire(&acquire("k", "b", Mode::Exclusive))).await);
}

#[tokio::test]
async fn a_server_that_forgets_has_no_level_and_is_not_durable() {
    for setting in ["--innodb-flush-log-at-trx-commit=2", "--log-bin", "--innodb-doublewrite=0"] {
        let server = Server::start(&[setting]).await.unwrap();
        let health = server.store().await.check().await.unwrap();
        assert_eq!((health.level, health.durable), (Level::BestEffort, false), "{setting}");
        assert!(health.hazards[0].contains("sync_binlog"), "{health:?}");
    }
    let server = Server::start(&["--log-bin", "--sync-binlog=1"]).await.unwrap();
    let health = server.store().await.check().await.unwrap();
    assert_eq!((health.level, health.durable), (Level::Fenced, true), "{health:?}");
}

/// It is about a shared lease, and so goes in no batch, which others would pass.
#[tokio::test]
async fn a_renewal_that_a_dead_connection_swallows_is_sent_again_on_another() {
    let (server, _) = Server::with_store(&[]).await;
    let proxy = server.proxy().await;
    // Twice as long as the test waits.
    let store = MysqlStore::connect(&format!("{}?timeout=60s", url(proxy.address().port()))).await;
    let store = store.unwrap();
    granted(store.acquire(&acquire("s", "a", Mode::SHARED)).await);
    proxy.set_present(Fault::BlackHole);
    in_time(is_renewed(&store, "s", "a", Mode::SHARED)).await;
}
