//! Servers and sessions that are read-only, and what a demoted one must not answer.

use leasehold_core::{Mode, Store as _};
use leasehold_postgres::PostgresStore;
use leasehold_testkit::postgres::Server;
use leasehold_testkit::read_only::{answers_nothing, never_acts};
use leasehold_testkit::requests::{acquire, granted, release};
use leasehold_testkit::sql::SqlTestServer as _;

#[tokio::test]
async fn a_server_that_is_read_only_answers_nothing_that_it_knew_before() {
    let (server, store) = Server::with_store(&[]).await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    granted(store.acquire(&acquire("free", "a", Mode::Exclusive)).await);
    store.release(&release("free", "a")).await.unwrap();
    let standby = server.standby().await.unwrap();
    standby.has_all_of(&server).await;
    server.demote().await;
    for (server, fragment) in [(standby, "standby"), (server, "default_transaction_read_only")] {
        let open = async || PostgresStore::connect(&server.url()).await.unwrap();
        answers_nothing(open, "target_session_attrs", fragment).await;
    }
}

#[tokio::test]
async fn a_role_that_is_read_only_is_named_and_connects_once_a_second() {
    let (server, _) = Server::with_store(&["log_connections=on"]).await;
    server
        .run("CREATE ROLE app LOGIN; ALTER ROLE app SET default_transaction_read_only = on")
        .await;
    server.run("GRANT USAGE ON SCHEMA leasehold TO app").await;
    server
        .run(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA leasehold TO app;
             GRANT SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA leasehold TO app",
        )
        .await;
    let store = PostgresStore::connect(&server.url().replace("postgres@", "app@")).await.unwrap();
    never_acts(&store, "read-only").await;
    let log = server.log();
    let sessions = log.matches("connection authorized: user=app").count();
    // One that opened the store, five before the first answer, and one a second.
    assert!((3..=10).contains(&sessions), "{sessions} sessions");
}
