//! A PostgreSQL server, through the built command.

use std::process::{Command, Output, Stdio};

use crate::support::{Running, Store, code, text};
use leasehold_conformance::Proxy;
use leasehold_testkit::postgres::{Server, url};
use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::runtime::Runtime;

/// The command on a server, with its own directory.
struct Postgres {
    store: Store,
    runtime: Runtime,
    server: Server,
}

impl Postgres {
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
    let postgres = Postgres::start();
    let early = postgres.output("run -n k -- true");
    assert_eq!(code(&early), 65);
    assert!(text(&early.stderr).contains("run `leasehold init`"), "{}", text(&early.stderr));
    let init = postgres.output("init");
    assert_eq!(code(&init), 0, "{}", text(&init.stderr));
    assert!(text(&init.stdout).contains("the store postgres is ready: L2 fenced"));
    assert_eq!(postgres.code("init"), 0);

    let holder = postgres.hold();
    assert_eq!(postgres.code("run -n k -- true"), 1);
    assert!(text(&postgres.output("status k").stdout).contains('k'));
    assert!(text(&postgres.output("list").stdout).contains('k'));
    let waits = Running::start(postgres.command("run -w 60s k -- echo in"));
    assert_eq!(holder.code(), 0);
    assert_eq!(waits.line(), "in");
    assert_eq!(waits.code(), 0);

    let mut holder = postgres.hold();
    assert_eq!(postgres.code("break k"), 0);
    holder.event("killed");
    assert_eq!(holder.exit_code(), 123);
    assert_eq!(postgres.code("run -n k -- true"), 0);
    assert_eq!(postgres.code("purge"), 0);
}

#[test]
fn a_leader_is_elected_and_followed() {
    let postgres = Postgres::start();
    assert_eq!(postgres.code("init"), 0);
    let mut command = postgres.command("elect job --");
    command.args(["sh", "-c", "echo leading; cat"]);
    let leader = Running::start(command);
    assert_eq!(leader.line(), "leading");
    assert_eq!(postgres.code("leader job"), 0);
    drop(leader);
}

#[test]
fn elect_again_and_leader_watch_follow_a_switch_over() {
    let old = Postgres::start();
    assert_eq!(old.code("init"), 0);
    let new = old.runtime.block_on(old.server.standby()).unwrap();
    let at = |server: &Server| ([127, 0, 0, 1], server.port()).into();
    let address = old.runtime.block_on(Proxy::before(at(&old.server))).unwrap();
    let through = |line: &str| {
        let mut command = old.command(line);
        command.env("LEASEHOLD_STORE", url(address.address().port()));
        command
    };
    let mut command = through("elect job --again --ttl 2s --json -v --");
    command.args(["sh", "-c", "echo $LEASEHOLD_TOKEN; exec cat"]);
    let candidate = Running::start(command);
    let early = candidate.line();
    let mut watching = Running::start(through("leader job --watch --json"));
    let token = |change: &str| {
        let change: Value = serde_json::from_str(change).unwrap();
        change["leader"]["token"].to_string()
    };
    assert_eq!(token(&watching.line()), early);
    old.runtime.block_on(async {
        new.has_all_of(&old.server).await;
        old.server.demote().await;
    });
    let unknown = watching.event("leader_unknown");
    assert_eq!((&unknown["name"], &unknown["kind"]), (&"job".into(), &"unavailable".into()));
    candidate.event("exited");
    candidate.event("store_awaited");
    old.runtime.block_on(new.promote());
    address.lead_to(at(&new));
    let late = candidate.line();
    assert!(late > early, "{late} after {early}");
    while token(&watching.line()) != late {}
    watching.signal(Signal::SIGTERM);
    watching.exit_code();
    assert_eq!(watching.events(), [""; 0], "told once");
    assert_eq!(candidate.code(), 0);
}

#[test]
fn a_server_that_is_gone_is_the_store_that_cannot_be_reached() {
    let postgres = Postgres::start();
    assert_eq!(postgres.code("init"), 0);
    postgres.server.kill();
    assert_eq!(postgres.code("run -n k -- true"), 69);
    postgres.runtime.block_on(postgres.server.restart()).unwrap();
    assert_eq!(postgres.code("run -n k -- true"), 0);
}

#[test]
fn contention_time_outs_and_signals_leave_no_line_in_the_servers_log() {
    let postgres = Postgres::start();
    assert_eq!(postgres.code("init"), 0);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..8 {
                    assert_eq!(postgres.code("run k -- true"), 0);
                }
            });
        }
    });
    let holder = postgres.hold();
    let late: Vec<_> =
        (0..6).map(|_| Running::start(postgres.command("run -w 2s k -- true"))).collect();
    let mut waiter = Running::start(postgres.command("run k --json -v -- true"));
    waiter.event("waiting");
    waiter.signal(Signal::SIGTERM);
    assert_eq!(waiter.exit_code(), 143);
    for waiter in late {
        assert_eq!(waiter.code(), 124);
    }
    assert_eq!(holder.code(), 0);
    let log = postgres.server.log();
    for unwanted in ["ERROR:", "unexpected EOF", "reset by peer"] {
        assert!(!log.contains(unwanted), "{log}");
    }
}
