//! The PHP library's table, through the built command.

use std::process::{Command, Stdio};

use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{mysql, postgres};
use rusqlite::Connection;
use tokio::runtime::Runtime;

use crate::sql::kill_frees;
use crate::support::{Running, Store, code, text};

/// What every database does, after a statement of PHP's has taken `theirs`.
fn works_beside_php(name: &str, url: &str, takes: impl FnOnce()) {
    let store = Store::new();
    let command = |line: &str| {
        let mut command = store.command(line);
        command.env("LEASEHOLD_STORE", url).stdin(Stdio::null());
        command
    };
    let output = |line: &str| command(line).output().unwrap();
    let early = output("run -n k -- true");
    assert_eq!(code(&early), 65);
    assert!(text(&early.stderr).contains("`leasehold init`"), "{}", text(&early.stderr));
    for _ in 0..2 {
        let init = output("init");
        assert_eq!(code(&init), 0, "{}", text(&init.stderr));
        let prepared = text(&init.stdout);
        assert!(prepared.starts_with(&format!("the store {name} is ready: ")), "{prepared}");
        assert!(prepared.contains("\nlevel:     L0"), "{prepared}");
    }

    kill_frees(command);
    takes();
    let run = |key: &str| code(&output(&format!("run -n {key} -- true")));
    assert_eq!(run("theirs"), 1);
    assert_eq!(run("ours"), 0);
    assert!(text(&output("status theirs").stdout).contains("php"));
    let alias = url.replace("format=nene", "format=legacy");
    let status = command("status theirs").env("LEASEHOLD_STORE", alias).output().unwrap();
    assert!(text(&status.stdout).contains("php"), "{}", text(&status.stderr));
    assert_eq!(code(&output("break theirs")), 0);
    assert_eq!(run("theirs"), 0);

    let mut short: Command = command("run short --ttl 500ms --json -vv --");
    short.args(["sh", "-c", "echo held; cat"]).stdin(Stdio::piped());
    let short = Running::start(short);
    assert_eq!(short.line(), "held");
    let remaining = short.event("renewed")["remaining_us"].as_u64().unwrap();
    assert!(remaining > 500_000, "raised to a second: {remaining}");
    assert_eq!(short.code(), 0);

    let mut elect: Command = command("elect job --");
    elect.args(["sh", "-c", "echo leading; cat"]).stdin(Stdio::piped());
    let leader = Running::start(elect);
    assert_eq!(leader.line(), "leading");
    assert_eq!(code(&output("leader job")), 0);
}

#[test]
fn a_sqlite_file_is_shared_with_php() {
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("app.db");
    works_beside_php("sqlite", &format!("sqlite:{}?format=nene", path.display()), || {
        let php = Connection::open(&path).unwrap();
        php.execute_batch(
            "INSERT INTO distributed_locks VALUES ('theirs', 'php', datetime('now', '+60 seconds'), datetime('now'))",
        )
        .unwrap();
    });
}

#[test]
fn rows_of_names_that_are_no_keys_are_named() {
    let (store, file) = (Store::new(), tempfile::tempdir().unwrap());
    let path = file.path().join("app.db");
    let url = format!("sqlite:{}?format=nene", path.display());
    let output = |line: &str| {
        let output = store.command(line).env("LEASEHOLD_STORE", &url).output().unwrap();
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    output("init");
    Connection::open(&path)
        .unwrap()
        .execute_batch(
            "INSERT INTO distributed_locks VALUES
                 ('bell' || char(7), 'php', datetime('now', '+60 seconds'), datetime('now')),
                 ('old' || char(7), 'php', datetime('now', '-60 seconds'), datetime('now'))",
        )
        .unwrap();
    let (_, printed) = output("list");
    assert!(printed.contains(r#"left out 1 that cannot be read: "bell\u{7}"; "#), "{printed}");
    let (_, printed) = output("list --json");
    assert!(printed.contains(r#""event":"unreadable","names":["bell\u0007"]"#), "{printed}");
    let mut watch = store.command("list --watch=10ms --json");
    watch.env("LEASEHOLD_STORE", &url);
    let watching = Running::start(watch);
    assert_eq!(watching.line(), "[]");
    assert_eq!(watching.event("unreadable")["names"][0], "bell\u{7}");
    drop(watching);
    let (purged, printed) = output("purge --json");
    assert!(purged.contains(r#""unreadable":1"#), "{purged}");
    assert!(printed.contains(r#""names":["old\u0007"]"#), "{printed}");
    assert_eq!(output("list --prefix other"), (String::new(), String::new()));
}

#[test]
fn a_database_of_mariadb_is_shared_with_php() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(mysql::Server::start(&[])).unwrap();
    let absent = format!("{}?format=nene", server.url());
    let init = Store::new().command("init").env("LEASEHOLD_STORE", absent).output().unwrap();
    let printed = text(&init.stderr);
    assert_eq!(code(&init), 65, "{printed}");
    assert!(
        printed.contains("CREATE DATABASE") && !printed.contains("leasehold init"),
        "{printed}"
    );
    runtime.block_on(server.run("CREATE DATABASE leasehold"));
    works_beside_php("mysql", &format!("{}?format=nene&guard=1", server.url()), || {
        runtime.block_on(server.run(
            "INSERT INTO leasehold.distributed_locks
             VALUES ('theirs', 'php', UTC_TIMESTAMP() + INTERVAL 60 SECOND, UTC_TIMESTAMP())",
        ));
    });
}

#[test]
fn a_database_of_postgresql_is_shared_with_others() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(postgres::Server::start(&[])).unwrap();
    works_beside_php("postgres", &format!("{}&format=nene&guard=1", server.url()), || {
        runtime.block_on(server.run(
            "INSERT INTO distributed_locks
             SELECT 'theirs', 'php', now() AT TIME ZONE 'UTC' + interval '60 s', now() AT TIME ZONE 'UTC'",
        ));
    });
}
