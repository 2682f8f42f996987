//! Redis servers, through the built command.

use std::process::{Command, Output, Stdio};

use crate::lease_commands::a_lease_goes_from_process_to_process;
use crate::sql::kill_frees;
use crate::supersede::the_next_run_starts_when_the_old_one_has_ended;
use crate::support::{Running, Store, code, text, until};
use leasehold_testkit::redis::{DURABLE, Server};
use tokio::runtime::Runtime;

/// The command on `url`, with its own directory.
struct Redis {
    store: Store,
    runtime: Runtime,
    servers: Vec<Server>,
    url: String,
}

impl Redis {
    fn one() -> Self {
        let mut this = Self::servers(1, &[]);
        this.url = this.servers[0].url();
        this
    }

    fn quorum(options: &str) -> Self {
        let mut this = Self::servers(3, DURABLE);
        let nodes: Vec<_> =
            this.servers.iter().map(|server| format!("node={}", server.store_url())).collect();
        this.url = format!("quorum:?{}{options}", nodes.join("&"));
        this
    }

    fn servers(count: usize, settings: &[&str]) -> Self {
        let runtime = Runtime::new().unwrap();
        let start = || runtime.block_on(Server::start(settings)).unwrap();
        let servers = (0..count).map(|_| start()).collect();
        Self { store: Store::new(), runtime, servers, url: String::new() }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = self.store.command(line);
        command.env("LEASEHOLD_STORE", &self.url);
        command
    }

    fn output(&self, line: &str) -> Output {
        self.command(line).stdin(Stdio::null()).output().unwrap()
    }

    fn code(&self, line: &str) -> i32 {
        code(&self.output(line))
    }

    /// A command that holds `k` until its stdin is closed.
    fn hold(&self, options: &str) -> Running {
        let mut command = self.command(&format!("run k --json -v {options} --"));
        command.args(["sh", "-c", "echo held; cat"]);
        let running = Running::start(command);
        assert_eq!(running.line(), "held");
        running
    }

    fn ask(&self, node: usize, words: &[&str]) -> Option<String> {
        self.runtime.block_on(self.servers[node].text(words))
    }
}

#[test]
fn doctor_names_a_privilege_that_is_missing() {
    let redis = Redis::one();
    let examined = |rule: &str| {
        redis.ask(0, &["ACL", "SETUSER", "default", rule]);
        let output = redis.command("doctor").output().unwrap();
        (code(&output), text(&output.stdout) + &text(&output.stderr))
    };
    let (exit, printed) = examined("-set");
    // Of the keys once, and of the mark.
    assert!(exit == 2 && printed.contains("may not run SET, SET lh:token on "), "{printed}");
    examined("+set");
    let (exit, printed) = examined("-hset");
    assert!(exit == 2 && printed.contains("hazard:    the user may not run HSET on "), "{printed}");
    let (exit, printed) = examined("-evalsha");
    assert!(exit == 77 && printed.contains("to run the 'evalsha' command"), "{printed}");
}

#[test]
fn one_of_two_holds_and_the_other_waits_or_fails() {
    let redis = Redis::one();
    let first = redis.hold("");
    let refused = redis.output("run -n k -- true");
    assert_eq!(code(&refused), 1, "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("\"k\" is held by sh, pid "), "{refused:?}");
    let waits = Running::start(redis.command("run -w 60s k -- echo in"));
    drop(first);
    assert_eq!(waits.line(), "in");
    assert_eq!(waits.code(), 0);
    assert_eq!(redis.code("run -n k -- true"), 0);
    let init = redis.output("init");
    assert_eq!(code(&init), 0);
    assert!(text(&init.stdout).contains("appendfsync always"), "{}", text(&init.stdout));
}

#[test]
fn a_foreign_clients_lock_is_shown_waited_for_and_broken() {
    let redis = Redis::one();
    redis.ask(0, &["SET", "k", "theirs", "PX", "60000", "NX"]);
    assert_eq!(redis.code("run -n k -- true"), 1);
    let status = redis.output("status k");
    assert!(text(&status.stdout).contains("theirs"), "{}", text(&status.stdout));
    // Nobody knows how long a renewal of it lasts.
    for line in ["run --supersede k -- true", "break --wait k"] {
        let refused = redis.output(line);
        assert_eq!(code(&refused), 64, "{line}");
        assert!(text(&refused.stderr).contains("nobody knows when"), "{refused:?}");
        assert_eq!(redis.ask(0, &["GET", "k"]).as_deref(), Some("theirs"), "{line}");
    }
    assert_eq!(redis.code("break k"), 0);
    assert_eq!(redis.code("run -n k -- true"), 0);
}

#[test]
fn a_broken_lease_ends_the_command() {
    let redis = Redis::one();
    let mut first = redis.hold("--ttl 3s");
    redis.runtime.block_on(redis.servers[0].number(&["DEL", "k"]));
    first.event("killed");
    assert_eq!(first.exit_code(), 123);
}

#[test]
fn an_unreachable_server_ends_the_command_before_the_term_with_69() {
    let redis = Redis::one();
    let mut first = redis.hold("--ttl 3s");
    redis.servers[0].kill();
    first.event("ending");
    assert_eq!(first.exit_code(), 123);
    assert_eq!(redis.code("run -n k -- true"), 69);
}

#[test]
fn a_release_that_fails_is_one_line() {
    let redis = Redis::one();
    let mut first = redis.hold("--ttl 1h");
    redis.servers[0].kill();
    first.close_stdin();
    first.event("exited");
    assert_eq!(first.events(), ["release_failed"]);
    assert_eq!(first.code(), 0);
}

#[test]
fn a_server_that_is_down_at_the_start_is_awaited() {
    let redis = Redis::one();
    redis.servers[0].kill();
    assert_eq!(redis.code("run -n k -- true"), 69, "at once");
    assert_eq!(redis.code("run -w 500ms k -- true"), 69, "at the end of the wait");
    for options in ["", "-w 60s"] {
        let waits = Running::start(redis.command(&format!("run --json -v {options} k -- true")));
        let awaited = waits.event("store_awaited");
        assert_eq!(awaited["kind"], "unavailable");
        assert!(awaited["message"].as_str().unwrap().starts_with("waiting for the store: redis"));
        redis.runtime.block_on(redis.servers[0].restart()).unwrap();
        waits.event("acquired");
        assert_eq!(waits.code(), 0);
        redis.servers[0].kill();
    }
}

#[test]
fn wait_goes_on_while_the_server_is_down() {
    let redis = Redis::one();
    assert_eq!(redis.code("acquire --ttl 1h k"), 0);
    let waits = Running::start(redis.command("wait k --json -v"));
    waits.event("waiting");
    redis.servers[0].kill();
    waits.event("store_awaited");
    // It has forgotten the lease.
    redis.runtime.block_on(redis.servers[0].restart()).unwrap();
    assert_eq!(waits.code(), 0);
}

#[test]
fn a_killed_leasehold_frees_the_key_at_once() {
    for redis in [Redis::one(), Redis::quorum(""), Redis::quorum("&fenced=1")] {
        kill_frees(|line| redis.command(line));
        a_lease_goes_from_process_to_process(|line| redis.command(line));
        the_next_run_starts_when_the_old_one_has_ended(|line| redis.command(line));
    }
}

#[test]
fn a_crash_frees_the_key_after_the_term() {
    let redis = Redis::one();
    let first = redis.hold("--ttl 6s");
    first.crash();
    assert_eq!(redis.code("run -n k -- true"), 1);
    assert_eq!(redis.code("run -w 60s k -- true"), 0);
}

#[test]
fn a_quorum_works_without_one_node() {
    for options in ["", "&fenced=1"] {
        let redis = Redis::quorum(options);
        let first = redis.hold("--ttl 6s");
        // A majority grants; the third node may have it a moment later.
        until("on every node", || (0..3).all(|node| redis.ask(node, &["GET", "k"]).is_some()));
        redis.servers[0].kill();
        assert_eq!(redis.code("run -n k -- true"), 1);
        drop(first);
        assert_eq!(redis.code("run -w 60s --ttl 10s k -- true"), 0);
        redis.servers[1].kill();
        assert_eq!(redis.code("run -n k -- true"), 69);
    }
}

#[test]
fn a_node_that_forgets_is_in_quarantine() {
    let mut redis = Redis::servers(3, &[]);
    let nodes: Vec<_> =
        redis.servers.iter().map(|server| format!("node={}", server.url())).collect();
    redis.url = format!("quorum:?{}", nodes.join("&"));
    let refused = redis.output("run -n k -- true");
    assert_eq!(code(&refused), 69);
    assert!(text(&refused.stderr).contains("just started"), "{}", text(&refused.stderr));
}
