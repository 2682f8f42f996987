//! A MariaDB server, through the built command.

use std::process::{Command, Output, Stdio};

use crate::support::{Running, Store, code, text, until};
use leasehold_testkit::mysql::Server;
use nix::sys::signal::Signal;
use tokio::runtime::Runtime;

/// The command on a server, with its own directory.
struct MariaDb {
    store: Store,
    runtime: Runtime,
    server: Server,
}

impl MariaDb {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(Server::start(&[])).unwrap();
        Self { store: Store::new(), runtime, server }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = self.store.command(line);
        command.env("LEASEHOLD_STORE", self.server.url());
        command
    }

    fn output(&self, line: &str) -> Output {
        self.command(line).stdin(Stdio::null()).output().unwrap()
    }

    fn code(&self, line: &str) -> i32 {
        code(&self.output(line))
    }

    /// How many clients have ended without a farewell, once all have ended.
    fn aborted(&self) -> String {
        let status = |name: &str| {
            let text = format!("SHOW GLOBAL STATUS LIKE '{name}'");
            let rows = self.runtime.block_on(self.server.rows(&text));
            rows[0].get::<String, _>("Value").unwrap()
        };
        until("alone", || status("Threads_connected") == "1");
        status("Aborted_clients")
    }

    /// A command that holds `k` until its stdin is closed.
    fn hold(&self) -> Running {
        let mut command = self.command("run k --ttl 3s --json -v --");
        command.args(["sh", "-c", "echo held; cat"]);
        let running = Running::start(command);
        assert_eq!(running.line(), "held");
        running
    }
}

#[test]
fn run_list_status_and_break_work_after_init() {
    let mariadb = MariaDb::start();
    let early = mariadb.output("run -n k -- true");
    assert_eq!(code(&early), 65);
    assert!(text(&early.stderr).contains("run `leasehold init`"), "{}", text(&early.stderr));
    let init = mariadb.output("init");
    assert_eq!(code(&init), 0, "{}", text(&init.stderr));
    assert!(text(&init.stdout).contains("the store mysql is ready: L2 fenced"));
    assert_eq!(mariadb.code("init"), 0);

    let holder = mariadb.hold();
    assert_eq!(mariadb.code("run -n k -- true"), 1);
    assert!(text(&mariadb.output("status k").stdout).contains('k'));
    assert!(text(&mariadb.output("list").stdout).contains('k'));
    let waits = Running::start(mariadb.command("run -w 60s k -- echo in"));
    assert_eq!(holder.code(), 0);
    assert_eq!(waits.line(), "in");
    assert_eq!(waits.code(), 0);

    let mut holder = mariadb.hold();
    assert_eq!(mariadb.code("break k"), 0);
    holder.event("killed");
    assert_eq!(holder.exit_code(), 123);
    assert_eq!(mariadb.code("run -n k -- true"), 0);
    assert_eq!(mariadb.code("purge"), 0);
}

#[test]
fn a_leader_is_elected_and_followed() {
    let mariadb = MariaDb::start();
    assert_eq!(mariadb.code("init"), 0);
    let mut command = mariadb.command("elect job --");
    command.args(["sh", "-c", "echo leading; cat"]);
    let leader = Running::start(command);
    assert_eq!(leader.line(), "leading");
    assert_eq!(mariadb.code("leader job"), 0);
    drop(leader);
}

#[test]
fn a_server_that_is_gone_is_the_store_that_cannot_be_reached() {
    let mariadb = MariaDb::start();
    assert_eq!(mariadb.code("init"), 0);
    mariadb.server.kill();
    assert_eq!(mariadb.code("run -n k -- true"), 69);
    mariadb.runtime.block_on(mariadb.server.restart()).unwrap();
    assert_eq!(mariadb.code("run -n k -- true"), 0);
}

#[test]
fn every_process_ends_its_session_at_the_server() {
    let mariadb = MariaDb::start();
    let before = mariadb.aborted();
    // One that fails, because there is no schema yet.
    assert_eq!(mariadb.code("list"), 65);
    assert_eq!(mariadb.code("init"), 0);
    for (line, expected) in [("run k -- true", 0), ("run k -- false", 1), ("list", 0), ("purge", 0)]
    {
        assert_eq!(mariadb.code(line), expected, "{line}");
    }
    // One that ends after its time limit, one that ends for a signal, and the one whose lock is broken.
    let holder = mariadb.hold();
    assert_eq!(mariadb.code("run -w 2s k -- true"), 124);
    let mut waiter = Running::start(mariadb.command("run k --json -v -- true"));
    waiter.event("waiting");
    waiter.signal(Signal::SIGTERM);
    assert_eq!(waiter.exit_code(), 143);
    assert_eq!(mariadb.code("break k"), 0);
    assert_eq!(holder.code(), 123);
    let mut watcher = Running::start(mariadb.command("leader job --watch"));
    watcher.line();
    watcher.signal(Signal::SIGINT);
    assert_eq!(watcher.exit_code(), 130);
    assert_eq!(mariadb.aborted(), before);
}
