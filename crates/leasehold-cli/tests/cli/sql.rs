//! What the command does on every SQL server.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use leasehold_testkit::sql::SqlTestServer;
use tokio::runtime::Runtime;

use crate::doctor::a_store_is_examined;
use crate::lease_commands::a_lease_goes_from_process_to_process;
use crate::supersede::the_next_run_starts_when_the_old_one_has_ended;
use crate::support::{Running, Store, code, group, now, runs, text, until};
use nix::sys::signal::Signal;

/// The tests on this server, whose store reports this name.
macro_rules! sql_tests {
    ($server:ty, $store:literal) => {
        #[test]
        fn run_list_status_and_break_work_after_init() {
            crate::sql::run_list_status_and_break_work_after_init::<$server>($store);
        }

        #[test]
        fn a_killed_leasehold_frees_the_key_at_once() {
            crate::sql::a_killed_leasehold_frees_the_key_at_once::<$server>();
        }

        #[test]
        fn a_leader_is_elected_and_followed() {
            crate::sql::a_leader_is_elected_and_followed::<$server>();
        }

        #[test]
        fn a_server_that_is_gone_is_the_store_that_cannot_be_reached() {
            crate::sql::a_server_that_is_gone_is_the_store_that_cannot_be_reached::<$server>();
        }
    };
}

pub(crate) use sql_tests;

/// The command on a server, with its own directory.
pub(crate) struct Place<S> {
    store: Store,
    pub(crate) runtime: Runtime,
    pub(crate) server: S,
}

impl<S: SqlTestServer> Place<S> {
    pub(crate) fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let server = runtime.block_on(S::start(&[])).unwrap();
        Self { store: Store::new(), runtime, server }
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = self.store.command(line);
        command.env("LEASEHOLD_STORE", self.server.url(""));
        command
    }

    pub(crate) fn output(&self, line: &str) -> Output {
        self.command(line).stdin(Stdio::null()).output().unwrap()
    }

    pub(crate) fn code(&self, line: &str) -> i32 {
        code(&self.output(line))
    }

    /// A command that holds `k` until its stdin is closed.
    pub(crate) fn hold(&self) -> Running {
        let mut command = self.command("run k --ttl 3s --json -v --");
        command.args(["sh", "-c", "echo held; cat"]);
        let running = Running::start(command);
        assert_eq!(running.line(), "held");
        running
    }
}

pub(crate) fn run_list_status_and_break_work_after_init<S: SqlTestServer>(store: &str) {
    let place = Place::<S>::start();
    let early = place.output("run -n k -- true");
    assert_eq!(code(&early), 65);
    assert!(text(&early.stderr).contains("run `leasehold init`"), "{}", text(&early.stderr));
    let init = place.output("init");
    assert_eq!(code(&init), 0, "{}", text(&init.stderr));
    let prepared = text(&init.stdout);
    assert!(prepared.starts_with(&format!("the store {store} is ready: ")), "{prepared}");
    assert!(
        prepared.contains("\nlevel:     L2 fenced\n           at most one holder"),
        "{prepared}"
    );
    assert_eq!(place.code("init"), 0);
    let found = a_store_is_examined(store, |line| place.command(line));
    let server = found["server"].as_str().unwrap();
    let names = ["PostgreSQL ", "MariaDB ", "MySQL "];
    let number = names.iter().find_map(|name| server.strip_prefix(name)).unwrap();
    assert!(number.chars().all(|c| c == '.' || c.is_ascii_digit()), "{server}");

    let holder = place.hold();
    let refused = place.output("run -n k -- true");
    assert_eq!(code(&refused), 1);
    assert!(text(&refused.stderr).contains("\"k\" is held by sh, pid "), "{refused:?}");
    assert!(text(&place.output("status k").stdout).contains('k'));
    assert!(text(&place.output("list").stdout).contains('k'));
    let waits = Running::start(place.command("run -w 60s k -- echo in"));
    assert_eq!(holder.code(), 0);
    assert_eq!(waits.line(), "in");
    assert_eq!(waits.code(), 0);

    let mut holder = place.hold();
    assert_eq!(place.code("break k"), 0);
    holder.event("killed");
    assert_eq!(holder.exit_code(), 123);
    assert_eq!(place.code("run -n k -- true"), 0);
    assert_eq!(place.code("purge"), 0);
}

pub(crate) fn a_killed_leasehold_frees_the_key_at_once<S: SqlTestServer>() {
    let place = Place::<S>::start();
    assert_eq!(place.code("init"), 0);
    kill_frees(|line| place.command(line));
    a_lease_goes_from_process_to_process(|line| place.command(line));
    the_next_run_starts_when_the_old_one_has_ended(|line| place.command(line));
}

/// Kills a holder whose term is long; the next one starts, and prints how long that took.
pub(crate) fn kill_frees(command: impl Fn(&str) -> Command) {
    let mut script = command("run k --ttl 60s --json -v --");
    script.args(["sh", "-c", "echo held; cat"]);
    let holder = Running::start(script);
    assert_eq!(holder.line(), "held");
    let first = group(&holder.event("started")).to_string();
    let waits = Running::start(command("run k -w 60s --json -v -- echo in"));
    waits.event("waiting");
    holder.signal(Signal::SIGKILL);
    until("dead", || !runs(&first));
    let dead = now();
    assert_eq!(waits.line(), "in");
    let waited = now() - dead;
    println!("free after {waited:?}");
    assert!(waited < Duration::from_secs(10), "{waited:?}");
    assert_eq!(waits.code(), 0);
}

pub(crate) fn a_leader_is_elected_and_followed<S: SqlTestServer>() {
    let place = Place::<S>::start();
    assert_eq!(place.code("init"), 0);
    let mut command = place.command("elect job --");
    command.args(["sh", "-c", "echo leading; cat"]);
    let leader = Running::start(command);
    assert_eq!(leader.line(), "leading");
    assert_eq!(place.code("leader job"), 0);
    drop(leader);
}

pub(crate) fn a_server_that_is_gone_is_the_store_that_cannot_be_reached<S: SqlTestServer>() {
    let place = Place::<S>::start();
    assert_eq!(place.code("init"), 0);
    place.server.kill();
    assert_eq!(place.code("run -n k -- true"), 69);
    place.runtime.block_on(place.server.restart()).unwrap();
    assert_eq!(place.code("run -n k -- true"), 0);
}
