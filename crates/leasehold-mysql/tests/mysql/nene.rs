//! The table of the PHP library, beside its clients.

use std::time::Duration;

use leasehold_core::{
    Effect, ErrorKind, Filter, ListRequest, LostReason, Mode, RenewOutcome, Store as _, Ttl,
};
use leasehold_mysql::mysql_async::prelude::Queryable as _;
use leasehold_mysql::mysql_async::{Opts, OptsBuilder, Pool};
use leasehold_mysql::{MysqlConfig, MysqlNeneConfig};
use leasehold_testkit::mysql::Server;
use leasehold_testkit::nene::Database as _;
use leasehold_testkit::nene::cases::config;
use leasehold_testkit::read_only::answers_nothing;
use leasehold_testkit::requests::{acquire, failed, granted, is_renewed, only, refused, renew};
use leasehold_testkit::sql::SqlTestServer as _;

leasehold_testkit::sql_nene!(Server);

const QUICK: &str = "--innodb-flush-log-at-trx-commit=2";

/// As a proxy before it may do.
#[tokio::test]
async fn the_table_has_a_collation_of_the_server_whatever_version_it_reports() {
    let server = Server::start(&[QUICK, "--version=11.4.2"]).await.unwrap();
    server.run("CREATE DATABASE leasehold").await;
    let store = server.open_table(config()).await;
    for name in ["job", "JOB", "job "] {
        granted(store.acquire(&acquire(name, "a", Mode::Exclusive)).await);
    }
}

/// The table as the framework creates it: with the database's default collation.
async fn of_the_framework() -> Server {
    let server = Server::new().await;
    server
        .run(
            "CREATE TABLE leasehold.distributed_locks (
                 resource VARCHAR(255) NOT NULL PRIMARY KEY, owner VARCHAR(255) NOT NULL, expires_at DATETIME NOT NULL,
                 acquired_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP
             ) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        )
        .await;
    server
}

#[tokio::test]
async fn names_that_a_collation_does_not_tell_apart_are_one_lock_for_both_sides() {
    let server = of_the_framework().await;
    let (store, mut php) = (server.open_table(config()).await, server.php());
    let hazards = store.check().await.unwrap().hazards;
    assert!(hazards.iter().any(|hazard| hazard.contains("utf8mb4_general_ci")), "{hazards:?}");
    assert!(php.acquired("Job", "php", 30));
    for name in ["job", "JOB", "job "] {
        refused(store.acquire(&acquire(name, "ours", Mode::Exclusive)).await);
    }
    // Owners are compared byte by byte.
    refused(store.acquire(&acquire("job", "PHP", Mode::Exclusive)).await);
    assert!(php.releases("Job", "php"));
    // Also by the trigger.
    server.open_table(config().guard(true)).await;
    granted(store.acquire(&acquire("job", "php", Mode::Exclusive)).await);
    assert!(php.overwrites("job", "PHP", 30).is_err());
    assert!(php.releases("job", "php"));
    granted(store.acquire(&acquire("job", "ours", Mode::Exclusive)).await);
    granted(store.acquire(&acquire("JOB", "ours", Mode::Exclusive)).await);
    assert!(!php.acquired("Job", "php", 30));
    is_renewed(&store, "JOB", "ours", Mode::Exclusive).await;
}

/// While a renewal waits, the row becomes that of an owner whom the collation does not tell from the holder.
#[tokio::test]
async fn a_row_of_another_owner_is_not_renewed_whatever_the_collation_is() {
    let server = of_the_framework().await;
    let store = server.open_patient(config()).await;
    granted(store.acquire(&acquire("r", "ours", Mode::Exclusive)).await);
    let mut other = server.connect().await.unwrap();
    other.query_drop("START TRANSACTION").await.unwrap();
    other.query_drop("UPDATE leasehold.distributed_locks SET owner = 'OURS'").await.unwrap();
    let renewal = async move {
        let to = Ttl::new(Duration::from_secs(600)).unwrap();
        only(store.renew(&renew("r", "ours", Mode::Exclusive, to)).await.unwrap().leases)
    };
    let mut renewing = server.until_it_waits(renewal).await;
    other.query_drop("COMMIT").await.unwrap();
    let renewed = renewing.join_next().await.unwrap().unwrap();
    assert!(matches!(renewed, RenewOutcome::Lost(Some(LostReason::Gone))), "{renewed:?}");
    assert_eq!(server.php().owner("r"), "OURS");
}

#[tokio::test]
async fn other_time_zones_modes_and_character_sets_change_nothing() {
    for mode in
        ["--sql-mode=ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH", "--sql-mode=ORACLE"]
    {
        let settings = [
            QUICK,
            mode,
            "--default-time-zone=+13:00",
            "--character-set-server=latin1",
            "--skip-character-set-client-handshake",
            "--transaction-isolation=SERIALIZABLE",
        ];
        let server = Server::start(&settings).await.unwrap();
        server.run("CREATE DATABASE leasehold").await;
        let store = server.open_table(config().guard(true)).await;
        let mut php = server.php();
        php.ask(&["run", "SET NAMES utf8mb4"]).unwrap();
        let request = acquire("jöb", "öurs", Mode::Exclusive);
        granted(store.acquire(&request).await);
        let refusal = refused(store.acquire(&acquire("jöb", "b", Mode::Exclusive)).await);
        assert!(refusal.retry_after.unwrap() < Duration::from_secs(60), "{mode}: {refusal:?}");
        assert_eq!(php.owner("jöb"), "öurs", "{mode}");
        assert!(php.overwrites("jöb", "php", 30).is_err() && !php.acquired("jöb", "php", 30));
        assert!(php.releases("jöb", "öurs"));
        assert!(php.acquired("jöb", "php", 30));
        refused(store.acquire(&request).await);
    }
}

#[tokio::test]
async fn a_table_with_other_times_is_refused() {
    let server = Server::new().await;
    let store = server.open_table(config()).await;
    for kind in ["DATETIME(6)", "TIMESTAMP"] {
        let alter = format!(
            "ALTER TABLE leasehold.distributed_locks MODIFY expires_at {kind} NOT NULL DEFAULT CURRENT_TIMESTAMP"
        );
        server.run(&alter.replace("(6) NOT NULL DEFAULT CURRENT_TIMESTAMP", "(6) NOT NULL")).await;
        failed(store.check().await, ErrorKind::Incompatible, Effect::NotApplied, "whole seconds");
    }
}

#[tokio::test]
async fn sessions_that_cannot_serve_are_refused() {
    let server = Server::new().await;
    server.open_table(config()).await;
    for (setting, fragment) in [
        ("SET autocommit = 0", "autocommit"),
        ("SET NAMES latin1", "utf8mb4"),
        ("SET character_set_results = NULL", "utf8mb4"),
    ] {
        let opts = OptsBuilder::from_opts(Opts::from_url(&server.url()).unwrap());
        let server = MysqlConfig::pool(Pool::new(opts.init(vec![setting])), "leasehold");
        let store = MysqlNeneConfig::new(server).nene(config()).connect().await.unwrap();
        let acquired = store.acquire(&acquire("r", "a", Mode::Exclusive)).await;
        failed(acquired, ErrorKind::Incompatible, Effect::NotApplied, fragment);
    }
}

/// An administrator could write there all the same, and take over what the new primary has granted.
#[tokio::test]
async fn a_server_that_is_read_only_answers_nothing_that_it_knew_before() {
    let server = Server::new().await;
    let store = server.open_table(config()).await;
    granted(store.acquire(&acquire("k", "a", Mode::Exclusive)).await);
    server.run("CREATE USER app").await;
    server.run("GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.* TO app").await;
    server.demote().await;
    for user in ["root", "app"] {
        let url = server.url().replace("root@", &format!("{user}@"));
        let open = async || {
            let config = MysqlNeneConfig::new(MysqlConfig::parse(&url).unwrap());
            config.connect().await.unwrap()
        };
        answers_nothing(open, "connect to the primary", "connect to the primary").await;
    }
    // Nor that there is nothing.
    server.run("DELETE FROM leasehold.distributed_locks").await;
    store.list(&ListRequest::new(Filter::default())).await.unwrap_err();
}

/// One that is demoted after the look at a row.
#[tokio::test]
async fn a_write_changes_nothing_on_a_server_that_is_read_only() {
    let server = Server::new().await;
    server.open_table(config()).await;
    let mut administrator = server.connect().await.unwrap();
    let row = "('r', 'a', '2000-01-01', '2000-01-01')";
    server.run(&format!("INSERT INTO leasehold.distributed_locks VALUES {row}")).await;
    for read_only in ["TRUE", "FALSE"] {
        let inserted = |text: &str| {
            let text = text.replace("{read_only}", read_only).replace("{now}", "0");
            text.replace("{schema}", "leasehold").replace("{table}", "distributed_locks")
        };
        let insert = inserted(include_str!("../../src/sql/nene/insert.sql"));
        let replace = inserted(include_str!("../../src/sql/nene/replace.sql"));
        let delete = inserted(include_str!("../../src/sql/nene/delete.sql"));
        let seen = 946_684_800;
        administrator.exec_drop(&insert, ("new", "a", seen, seen)).await.unwrap();
        let mut changed = vec![administrator.affected_rows()];
        administrator
            .exec_drop(&replace, ("b", seen, seen, "r", "a", seen, i64::MAX))
            .await
            .unwrap();
        changed.push(administrator.affected_rows());
        let owner = if read_only == "TRUE" { "a" } else { "b" };
        administrator.exec_drop(&delete, ("r", owner, seen)).await.unwrap();
        changed.push(administrator.affected_rows());
        let expected = if read_only == "TRUE" { [0; 3] } else { [1; 3] };
        assert_eq!(changed, expected, "{read_only}");
    }
}
