//! Servers that end, connections that are cut, and standbys.

use leasehold_core::{Effect, ErrorKind, Level, Mode, Store as _};
use leasehold_postgres::PostgresStore;
use leasehold_testkit::postgres::Server;
use leasehold_testkit::requests::{acquire, granted, refused};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{in_time, until};

leasehold_testkit::sql_faults!(Server);

#[tokio::test]
async fn a_statement_time_out_of_the_session_is_named_and_changed_nothing() {
    let (server, _) = Server::with_store(&[]).await;
    server.run("ALTER ROLE postgres SET statement_timeout = '1s'").await;
    let store = PostgresStore::connect(&server.url()).await.unwrap();
    granted(store.acquire(&acquire("k", "warm", Mode::SHARED)).await);
    let _user = server.hold("true").await;
    let error = in_time(store.acquire(&acquire("k", "a", Mode::SHARED))).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    assert!(error.to_string().contains("statement_timeout"), "{error}");
}

#[tokio::test]
async fn a_standby_is_refused_and_one_that_lags_lowers_the_level() {
    let (server, store) = Server::with_store(&[]).await;
    assert_eq!(store.check().await.unwrap().level, Level::Fenced);
    let standby = server.standby().await.unwrap();
    until(async || store.check().await.unwrap().fails_over).await;
    let health = store.check().await.unwrap();
    assert_eq!(health.level, Level::BestEffort);
    assert!(health.hazards[0].contains("synchronous_standby_names"), "{health:?}");
    // Both standbys have this name.
    let second = server.standby().await.unwrap();
    for (names, fails_over) in [
        ("walreceiver", true),
        ("ANY 1 (walreceiver)", true),
        ("FIRST 2 (walreceiver)", false),
        ("ANY 2 (walreceiver)", false),
    ] {
        server.set("synchronous_standby_names", names).await;
        let states = "SELECT string_agg(DISTINCT sync_state, ' ') FROM pg_stat_replication";
        let expected = match names {
            "walreceiver" => "potential sync",
            "FIRST 2 (walreceiver)" => "sync",
            _ => "quorum",
        };
        until(async || server.rows(states).await[0].get::<_, &str>(0) == expected).await;
        until(async || store.check().await.unwrap().fails_over == fails_over).await;
        let health = store.check().await.unwrap();
        assert_eq!(health.level == Level::Fenced, !fails_over, "{names}: {health:?}");
    }
    drop(second);
    server.set("synchronous_standby_names", "").await;
    let lagging = PostgresStore::connect(&standby.url()).await.unwrap();
    let error = lagging.acquire(&acquire("k", "b", Mode::Exclusive)).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::NotApplied));
    assert!(error.to_string().contains("target_session_attrs"), "{error}");
    let error = lagging.check().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // Of both, the primary is found.
    let both = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?sslmode=disable&target_session_attrs=read-write",
        standby.port(),
        server.port()
    );
    let found = PostgresStore::connect(&both).await.unwrap();
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    refused(found.acquire(&acquire("k", "b", Mode::Exclusive)).await);
}

#[tokio::test]
async fn a_server_that_forgets_has_no_level_and_is_not_durable() {
    let server = Server::start(&["fsync=off"]).await.unwrap();
    let health = server.store().await.check().await.unwrap();
    assert_eq!((health.level, health.durable), (Level::BestEffort, false));
    assert!(health.hazards[0].contains("fsync = on"), "{health:?}");
}
