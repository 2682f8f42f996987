//! Servers and sessions that are read-only, and what a demoted one must not answer.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{Effect, Mode, Store as _};
use leasehold_postgres::PostgresStore;
use leasehold_testkit::postgres::Server;
use leasehold_testkit::read_only::first_failures;
use leasehold_testkit::requests::{acquire, granted, release};
use leasehold_testkit::sql::SqlTestServer as _;

#[tokio::test]
async fn a_server_that_is_read_only_answers_nothing_that_it_knew_before() {
    let server = Server::start(&[]).await.unwrap();
    let store = server.store().await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    granted(store.acquire(&acquire("free", "a", Mode::Exclusive)).await);
    store.release(&release("free", "a")).await.unwrap();
    let standby = server.standby().await.unwrap();
    standby.has_all_of(&server).await;
    server.demote().await;
    for (server, fragment) in [(standby, "standby"), (server, "default_transaction_read_only")] {
        let open = async || PostgresStore::connect(&server.url()).await.unwrap();
        let failures = first_failures(open).await;
        // Each is in doubt now, and asks.
        let again = join_all(failures.iter().map(|(store, _, _)| store.check())).await;
        for ((_, name, error), again) in failures.into_iter().zip(again) {
            assert!(error.to_string().contains("target_session_attrs"), "{name}: {error}");
            let error = again.unwrap_err();
            assert!(error.to_string().contains(fragment), "{name}: {error}");
        }
    }
}

#[tokio::test]
async fn a_role_that_is_read_only_is_named_and_connects_once_a_second() {
    let server = Server::start(&["log_connections=on"]).await.unwrap();
    server.store().await;
    server
        .run("CREATE ROLE app LOGIN; ALTER ROLE app SET default_transaction_read_only = on")
        .await;
    server.run("GRANT USAGE ON SCHEMA leasehold TO app").await;
    server
        .run("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO app")
        .await;
    let store = PostgresStore::connect(&server.url().replace("postgres@", "app@")).await.unwrap();
    let asks = async |n: usize| {
        let name = format!("k{n}");
        loop {
            let error = store.acquire(&acquire(&name, "a", Mode::SHARED)).await.unwrap_err();
            assert_eq!(error.effect(), Effect::NotApplied, "{error}");
            assert!(error.to_string().contains("read-only"), "{error}");
        }
    };
    let long = Duration::from_millis(2_500);
    tokio::time::timeout(long, join_all((0..20).map(asks))).await.unwrap_err();
    let log = server.log();
    let sessions = log.matches("connection authorized: user=app").count();
    // One that opened the store, five before the first answer, and one a second.
    assert!((3..=10).contains(&sessions), "{sessions} sessions");
}
