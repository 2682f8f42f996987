//! The same fault of a store has the same exit code in every subcommand, and no wait is silent: what only the user can
//! mend ends it, and what may mend itself is waited for and told.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::process::{Command, Stdio};
use std::thread;

use crate::support::{Running, Store, code, text};
use leasehold_testkit::sql::SqlTestServer as _;
use leasehold_testkit::{mysql, postgres, redis};
use nix::pty::openpty;
use tokio::runtime::Runtime;

/// A fault, by the URL of a store that has it.
struct Fault<'a> {
    url: String,
    code: i32,
    /// A part of the message.
    fragment: &'a str,
    /// What `init` does about it if that differs.
    init: i32,
}

fn fault(url: impl Into<String>, code: i32, fragment: &str) -> Fault<'_> {
    Fault { url: url.into(), code, fragment, init: code }
}

impl Fault<'_> {
    /// What differs from what is expected.
    fn differences(&self) -> Vec<String> {
        let store = Store::new();
        let command = |line: &str| {
            let mut command = store.command(line);
            command.env("LEASEHOLD_STORE", &self.url).stdin(Stdio::null());
            command
        };
        let ends = |line: &str, mut command: Command, expected: i32| {
            let output = command.output().unwrap();
            let (code, printed) = (code(&output), text(&output.stderr));
            let is_right = code == expected && (code == 0 || printed.contains(self.fragment));
            (!is_right).then(|| format!("{}: {line}: {code}, {printed}", self.url))
        };
        thread::scope(|scope| {
            // One that waits for the store to come back does so to the end.
            let wait = if self.code == 69 { "run -w 3s k -- true" } else { "run -w 60s k -- true" };
            let once = ["run -n k -- true", wait].map(|line| {
                let command = command(line);
                scope.spawn(move || ends(line, command, self.code))
            });
            let waits = self.waits(command("run --json k -- true"));
            let mut differences: Vec<_> =
                once.into_iter().filter_map(|one| one.join().unwrap()).chain(waits).collect();
            differences.extend(ends("init", command("init"), self.init));
            differences
        })
    }

    /// `run` ends at once, or tells what it waits for.
    fn waits(&self, command: Command) -> Option<String> {
        let mut waits = Running::start(command);
        let expected = if self.code == 69 { "store_awaited" } else { "error" };
        let event = waits.some_event();
        let is_named = event["message"].as_str().unwrap().contains(self.fragment);
        let is_right = event["event"] == expected && is_named;
        let code = (event["event"] == "error").then(|| waits.exit_code());
        let is_right = is_right && code.is_none_or(|code| code == self.code);
        (!is_right).then(|| format!("{}: run: {code:?}, {event}", self.url))
    }
}

fn check(faults: &[Fault<'_>]) {
    let differences: Vec<_> = faults.iter().flat_map(Fault::differences).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// A port that refuses.
fn refusing() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A port on which something speaks first that is no database.
fn mail_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            // A client may be gone already.
            let _ = client.write_all(b"220 mail.example ESMTP ready\r\n");
            let _ = client.shutdown(Shutdown::Write);
            // What it has sent would reset the connection if it stayed unread.
            thread::spawn(move || std::io::copy(&mut client, &mut std::io::sink()));
        }
    });
    port
}

#[test]
fn of_postgresql_end_a_wait_or_are_reported() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(postgres::Server::start(&[])).unwrap();
    let run = |text: &str| runtime.block_on(server.run(text));
    for user in ["secret", "poor", "busy", "reader"] {
        run(&format!("CREATE ROLE {user} LOGIN PASSWORD 'right'"));
    }
    for database in ["bare", "made"] {
        run(&format!("CREATE DATABASE {database}"));
    }
    run("ALTER ROLE busy CONNECTION LIMIT 0;
         ALTER ROLE reader SUPERUSER;
         ALTER ROLE reader SET default_transaction_read_only = on");
    let hba = server.directory().join("data/pg_hba.conf");
    let open = std::fs::read_to_string(&hba).unwrap();
    std::fs::write(&hba, format!("host all secret 127.0.0.1/32 scram-sha-256\n{open}")).unwrap();
    run("SELECT pg_reload_conf()");
    let at = |login: &str, port: u16, rest: &str| {
        format!("postgres://{login}@127.0.0.1:{port}/{rest}sslmode=disable")
    };
    let port = server.port();
    let made = at("postgres", port, "made?");
    let init = Store::new().command("init").env("LEASEHOLD_STORE", &made).output().unwrap();
    assert_eq!(code(&init), 0, "{}", text(&init.stderr));
    let standby = runtime.block_on(server.standby()).unwrap();
    check(&[
        fault(at("secret:wrong", port, "made?"), 77, "password"),
        fault(at("secret", port, "made?"), 77, "password"),
        fault(at("poor", port, "made?"), 77, "privilege"),
        fault(at("postgres", port, "absent?"), 65, "does not exist"),
        Fault { init: 0, ..fault(at("postgres", port, "bare?"), 65, "leasehold init") },
        fault(at("postgres", mail_server(), "made?"), 65, "not a PostgreSQL server"),
        fault(at("postgres", port, "made?nonsense=1&"), 64, "nonsense"),
        fault(made.replace("disable", "require"), 77, "does not use TLS"),
        fault(at("postgres", refusing(), "made?"), 69, "refused"),
        fault("postgres://postgres@nowhere.invalid/made?sslmode=disable", 69, "nowhere.invalid"),
        fault("postgres:///made?host=/nowhere&user=postgres", 69, "/nowhere"),
        fault(at("busy", port, "made?"), 69, "no connection free"),
        fault(at("reader", port, "made?"), 69, "read-only"),
        fault(at("postgres", standby.port(), "made?"), 69, "standby"),
    ]);
}

#[test]
fn of_mariadb_end_a_wait_or_are_reported() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(mysql::Server::start(&[])).unwrap();
    let run = |text: &str| runtime.block_on(server.run(text));
    run("CREATE DATABASE bare");
    for user in ["secret", "busy", "poor", "user"] {
        run(&format!("CREATE USER {user}@'%' IDENTIFIED BY 'right'"));
    }
    run("GRANT ALL ON bare.* TO user@'%'");
    run("GRANT ALL ON made.* TO user@'%'");
    run("GRANT ALL ON made.* TO busy@'%' WITH MAX_USER_CONNECTIONS 1");
    let at =
        |login: &str, port: u16, rest: &str| format!("mysql://{login}@127.0.0.1:{port}/{rest}");
    let port = server.port();
    let made = at("root", port, "made");
    let init = Store::new().command("init").env("LEASEHOLD_STORE", &made).output().unwrap();
    assert_eq!(code(&init), 0, "{}", text(&init.stderr));
    let busy = at("busy:right", port, "made");
    let _one = runtime.block_on(mysql_async::Conn::from_url(&busy)).unwrap();
    check(&[
        fault(at("secret:wrong", port, "made"), 77, "password"),
        fault(at("secret", port, "made"), 77, "password"),
        fault(at("poor:right", port, "made"), 77, "privilege"),
        Fault { init: 0, ..fault(at("root", port, "absent"), 65, "leasehold init") },
        Fault { init: 0, ..fault(at("root", port, "bare"), 65, "leasehold init") },
        fault(at("root", mail_server(), "made"), 65, "not a MySQL or MariaDB server"),
        fault(at("root", port, "made?nonsense=1"), 64, "nonsense"),
        fault(at("root", port, "made?ssl-mode=required"), 77, "does not use TLS"),
        fault(at("root", refusing(), "made"), 69, "refused"),
        fault("mysql://root@nowhere.invalid/made?ssl-mode=disabled", 69, "nowhere.invalid"),
        fault("mysql://root@/made?socket=/nowhere/socket", 69, "/nowhere"),
        fault(busy, 69, "no connection free"),
    ]);
    run("SET GLOBAL read_only = 1");
    check(&[fault(at("user:right", port, "made"), 69, "read-only")]);
}

#[test]
fn of_redis_end_a_wait_or_are_reported() {
    let runtime = Runtime::new().unwrap();
    let start = |settings: &[&str]| runtime.block_on(redis::Server::start(settings)).unwrap();
    let (server, full) = (start(&[]), start(&["--maxmemory", "1"]));
    let ask = |server: &redis::Server, words: &[&str]| runtime.block_on(server.text(words));
    ask(&server, &["ACL", "SETUSER", "secret", "on", ">right", "~*", "&*", "+@all"]);
    ask(&server, &["ACL", "SETUSER", "poor", "on", ">right", "~*", "+hello", "+ping"]);
    let (replica, busy, locked) =
        (start(&[]), start(&["--maxclients", "1"]), start(&["--maxclients", "10"]));
    ask(&replica, &["REPLICAOF", "127.0.0.1", &server.port().to_string()]);
    ask(&locked, &["CONFIG", "SET", "requirepass", "right"]);
    let _one = runtime.block_on(redis::connect(&busy.url())).unwrap();
    let at = |login: &str, port: u16| format!("redis://{login}127.0.0.1:{port}/");
    let port = server.port();
    check(&[
        fault(at("secret:wrong@", port), 77, "password"),
        fault(at("", locked.port()), 77, "password"),
        fault(at("poor:right@", port), 77, "privilege"),
        fault(at("", mail_server()), 65, "not a Redis server"),
        fault(at("", port) + "99", 64, "too large"),
        fault(at("", port) + "?nonsense=1", 64, "nonsense"),
        fault(
            at("", port).replace("redis:", "rediss:") + "?timeout=300ms",
            69,
            "a server without TLS does not answer",
        ),
        fault(at("", refusing()), 69, "refused"),
        fault("redis://nowhere.invalid/", 69, "nowhere.invalid"),
        fault("redis+unix:///nowhere/socket", 69, "/nowhere"),
        fault(busy.url(), 69, ""),
        fault(replica.url(), 69, "replica"),
        // Nothing is written by it.
        Fault { init: 0, ..fault(full.url(), 69, "out of memory") },
    ]);
}

#[test]
fn of_sqlite_end_a_wait_or_are_reported() {
    let store = Store::new();
    std::fs::write(store.file("letter.txt"), "Dear reader, this is no database.".repeat(99))
        .unwrap();
    assert_eq!(store.code("init"), 0);
    let full = std::fs::read(store.database()).unwrap();
    std::fs::write(store.file("cut.db"), &full[..full.len() / 2]).unwrap();
    let at = |name: &str| format!("sqlite:{}", store.file(name).display());
    check(&[
        fault(at("letter.txt"), 65, "not a SQLite database"),
        fault(at("absent/locks.db"), 64, "exists"),
        fault(at("locks.db?nonsense=1"), 64, "nonsense"),
        fault("sqlite:/proc/locks.db", 65, "local"),
    ]);
    let busy = at("locks.db?timeout=100ms");
    let _out = store.lock_out();
    check(&[Fault { init: 0, ..fault(busy, 69, "locked") }]);
}

#[test]
fn of_some_nodes_of_a_quorum_end_a_wait_or_are_reported() {
    let (a, b, c) = (Store::new(), Store::new(), Store::new());
    let quorum = |nodes: [&str; 3]| {
        let nodes = nodes.map(|node| format!("node={}", node.replace('?', "%3F")));
        format!("quorum:?{}", nodes.join("&"))
    };
    let gone = [refusing(), refusing()].map(|port| format!("redis://127.0.0.1:{port}/"));
    let (a, b, c) = (a.url(), b.url(), c.url());
    check(&[
        Fault { fragment: "", ..fault(quorum([&a, &gone[0], &gone[1]]), 69, "") },
        fault(quorum([&a, &b, &format!("{c}?nonsense=1")]), 64, "nonsense"),
    ]);
}

#[test]
fn that_come_and_go_during_a_wait_are_reported_as_they_change() {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(redis::Server::start(redis::DURABLE)).unwrap();
    let store = Store::new();
    let command = |line: &str| {
        let mut command = store.command(line);
        command.env("LEASEHOLD_STORE", server.store_url());
        command
    };
    let mut holder = command("run k --ttl 1h --comment nightly --on-lost ignore --");
    holder.args(["sh", "-c", "echo held; cat"]);
    let holder = Running::start(holder);
    assert_eq!(holder.line(), "held");

    for line in ["run k --json -v -- true", "elect k --json -v -- true"] {
        let waits = Running::start(command(line));
        let held = waits.event("waiting");
        assert_eq!(held["holder"]["comment"], "nightly");
        assert!(held["message"].as_str().unwrap().contains("nightly"), "{held}");
        server.kill();
        let failed = waits.event("store_awaited");
        assert_eq!(failed["kind"], "unavailable");
        runtime.block_on(server.restart()).unwrap();
        assert_eq!(waits.event("waiting")["keys"], serde_json::json!(["k"]));
    }
    let quiet = command("run -q k -w 100ms -- true").output().unwrap();
    assert_eq!((code(&quiet), text(&quiet.stderr)), (124, String::new()));
    let loud = command("run k -w 100ms -- true").output().unwrap();
    assert!(!text(&loud.stderr).contains("waiting"), "{}", text(&loud.stderr));
}

/// By a clock that runs sixty times as fast.
#[test]
fn that_last_are_reported_every_minute_on_a_terminal_and_once_elsewhere() {
    let store = Store::new();
    let command = || {
        let mut command = store.command("run -w 200s k -- true");
        command.env("LEASEHOLD_STORE", format!("redis://127.0.0.1:{}/", refusing()));
        command.env("LD_PRELOAD", "/usr/$LIB/faketime/libfaketimeMT.so.1");
        command.env("FAKETIME", "+0 x60");
        command
    };
    let told = |printed: &[u8]| text(printed).matches("waiting for the store").count();
    let terminal = openpty(None, None).unwrap();
    let ended = command().stderr(terminal.slave).status().unwrap();
    let mut shown = Vec::new();
    // Fails after the last byte, for nobody has the terminal any more.
    let _ = File::from(terminal.master).read_to_end(&mut shown);
    assert_eq!(ended.code(), Some(69), "{}", text(&shown));
    assert!(told(&shown) > 1, "{}", text(&shown));
    let elsewhere = command().output().unwrap().stderr;
    assert_eq!(told(&elsewhere), 1, "{}", text(&elsewhere));
}
