//! Sessions with other settings than ours.

use futures_util::future::join_all;
use leasehold_core::{Effect, ErrorKind, Mode, Store as _};
use leasehold_postgres::PostgresConfig;
use leasehold_postgres::deadpool_postgres::{Manager, Pool};
use leasehold_postgres::tokio_postgres::{Config, NoTls};
use leasehold_testkit::postgres::Server;
use leasehold_testkit::requests::{acquire, failed, granted, refused, release};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::sql::sessions::works_with;
use leasehold_testkit::{in_time, until};
use std::str::FromStr as _;
use std::time::Duration;

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
    let server = Server::start(&["synchronous_commit=off"]).await.unwrap();
    let store = server.store().await;
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

/// A pool of the application's, of this size.
fn pool(server: &Server, most: usize) -> Pool {
    let config = Config::from_str(&server.url()).unwrap();
    Pool::builder(Manager::new(config, NoTls)).max_size(most).build().unwrap()
}

#[tokio::test]
async fn a_pool_of_the_callers_own_serves() {
    let server = Server::start(&[]).await.unwrap();
    server.store().await;
    for prepares in [false, true] {
        let pool = pool(&server, 3);
        let config = PostgresConfig::pool(pool.clone()).prepares_statements(prepares);
        let store = config.wakeups_at(&server.url()).unwrap().connect().await.unwrap();
        // A transaction of the caller's is neither joined nor ended.
        let mut own = pool.get().await.unwrap();
        let transaction = own.transaction().await.unwrap();
        transaction.batch_execute("CREATE TABLE mine (n integer)").await.unwrap();
        granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
        store.release(&release("k", "a")).await.unwrap();
        transaction.rollback().await.unwrap();
        drop(own);
        let mine = server.rows("SELECT to_regclass('mine')::text").await;
        assert_eq!(mine[0].get::<_, Option<&str>>(0), None);
        granted(store.acquire(&acquire("s", "a", Mode::SHARED)).await);
        store.release(&release("s", "a")).await.unwrap();
    }
}

#[tokio::test]
async fn a_pool_that_is_too_small_or_in_use_is_named() {
    let server = Server::start(&[]).await.unwrap();
    server.store().await;
    let opened = PostgresConfig::pool(pool(&server, 2)).connect().await;
    failed(opened, ErrorKind::InvalidInput, Effect::NotApplied, "must have 3 or more");
    let pool = pool(&server, 3);
    let taken = (pool.get().await.unwrap(), pool.get().await.unwrap());
    let config = PostgresConfig::pool(pool).timeout(Duration::from_secs(1));
    let opened = config.clone().connect().await;
    failed(opened, ErrorKind::Unavailable, Effect::NotApplied, "all 3 connections");
    drop(taken);
    let store = config.connect().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
}

/// Each of the callers has a connection, and waits for the lock with it.
#[tokio::test]
async fn callers_lock_while_their_own_transactions_have_the_whole_pool() {
    let server = Server::start(&[]).await.unwrap();
    server.store().await;
    let pool = pool(&server, 4);
    let store = PostgresConfig::pool(pool.clone()).connect().await.unwrap();
    let callers = (0..8).map(|n| {
        let (pool, store) = (&pool, &store);
        async move {
            let mut own = pool.get().await.unwrap();
            let transaction = own.transaction().await.unwrap();
            let mode = if n % 2 == 0 { Mode::Exclusive } else { Mode::SHARED };
            granted(store.acquire(&acquire(&format!("k{n}"), "a", mode)).await);
            transaction.commit().await.unwrap();
        }
    });
    in_time(join_all(callers)).await;
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
            let pool = pool(&server, 3);
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
