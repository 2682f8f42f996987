//! Mistakes of operators and callers, and what they are told.

use leasehold_core::{Effect, ErrorKind, Mode, Store as _};
use leasehold_postgres::{PostgresConfig, PostgresStore};
use leasehold_testkit::page::privileges_of;
use leasehold_testkit::postgres::{Server, url};
use leasehold_testkit::requests::{acquire, failed, granted};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::sql::bad_input::the_least_privileges_suffice as suffice;

leasehold_testkit::sql_bad_input!(Server);

#[tokio::test]
async fn tables_of_another_program_are_left_alone() {
    let server = Server::start(&[]).await.unwrap();
    server.run("CREATE SCHEMA leasehold; CREATE TABLE leasehold.leases (tenant text)").await;
    let store = PostgresStore::connect(&server.url()).await.unwrap();
    let fragment = "is not Leasehold's";
    failed(store.prepare().await, ErrorKind::Incompatible, Effect::NotApplied, fragment);
    let config = PostgresConfig::parse(&server.url()).unwrap().schema("locks");
    let store = config.connect().await.unwrap();
    store.prepare().await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
}

#[tokio::test]
async fn a_schema_that_exists_is_used_and_case_counts() {
    let server = Server::start(&[]).await.unwrap();
    server.run("CREATE SCHEMA \"Locks\"").await;
    for schema in ["public", "Locks", "locks"] {
        let config = PostgresConfig::parse(&server.url()).unwrap().schema(schema);
        let store = config.connect().await.unwrap();
        store.prepare().await.unwrap();
        granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    }
}

#[tokio::test]
async fn the_least_privileges_suffice_and_without_them_the_error_names_the_page() {
    let user = "CREATE ROLE app LOGIN; REVOKE ALL ON DATABASE postgres FROM PUBLIC; GRANT CONNECT ON DATABASE postgres TO app";
    let grants = privileges_of(include_str!("../../MANUAL.md")).join("; ");
    let schema = PostgresConfig::parse(&url(1)).unwrap().schema_sql().unwrap();
    let (server, url) =
        suffice::<Server>(&schema, user, &grants, "docs.rs/leasehold-postgres").await;
    let store = PostgresStore::connect(&url).await.unwrap();
    // One privilege less is named.
    server.run("REVOKE DELETE ON leasehold.leases FROM app").await;
    failed(store.check().await, ErrorKind::Denied, Effect::NotApplied, "DELETE on leases");
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let server = Server::start(&[]).await.unwrap();
    server.run("CREATE ROLE app LOGIN PASSWORD 'right'").await;
    let file = server.directory().join("data/pg_hba.conf");
    std::fs::write(
        &file,
        "host all app 127.0.0.1/32 scram-sha-256\nhost all postgres 127.0.0.1/32 trust\n",
    )
    .unwrap();
    server.run("SELECT pg_reload_conf()").await;
    let url = |password: &str| server.url().replace("postgres@", &format!("app:{password}@"));
    leasehold_testkit::until(async || PostgresStore::connect(&url("hunter2")).await.is_err()).await;
    let error = PostgresStore::connect(&url("hunter2")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    PostgresStore::connect(&url("right")).await.unwrap();
}

#[tokio::test]
async fn a_database_with_another_encoding_is_refused() {
    let server = Server::start(&[]).await.unwrap();
    server.run("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'").await;
    let url = server.url().replace("/postgres?", "/latin?");
    let store = PostgresStore::connect(&url).await.unwrap();
    failed(store.prepare().await, ErrorKind::Incompatible, Effect::NotApplied, "LATIN1");
    let url = server.url().replace("/postgres?", "/nowhere?");
    let opened = PostgresStore::connect(&url).await;
    failed(opened, ErrorKind::Incompatible, Effect::NotApplied, "does not exist");
}
