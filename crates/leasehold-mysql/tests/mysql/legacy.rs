//! The table of the PHP library, beside its clients.

use std::time::Duration;

use leasehold_core::{Effect, ErrorKind, LostReason, Mode, RenewOutcome, Store as _, Ttl};
use leasehold_mysql::mysql_async::prelude::Queryable as _;
use leasehold_mysql::mysql_async::{Opts, OptsBuilder, Pool};
use leasehold_mysql::{LegacyConfig, MysqlConfig, MysqlLegacyConfig, MysqlLegacyStore};
use leasehold_testkit::legacy::cases::{self, FAST, FASTER, config};
use leasehold_testkit::legacy::{Php, sides};
use leasehold_testkit::mysql::Server;
use leasehold_testkit::requests::{acquire, acquire_for, failed, granted, only, refused, renew};
use leasehold_testkit::{SECOND, until};
use tokio::task::JoinSet;

/// A server with the database of an application.
struct Place {
    server: Server,
}

const QUICK: &str = "--innodb-flush-log-at-trx-commit=2";

impl Place {
    async fn new() -> Self {
        let place = Self { server: Server::start(&[QUICK]).await.unwrap() };
        place.server.run("CREATE DATABASE leasehold").await;
        place
    }

    /// The store, with its table.
    async fn open(&self, legacy: LegacyConfig) -> MysqlLegacyStore {
        let server = MysqlConfig::from_url(&self.server.url()).unwrap();
        let store = MysqlLegacyConfig::new(server).legacy(legacy).open().await.unwrap();
        store.prepare().await.unwrap();
        store
    }

    fn php(&self) -> Php {
        self.php_ahead(0)
    }

    fn php_ahead(&self, ahead: i64) -> Php {
        let port = self.server.port();
        let dsn = format!("mysql:host=127.0.0.1;port={port};dbname=leasehold;charset=utf8mb4");
        Php::start_ahead(&dsn, "root", ahead)
    }
}

#[tokio::test]
async fn the_cases_of_the_library() {
    let place = Place::new().await;
    let store = place.open(config()).await;
    cases::the_cases_of_the_library(&store, &mut place.php()).await;
}

#[tokio::test]
async fn both_sides_exclude_each_other() {
    let place = Place::new().await;
    let store = place.open(config()).await;
    let (mut fast, mut faster) = (place.php_ahead(FAST), place.php_ahead(FASTER));
    cases::both_exclude_each_other(&store, &mut place.php(), &mut fast, &mut faster).await;
}

#[tokio::test]
async fn the_defects_of_the_library_are_mended() {
    let place = Place::new().await;
    let store = place.open(config()).await;
    cases::its_defects_are_mended(&store, &mut place.php()).await;
}

#[tokio::test]
async fn a_php_client_under_our_own_name_shortens_our_term() {
    let place = Place::new().await;
    let store = place.open(config()).await;
    cases::php_under_our_own_name_shortens_our_term(&store, &mut place.php()).await;
}

#[tokio::test]
async fn who_took_a_row_over_looks_again_whether_php_has_overwritten_it() {
    let place = Place::new().await;
    place.open(config()).await;
    let open = async |legacy| place.open(legacy).await;
    cases::who_took_a_row_over_looks_again(open, &mut place.php()).await;
}

#[tokio::test]
async fn what_php_writes_too_late_is_seen_at_the_next_renewal() {
    let place = Place::new().await;
    let store = place.open(config()).await;
    cases::what_php_writes_too_late_is_seen_at_the_next_renewal(&store, &mut place.php()).await;
}

#[tokio::test]
async fn the_trigger_refuses_to_overwrite_a_row_that_has_not_ended() {
    let place = Place::new().await;
    place.open(config()).await;
    let open = async |legacy| place.open(legacy).await;
    cases::the_trigger_refuses_to_overwrite(open, &mut place.php()).await;
}

#[tokio::test]
async fn an_open_transaction_of_php_grants_nothing() {
    let place = Place::new().await;
    let store = place.open(config()).await;
    cases::an_open_transaction_of_php_grants_nothing(&store, &mut place.php()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_contenders_for_an_expired_row_one_wins() {
    let place = Place::new().await;
    let stores = [place.open(config()).await, place.open(config()).await];
    place
        .server
        .run(
            "INSERT INTO leasehold.distributed_locks
             SELECT CONCAT('r', seq), 'dead', '2000-01-01', '2000-01-01' FROM leasehold.seq_0_to_9999",
        )
        .await;
    cases::of_contenders_for_expired_rows_one_wins(stores, 10_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_sides_contend_and_nobody_holds_beside_another() {
    let place = Place::new().await;
    for guard in [false, true] {
        let legacy = LegacyConfig::default().skew(Duration::ZERO).guard(guard);
        let mut stores = Vec::new();
        for _ in 0..3 {
            stores.push(place.open(legacy.clone()).await);
        }
        let clients = (0..3).map(|_| place.php()).collect();
        let contest = sides::contend(stores, clients, guard, sides::duration() / 2).await;
        println!("with a trigger: {guard}; {contest}");
        contest.is_telling();
    }
}

/// The framework's table has the database's default collation.
#[tokio::test]
async fn names_that_a_collation_does_not_tell_apart_are_one_lock_for_both_sides() {
    let place = Place::new().await;
    place
        .server
        .run(
            "CREATE TABLE leasehold.distributed_locks (
                 resource VARCHAR(255) NOT NULL PRIMARY KEY, owner VARCHAR(255) NOT NULL, expires_at DATETIME NOT NULL,
                 acquired_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP
             ) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        )
        .await;
    let (store, mut php) = (place.open(config()).await, place.php());
    let hazards = store.check().await.unwrap().hazards;
    assert!(hazards.iter().any(|hazard| hazard.contains("utf8mb4_general_ci")), "{hazards:?}");
    assert!(php.acquired("Job", "php", 30));
    for name in ["job", "JOB", "job "] {
        refused(store.acquire(&acquire(name, "ours", Mode::Exclusive)).await);
    }
    // Owners are compared byte by byte.
    refused(store.acquire(&acquire("job", "PHP", Mode::Exclusive)).await);
    assert!(php.releases("Job", "php"));
    granted(store.acquire(&acquire("job", "ours", Mode::Exclusive)).await);
    granted(store.acquire(&acquire("JOB", "ours", Mode::Exclusive)).await);
    assert!(!php.acquired("Job", "php", 30));
    let to = Ttl::new(Duration::from_secs(60)).unwrap();
    let renewed = store.renew(&renew("JOB", "ours", Mode::Exclusive, to)).await.unwrap();
    assert!(matches!(only(renewed.leases), RenewOutcome::Held(_)));
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_corrupt_and_no_grant() {
    let place = Place::new().await;
    let store = place.open(config()).await;
    // What PHP writes where a date is out of range and the mode is not strict.
    place
        .server
        .run(
            "SET STATEMENT sql_mode = '' FOR INSERT INTO leasehold.distributed_locks
             VALUES ('r', 'php', '0000-00-00', '0000-00-00')",
        )
        .await;
    let acquired = store.acquire(&acquire("r", "ours", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::Corrupt, Effect::NotApplied, "no time");
}

#[tokio::test]
async fn a_table_with_other_times_is_refused() {
    let place = Place::new().await;
    let store = place.open(config()).await;
    for kind in ["DATETIME(6)", "TIMESTAMP"] {
        let alter = format!(
            "ALTER TABLE leasehold.distributed_locks MODIFY expires_at {kind} NOT NULL DEFAULT CURRENT_TIMESTAMP"
        );
        place
            .server
            .run(&alter.replace("(6) NOT NULL DEFAULT CURRENT_TIMESTAMP", "(6) NOT NULL"))
            .await;
        failed(store.check().await, ErrorKind::Incompatible, Effect::NotApplied, "whole seconds");
    }
}

/// A lease whose renewal waits for the row until it has ended. With sessions that wait long for a lock.
#[tokio::test]
async fn a_lease_that_ended_while_its_renewal_waited_is_not_revived() {
    let place = Place::new().await;
    place.open(config()).await;
    let pool = Pool::new(Opts::from_url(&place.server.url()).unwrap());
    let server = MysqlConfig::pool(pool, "leasehold").timeout(30 * SECOND);
    let store = MysqlLegacyConfig::new(server).legacy(config()).open().await.unwrap();
    granted(store.acquire(&acquire_for("r", "a", Mode::Exclusive, 2 * SECOND)).await);

    let mut other = place.server.connect().await.unwrap();
    other.query_drop("START TRANSACTION").await.unwrap();
    other.query_drop("SELECT * FROM leasehold.distributed_locks FOR UPDATE").await.unwrap();
    let mut renewing = JoinSet::new();
    renewing.spawn(async move {
        let to = Ttl::new(Duration::from_secs(60)).unwrap();
        let renewed = store.renew(&renew("r", "a", Mode::Exclusive, to)).await.unwrap();
        only(renewed.leases)
    });
    let waits = "SELECT 1 FROM information_schema.PROCESSLIST WHERE INFO LIKE 'UPDATE%'";
    until(async || !place.server.rows(waits).await.is_empty()).await;
    let over = "SELECT 1 FROM leasehold.distributed_locks WHERE expires_at <= UTC_TIMESTAMP()";
    until(async || !place.server.rows(over).await.is_empty()).await;
    other.query_drop("COMMIT").await.unwrap();
    let renewed = renewing.join_next().await.unwrap().unwrap();
    let expired = RenewOutcome::Lost(Some(LostReason::Expired));
    assert_eq!(format!("{renewed:?}"), format!("{expired:?}"));
}

#[tokio::test]
async fn sessions_that_do_not_commit_each_statement_are_refused() {
    let place = Place::new().await;
    place.open(config()).await;
    let opts = OptsBuilder::from_opts(Opts::from_url(&place.server.url()).unwrap());
    let pool = Pool::new(opts.init(vec!["SET autocommit = 0"]));
    let server = MysqlConfig::pool(pool, "leasehold");
    let store = MysqlLegacyConfig::new(server).legacy(config()).open().await.unwrap();
    let acquired = store.acquire(&acquire("r", "a", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::Incompatible, Effect::NotApplied, "autocommit");
}

#[tokio::test]
async fn a_missing_table_and_a_missing_privilege_are_named() {
    let place = Place::new().await;
    let server = MysqlConfig::from_url(&place.server.url()).unwrap();
    let store = MysqlLegacyConfig::new(server).open().await.unwrap();
    assert_eq!(store.check().await.unwrap().schema, None);
    let acquired = store.acquire(&acquire("r", "a", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::Incompatible, Effect::NotApplied, "leasehold init");
    store.prepare().await.unwrap();
    assert_eq!(store.check().await.unwrap().schema, Some(1));

    place.server.run("CREATE USER worker@localhost").await;
    place.server.run("CREATE USER worker@'127.0.0.1'").await;
    place.server.run("GRANT SELECT ON leasehold.distributed_locks TO worker@'127.0.0.1'").await;
    let url = place.server.url().replace("root@", "worker@");
    let open = || MysqlLegacyConfig::new(MysqlConfig::from_url(&url).unwrap()).open();
    let acquired = open().await.unwrap().acquire(&acquire("r", "a", Mode::Exclusive)).await;
    failed(acquired, ErrorKind::Denied, Effect::NotApplied, "INSERT");
    // The privileges that the page lists.
    let grant =
        "GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.distributed_locks TO worker@'127.0.0.1'";
    place.server.run(grant).await;
    let store = open().await.unwrap();
    assert_eq!(store.check().await.unwrap().schema, Some(1));
    granted(store.acquire(&acquire("r", "a", Mode::Exclusive)).await);
    granted(store.acquire(&acquire("r", "a", Mode::Exclusive)).await);
}

#[test]
fn a_url_has_the_options_of_both() {
    let url =
        "mysql://app@127.0.0.1/shop?format=legacy&table=locks&skew=2s&settle=1s&guard=1&timeout=2s";
    assert!(MysqlLegacyConfig::from_url(url).is_ok());
    for (url, says) in [
        ("mysql://app@127.0.0.1/shop?format=new", "legacy"),
        ("mysql://app@127.0.0.1/shop?format=legacy&table=a-b", "\"a-b\""),
        ("mysql://app@127.0.0.1/shop?format=legacy&ttl=1s", "settle"),
    ] {
        let error = MysqlLegacyConfig::from_url(url).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}
