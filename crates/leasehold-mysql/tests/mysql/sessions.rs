//! Sessions with other settings than ours, and a pool of the caller's.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{Effect, ErrorKind, Mode, Store as _};
use leasehold_mysql::mysql_async::prelude::Queryable as _;
use leasehold_mysql::{MysqlConfig, MysqlNeneConfig};
use leasehold_testkit::mysql::Server;
use leasehold_testkit::requests::{acquire, failed, granted, refused};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::sql::sessions::{works, works_with};
use leasehold_testkit::{in_time, until};

leasehold_testkit::sql_sessions!(Server);

#[tokio::test]
async fn other_time_zones_modes_and_character_sets_work() {
    works_with::<Server>(
        &[
            "--default-time-zone=+13:00",
            "--sql-mode=ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,SIMULTANEOUS_ASSIGNMENT",
            "--character-set-server=latin1",
            "--skip-character-set-client-handshake",
            "--group-concat-max-len=4",
        ],
        "",
    )
    .await;
}

/// In this mode procedures are written in another language.
#[tokio::test]
async fn a_server_in_the_mode_of_oracle_works() {
    works_with::<Server>(&["--sql-mode=ORACLE"], "").await;
}

#[tokio::test]
async fn sessions_that_do_not_commit_by_themselves_work() {
    works_with::<Server>(&["--autocommit=0", "--innodb-lock-wait-timeout=50"], "").await;
}

#[tokio::test]
async fn a_pool_that_is_too_small_or_in_use_is_named() {
    let (server, _) = Server::with_store(&[]).await;
    let small = MysqlConfig::pool(server.pool(2), "leasehold").connect().await;
    let small = failed(small, ErrorKind::InvalidInput, Effect::NotApplied, "3 or more");
    assert!(small.to_string().contains("at most 2"), "{small}");
    let pool = server.pool(3);
    let config = MysqlConfig::pool(pool.clone(), "leasehold");
    let store = config.timeout(Duration::from_secs(5)).connect().await.unwrap();
    let taken = pool.get_conn().await.unwrap();
    // A request that waits for the table has the connection that is kept for such.
    let mut user = server.connect().await.unwrap();
    user.query_drop("LOCK TABLES leasehold.leasehold_leases WRITE").await.unwrap();
    let asks = ["a", "b"].map(|lease| acquire("k", lease, Mode::SHARED));
    let replies = asks.iter().map(|ask| store.acquire(ask));
    let errors = join_all(replies).await;
    let error = errors
        .into_iter()
        .map(Result::unwrap_err)
        .find(|e| e.effect() == Effect::NotApplied)
        .unwrap();
    assert!(error.is_retryable() && error.to_string().contains("all 3 connections"), "{error}");
    user.query_drop("UNLOCK TABLES").await.unwrap();
    granted(store.acquire(&acquire("k", "c", Mode::SHARED)).await);
    drop(taken);
}

/// Whatever the application has left in its sessions.
#[tokio::test]
async fn nothing_is_granted_in_a_transaction_that_the_application_left_open() {
    let (server, other) = Server::with_store(&[]).await;
    server.run("CREATE TABLE leasehold.mine (n INT)").await;
    for (n, left) in [
        "BEGIN",
        "SET autocommit = 0; INSERT INTO leasehold.mine VALUES (1)",
        // After an error the session itself does not report it.
        "BEGIN; SELECT nothing",
    ]
    .into_iter()
    .enumerate()
    {
        let pool = server.pool(3);
        let store = MysqlConfig::pool(pool.clone(), "leasehold").connect().await.unwrap();
        let mut session = pool.get_conn().await.unwrap();
        session.reset_connection(false);
        for statement in left.split("; ") {
            drop(session.query_drop(statement).await);
        }
        let id = session.id();
        drop(session);
        let metrics = pool.metrics();
        until(async || metrics.connections_in_pool.load(Ordering::Relaxed) > 0).await;
        // The first has the connection that is kept for such requests.
        let asks = ["a", "b"].map(|lease| acquire(&format!("k{n}"), lease, Mode::SHARED));
        let replies = asks.iter().map(|ask| store.acquire(ask));
        let [first, second] = in_time(join_all(replies)).await.try_into().unwrap();
        granted(first);
        failed(second, ErrorKind::Unavailable, Effect::NotApplied, "inside a transaction");
        let session = format!("SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = {id}");
        until(async || server.rows(&session).await.is_empty()).await;
        granted(store.acquire(&acquire(&format!("k{n}"), "b", Mode::SHARED)).await);
        refused(other.acquire(&acquire(&format!("k{n}"), "c", Mode::Exclusive)).await);
    }
    assert!(server.rows("SELECT * FROM leasehold.mine").await.is_empty());
}

/// As behind a proxy that reports the version it was told to.
#[tokio::test]
async fn mariadb_that_calls_itself_mysql_works() {
    for version in ["8.0.35", "5.7.44"] {
        let (server, store) = Server::with_store(&[&format!("--version={version}")]).await;
        works(&store).await;
        let url = format!("{}?format=nene", server.url());
        let nene = MysqlNeneConfig::parse(&url).unwrap().connect().await.unwrap();
        nene.prepare().await.unwrap();
        nene.check().await.unwrap();
    }
}

#[tokio::test]
async fn a_closed_store_ends_its_sessions_and_connects_again_for_the_next_request() {
    let (server, store) = Server::with_store(&[]).await;
    let before = server.status("Aborted_clients").await;
    let others = async || {
        let rows = server.rows("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND USER = 'root'");
        rows.await[0].get::<u64, _>(0).unwrap()
    };
    for round in ["a", "b"] {
        granted(store.acquire(&acquire(round, "a", Mode::Exclusive)).await);
        granted(store.acquire(&acquire(&format!("s{round}"), "a", Mode::SHARED)).await);
        // A caller who went away.
        let abandoned = acquire(&format!("x{round}"), "a", Mode::SHARED);
        drop(futures_util::poll!(std::pin::pin!(store.acquire(&abandoned))));
        assert!(others().await > 0);
        store.close().await;
        until(async || others().await == 0).await;
    }
    assert_eq!(server.status("Aborted_clients").await, before);
}
