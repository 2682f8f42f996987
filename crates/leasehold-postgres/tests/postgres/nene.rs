//! The table of the PHP library, beside its clients.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold_conformance::Proxy;
use leasehold_core::{Effect, ErrorKind, Filter, ListRequest, Mode, RenewOutcome, Store as _, Ttl};
use leasehold_postgres::deadpool_postgres::{Manager, Pool};
use leasehold_postgres::tokio_postgres::NoTls;
use leasehold_postgres::{NeneConfig, PostgresConfig, PostgresNeneConfig, PostgresNeneStore};
use leasehold_testkit::nene::cases::config;
use leasehold_testkit::nene::{Database, Php, Served, limits};
use leasehold_testkit::postgres::{Pooler, Server, url};
use leasehold_testkit::read_only::first_failures;
use leasehold_testkit::requests::{
    acquire, failed, granted, is_unreadable, only, purge_leaves, refused, renew,
};
use leasehold_testkit::{SECOND, until};
use tokio::task::JoinSet;

/// A server with the database of an application.
struct Place {
    server: Server,
}

impl Database for Place {
    type Store = PostgresNeneStore;

    async fn new() -> Self {
        Self { server: Server::start(&["fsync=off"]).await.unwrap() }
    }

    async fn open(&self, nene: NeneConfig) -> PostgresNeneStore {
        prepared(PostgresConfig::parse(&self.server.url()).unwrap(), nene).await
    }

    async fn open_patient(&self, nene: NeneConfig) -> PostgresNeneStore {
        prepared(PostgresConfig::pool(pool(&self.server.url())).timeout(30 * SECOND), nene).await
    }

    async fn until_it_waits<T: Send + 'static>(
        &self,
        operation: impl Future<Output = T> + Send + 'static,
    ) -> JoinSet<T> {
        let mut waiting = JoinSet::new();
        waiting.spawn(operation);
        let waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        until(async || !self.server.rows(waits).await.is_empty()).await;
        waiting
    }

    fn php_ahead(&self, ahead: i64) -> Php {
        let dsn = format!("pgsql:host=127.0.0.1;port={};dbname=postgres", self.server.port());
        Php::start_ahead(&dsn, "postgres", ahead)
    }
}

async fn prepared(server: PostgresConfig, nene: NeneConfig) -> PostgresNeneStore {
    let store = PostgresNeneConfig::new(server).nene(nene).connect().await.unwrap();
    store.prepare().await.unwrap();
    store
}

/// The connections of a caller, which wait long for a row.
fn pool(url: &str) -> Pool {
    let manager = Manager::new(url.parse().unwrap(), NoTls);
    Pool::builder(manager).max_size(4).build().unwrap()
}

impl Served for Place {
    fn kill(&self) {
        self.server.kill();
    }

    async fn restart(&self) {
        self.server.restart().await.unwrap();
    }
}

leasehold_testkit::nene_tests!(Place);
leasehold_testkit::nene_tests!(Place: a_server_that_is_away_fails_every_operation_until_it_is_back);

/// Defect 8: PostgreSQL does not know the library's insert, so the library acquires no new resource there.
#[tokio::test]
async fn the_library_itself_acquires_no_new_resource_here() {
    let place = Place::new().await;
    let (store, mut php) = (place.open(config()).await, place.php());
    assert_eq!(php.ask(&["acquire", "r", "php", "30"]).unwrap(), "no");
    granted(store.acquire(&acquire("r", "ours", Mode::Exclusive)).await);
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_corrupt_and_no_grant() {
    let place = Place::new().await;
    let store = place.open(config()).await;
    place
        .server
        .run("INSERT INTO distributed_locks VALUES ('r', 'php', 'infinity', '2000-01-01')")
        .await;
    let acquired = store.acquire(&acquire("r", "ours", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::Corrupt, Effect::NotApplied, "no time");
    granted(store.acquire(&acquire("well", "ours", Mode::Exclusive)).await);
    is_unreadable(&store, "r").await;
    purge_leaves(&store, &["r"]).await;
    let page = store.list(&ListRequest::new(Filter::default())).await.unwrap();
    assert_eq!(page.records.len(), 1, "one damaged row hides no other");
}

#[tokio::test]
async fn a_table_with_other_times_is_refused() {
    let place = Place::new().await;
    let store = place.open(config()).await;
    place.server.run("ALTER TABLE distributed_locks ALTER expires_at TYPE timestamptz").await;
    failed(store.check().await, ErrorKind::Incompatible, Effect::NotApplied, "without time zone");
}

#[tokio::test]
async fn a_pooler_and_other_settings_of_sessions_change_nothing() {
    let place = Place::new().await;
    place
        .server
        .run(
            "ALTER ROLE postgres SET timezone = 'Asia/Kathmandu';
             ALTER ROLE postgres SET default_transaction_isolation = 'serializable';
             ALTER ROLE postgres SET synchronous_commit = 'off'",
        )
        .await;
    let pooler = Pooler::before(&place.server).await.unwrap();
    let servers = [
        PostgresConfig::parse(&place.server.url()).unwrap(),
        PostgresConfig::parse(&pooler.url()).unwrap(),
        PostgresConfig::pool(pool(&pooler.url())),
    ];
    for (nth, server) in servers.into_iter().enumerate() {
        let store = PostgresNeneConfig::new(server).nene(config()).connect().await.unwrap();
        store.prepare().await.unwrap();
        let name = format!("r{nth}");
        granted(store.acquire(&acquire(&name, "a", Mode::Exclusive)).await);
        let refusal = refused(store.acquire(&acquire(&name, "b", Mode::Exclusive)).await);
        assert!(refusal.retry_after.unwrap() < Duration::from_secs(60), "{refusal:?}");
        assert!(!place.php().acquired(&name, "php", 30));
        let to = Ttl::new(Duration::from_secs(60)).unwrap();
        let renewed = store.renew(&renew(&name, "a", Mode::Exclusive, to)).await.unwrap();
        assert!(matches!(only(renewed.leases), RenewOutcome::Held(_)));
    }
}

#[tokio::test]
async fn a_grant_survives_a_crash_although_sessions_commit_lazily() {
    let server = Server::start(&["wal_writer_delay=10s"]).await.unwrap();
    let place = Place { server };
    place.open(config()).await;
    place.server.run("ALTER ROLE postgres SET synchronous_commit = 'off'").await;
    // A session whose transactions nobody else makes durable.
    let store = place.open(config()).await;
    granted(store.acquire(&acquire("new", "a", Mode::Exclusive)).await);
    place.server.restart().await.unwrap();
    refused(store.acquire(&acquire("new", "b", Mode::Exclusive)).await);
    let to = Ttl::new(Duration::from_secs(600)).unwrap();
    let renewal = renew("new", "a", Mode::Exclusive, to);
    assert!(matches!(only(store.renew(&renewal).await.unwrap().leases), RenewOutcome::Held(_)));
    place.server.restart().await.unwrap();
    let refusal = refused(store.acquire(&acquire("new", "b", Mode::Exclusive)).await);
    assert!(refusal.retry_after.unwrap() > Duration::from_secs(500), "{refusal:?}");
}

#[tokio::test]
async fn an_operation_of_two_exchanges_ends_in_time() {
    let place = Place::new().await;
    place.open(config()).await;
    let proxy = Proxy::before(([127, 0, 0, 1], place.server.port()).into()).await.unwrap();
    let url = format!("{}&timeout=1s", url(proxy.address().port()));
    let server = PostgresConfig::parse(&url).unwrap();
    let store = PostgresNeneConfig::new(server).nene(config()).connect().await.unwrap();
    limits::an_operation_of_two_exchanges_ends_in_time(&store, &proxy, SECOND).await;
}

#[tokio::test]
async fn a_server_that_is_read_only_answers_nothing_that_it_knew_before() {
    let place = Place::new().await;
    let store = place.open(config()).await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    let standby = place.server.standby().await.unwrap();
    standby.has_all_of(&place.server).await;
    place.server.demote().await;
    for (server, fragment) in
        [(standby, "standby"), (place.server, "default_transaction_read_only")]
    {
        let open = async || {
            let config = PostgresConfig::parse(&server.url()).unwrap();
            PostgresNeneConfig::new(config).connect().await.unwrap()
        };
        let failures = first_failures(open).await;
        // Each is in doubt now, and asks.
        let again = join_all(failures.iter().map(|(store, _, _)| store.check())).await;
        for ((_, name, error), again) in failures.iter().zip(again) {
            assert!(error.to_string().contains("target_session_attrs"), "{name}: {error}");
            let error = again.unwrap_err();
            assert!(error.to_string().contains(fragment), "{name}: {error}");
        }
    }
}

#[tokio::test]
async fn a_missing_table_and_a_missing_privilege_are_named() {
    let place = Place::new().await;
    let server = PostgresConfig::parse(&place.server.url()).unwrap();
    let store = PostgresNeneConfig::new(server).connect().await.unwrap();
    assert_eq!(store.check().await.unwrap().schema, None);
    let acquired = store.acquire(&acquire("r", "a", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::Incompatible, Effect::NotApplied, "leasehold init");
    store.prepare().await.unwrap();
    assert_eq!(store.check().await.unwrap().schema, Some(1));

    place.server.run("CREATE ROLE worker LOGIN; GRANT SELECT ON distributed_locks TO worker").await;
    let url = place.server.url().replace("postgres@", "worker@");
    let open = || PostgresNeneConfig::new(PostgresConfig::parse(&url).unwrap()).connect();
    let acquired = open().await.unwrap().acquire(&acquire("r", "a", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::Denied, Effect::NotApplied, "leasehold_driver/nene/manual");
    // The privileges that the page lists.
    place.server.run("GRANT SELECT, INSERT, UPDATE, DELETE ON distributed_locks TO worker").await;
    let store = open().await.unwrap();
    assert_eq!(store.check().await.unwrap().schema, Some(1));
    granted(store.acquire(&acquire("r", "a", Mode::Exclusive)).await);
    granted(store.acquire(&acquire("r", "a", Mode::Exclusive)).await);
}

#[test]
fn a_url_has_the_options_of_both() {
    let url = "postgres://app@127.0.0.1/shop?format=nene&schema=app&table=locks&skew=2s&guard=1&timeout=2s";
    assert!(PostgresNeneConfig::parse(url).is_ok());
    for (url, fragment) in [
        ("postgres://app@127.0.0.1/shop?format=new", "nene"),
        ("postgres://app@127.0.0.1/shop?format=nene&table=a-b", "\"a-b\""),
        ("postgres://app@127.0.0.1/shop?format=nene&ttl=1s", "settle"),
        ("postgres://app@127.0.0.1/shop?format=nene&wakeups=0", "wakeups"),
    ] {
        let error = PostgresNeneConfig::parse(url).unwrap_err();
        assert!(error.to_string().contains(fragment), "{error}");
    }
}
