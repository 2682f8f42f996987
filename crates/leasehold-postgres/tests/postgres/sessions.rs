//! Sessions with other settings than ours.

use leasehold_core::{Effect, ErrorKind, Mode, Store as _};
use leasehold_postgres::PostgresConfig;
use leasehold_testkit::postgres::Server;
use leasehold_testkit::requests::{acquire, failed, granted, refused, release};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::sql::sessions::works_with;
use leasehold_testkit::{LONG, SECOND, until};

leasehold_testkit::sql_sessions!(Server);

#[tokio::test]
async fn other_time_zones_styles_and_formats_work() {
    works_with::<Server>(
        &[],
        "ALTER ROLE postgres SET timezone = 'Pacific/Kiritimati';
         ALTER ROLE postgres SET datestyle = 'german';
         ALTER ROLE postgres SET bytea_output = 'escape';
         ALTER ROLE postgres SET extra_float_digits = -15;
         ALTER ROLE postgres SET search_path = 'nowhere';
         ALTER ROLE postgres SET standard_conforming_strings = off",
    )
    .await;
}

#[tokio::test]
async fn commits_are_durable_whatever_the_session_sets() {
    let (server, store) = Server::with_store(&["synchronous_commit=off"]).await;
    granted(store.acquire(&acquire("warm", "a", Mode::Exclusive)).await);
    let control = server.connect().await.unwrap();
    let behind = async || -> i64 {
        let text = "SELECT (pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn())::bigint";
        control.query(text, &[]).await.unwrap()[0].get(0)
    };
    for n in 0..10 {
        granted(store.acquire(&acquire(&n.to_string(), "a", Mode::Exclusive)).await);
        assert_eq!(behind().await, 0, "a grant was answered before it was on disk");
        store.release(&release(&n.to_string(), "a")).await.unwrap();
        assert_eq!(behind().await, 0, "a release was answered before it was on disk");
    }
    // The test can fail.
    control.batch_execute("CREATE TABLE t (n integer)").await.unwrap();
    control.batch_execute("INSERT INTO t SELECT generate_series(1, 10000)").await.unwrap();
    assert!(behind().await > 0);
}

#[tokio::test]
async fn a_pool_that_is_too_small_or_in_use_is_named() {
    let (server, _) = Server::with_store(&[]).await;
    let opened = PostgresConfig::pool(server.pool(2)).connect().await;
    failed(opened, ErrorKind::InvalidInput, Effect::NotApplied, "must have 3 or more");
    let pool = server.pool(3);
    let taken = (pool.get().await.unwrap(), pool.get().await.unwrap());
    let config = PostgresConfig::pool(pool);
    let opened = config.clone().timeout(SECOND).connect().await;
    failed(opened, ErrorKind::Unavailable, Effect::NotApplied, "all 3 connections");
    drop(taken);
    let store = config.timeout(LONG).connect().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
}

/// With a transaction of the application's, the lease would come and go.
#[tokio::test]
async fn nothing_is_granted_in_a_transaction_that_the_application_left_open() {
    let server = Server::start(&[]).await.unwrap();
    let other = server.store().await;
    for level in ["read committed", "serializable"] {
        server
            .run(&format!("ALTER ROLE postgres SET default_transaction_isolation = '{level}'"))
            .await;
        for (left, prepares) in [("BEGIN", true), ("BEGIN", false), ("BEGIN; SELECT 1 / 0", false)]
        {
            let pool = server.pool(3);
            let sessions = [pool.get().await, pool.get().await, pool.get().await];
            for session in &sessions {
                drop(session.as_ref().unwrap().batch_execute(left).await);
            }
            drop(sessions);
            let config = PostgresConfig::pool(pool.clone()).prepares_statements(prepares);
            let store = config.connect().await.unwrap();
            for mode in [Mode::Exclusive, Mode::SHARED] {
                let acquired = store.acquire(&acquire("k", "a", mode)).await;
                let fragment = "inside a transaction that somebody left open";
                failed(acquired, ErrorKind::Unavailable, Effect::NotApplied, fragment);
            }
            // Those sessions are closed, and what was begun in them is rolled back.
            until(async || store.acquire(&acquire("k", "a", Mode::Exclusive)).await.is_ok()).await;
            refused(other.acquire(&acquire("k", "b", Mode::Exclusive)).await);
            store.release(&release("k", "a")).await.unwrap();
        }
    }
}
