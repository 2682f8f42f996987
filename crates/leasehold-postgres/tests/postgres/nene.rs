//! The table of the PHP library, beside its clients.

use std::time::Duration;

use leasehold_core::{Effect, ErrorKind, Mode, RenewOutcome, Store as _, Ttl};
use leasehold_postgres::{PostgresConfig, PostgresNeneConfig};
use leasehold_testkit::nene::Database as _;
use leasehold_testkit::nene::cases::config;
use leasehold_testkit::postgres::{Pooler, Server, pool, url};
use leasehold_testkit::read_only::answers_nothing;
use leasehold_testkit::requests::{acquire, failed, granted, is_renewed, only, refused, renew};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::urls::refuses;

leasehold_testkit::sql_nene!(Server);

/// Defect 8: PostgreSQL does not know the library's insert, so the library acquires no new resource there.
#[tokio::test]
async fn the_library_itself_acquires_no_new_resource_here() {
    let server = Server::new().await;
    let (store, mut php) = (server.open_table(config()).await, server.php());
    assert_eq!(php.ask(&["acquire", "r", "php", "30"]).unwrap(), "no");
    granted(store.acquire(&acquire("r", "ours", Mode::Exclusive)).await);
}

#[tokio::test]
async fn a_table_with_other_times_is_refused() {
    let server = Server::new().await;
    let store = server.open_table(config()).await;
    server.run("ALTER TABLE distributed_locks ALTER expires_at TYPE timestamptz").await;
    failed(store.check().await, ErrorKind::Incompatible, Effect::NotApplied, "without time zone");
}

#[tokio::test]
async fn a_pooler_and_other_settings_of_sessions_change_nothing() {
    let server = Server::new().await;
    server
        .run(
            "ALTER ROLE postgres SET timezone = 'Asia/Kathmandu';
             ALTER ROLE postgres SET default_transaction_isolation = 'serializable';
             ALTER ROLE postgres SET synchronous_commit = 'off'",
        )
        .await;
    let pooler = Pooler::before(&server).await.unwrap();
    let configs = [
        PostgresConfig::parse(&server.url()).unwrap(),
        PostgresConfig::parse(&pooler.url()).unwrap(),
        PostgresConfig::pool(pool(&pooler.url(), 4)),
    ];
    for (nth, of_server) in configs.into_iter().enumerate() {
        let store = PostgresNeneConfig::new(of_server).nene(config()).connect().await.unwrap();
        store.prepare().await.unwrap();
        let name = format!("r{nth}");
        granted(store.acquire(&acquire(&name, "a", Mode::Exclusive)).await);
        let refusal = refused(store.acquire(&acquire(&name, "b", Mode::Exclusive)).await);
        assert!(refusal.retry_after.unwrap() < Duration::from_secs(60), "{refusal:?}");
        assert!(!server.php().acquired(&name, "php", 30));
        is_renewed(&store, &name, "a", Mode::Exclusive).await;
    }
}

#[tokio::test]
async fn a_grant_survives_a_crash_although_sessions_commit_lazily() {
    let server = Server::start(&["wal_writer_delay=10s"]).await.unwrap();
    server.open_table(config()).await;
    server.run("ALTER ROLE postgres SET synchronous_commit = 'off'").await;
    // A session whose transactions nobody else makes durable.
    let store = server.open_table(config()).await;
    granted(store.acquire(&acquire("new", "a", Mode::Exclusive)).await);
    server.restart().await.unwrap();
    refused(store.acquire(&acquire("new", "b", Mode::Exclusive)).await);
    let to = Ttl::new(Duration::from_secs(600)).unwrap();
    let renewal = renew("new", "a", Mode::Exclusive, to);
    assert!(matches!(only(store.renew(&renewal).await.unwrap().leases), RenewOutcome::Held(_)));
    server.restart().await.unwrap();
    let refusal = refused(store.acquire(&acquire("new", "b", Mode::Exclusive)).await);
    assert!(refusal.retry_after.unwrap() > Duration::from_secs(500), "{refusal:?}");
}

#[tokio::test]
async fn a_server_that_is_read_only_answers_nothing_that_it_knew_before() {
    let server = Server::new().await;
    let store = server.open_table(config()).await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let standby = server.standby().await.unwrap();
    standby.has_all_of(&server).await;
    server.demote().await;
    for (server, fragment) in [(standby, "standby"), (server, "default_transaction_read_only")] {
        let open = async || {
            let config = PostgresConfig::parse(&server.url()).unwrap();
            PostgresNeneConfig::new(config).connect().await.unwrap()
        };
        answers_nothing(open, "target_session_attrs", fragment).await;
    }
}

#[test]
fn the_table_knows_schemas_and_no_wakeups() {
    let url = format!("{}&format=nene", url(1));
    assert!(PostgresNeneConfig::parse(&format!("{url}&schema=app")).is_ok());
    refuses(PostgresNeneConfig::parse, &[(&format!("{url}&wakeups=0"), "wakeups")]);
}
