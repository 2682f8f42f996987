//! MongoDB servers, through the built command.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::support::{Running, Store, code, now, text};
use leasehold_testkit::mongodb::Server;
use leasehold_testkit::mongodb::replica_set::ReplicaSet;
use serde_json::Value;
use tokio::runtime::Runtime;

/// The command on `url`, with its own directory.
struct Mongodb {
    store: Store,
    url: String,
}

impl Mongodb {
    /// On a collection that the command has prepared.
    fn new(url: String) -> Self {
        let this = Self { store: Store::new(), url };
        this.output("init");
        this
    }

    fn command(&self, line: &str) -> Command {
        let mut command = self.store.command(line);
        command.env("LEASEHOLD_STORE", &self.url);
        command
    }

    fn code(&self, line: &str) -> i32 {
        code(&self.command(line).stdin(Stdio::null()).output().unwrap())
    }

    fn output(&self, line: &str) -> Output {
        let output = self.command(line).stdin(Stdio::null()).output().unwrap();
        assert_eq!(code(&output), 0, "{line}: {}", text(&output.stderr));
        output
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_slice(&self.output(line).stdout).unwrap()
    }

    fn start(&self, line: &str, script: &str) -> Running {
        let mut command = self.command(line);
        command.args(["--", "sh", "-c", script]);
        Running::start(command)
    }

    fn holds_lists_and_elects(&self) {
        let first = self.start("run k --json -v", "echo held; cat");
        assert_eq!(first.line(), "held");
        assert_eq!(self.code("run -n k -- true"), 1);
        assert_eq!(self.json("list --json")["key"], "k");
        let waits = self.start("run -w 60s k --json -v", "echo in");
        waits.event("waiting");
        assert_eq!(first.code(), 0);
        assert_eq!(waits.line(), "in");
        assert_eq!(waits.code(), 0);
        assert_eq!(text(&self.output("list --json").stdout), "");

        let leads = "echo $LEASEHOLD_TOKEN; exec cat";
        let one = self.start("elect --json -v e", leads);
        let early: u64 = one.line().parse().unwrap();
        let two = self.start("elect --json -v e", leads);
        two.event("waiting");
        assert_eq!(self.json("leader e --json")["leader"]["token"], early);
        assert_eq!(one.code(), 0);
        let late: u64 = two.line().parse().unwrap();
        assert!(late > early);
        assert_eq!(two.code(), 0);
    }
}

#[test]
fn a_server_alone_serves_every_command() {
    let server = Runtime::new().unwrap().block_on(Server::start(&[])).unwrap();
    Mongodb::new(server.url()).holds_lists_and_elects();
}

#[test]
fn a_replica_set_serves_every_command() {
    let set = Runtime::new().unwrap().block_on(ReplicaSet::start(1)).unwrap();
    Mongodb::new(set.url()).holds_lists_and_elects();
}

#[test]
fn a_command_and_a_leader_outlive_the_loss_of_the_primary() {
    let runtime = Runtime::new().unwrap();
    let set = runtime.block_on(ReplicaSet::start(3)).unwrap();
    let this = Mongodb::new(set.url());
    let runs = this.start("run --ttl 15s --json -vv k", "echo held; cat");
    assert_eq!(runs.line(), "held");
    let leads = this.start("elect --ttl 15s --json -vv e", "echo led; cat");
    assert_eq!(leads.line(), "led");
    runtime.block_on(async {
        set.primary().await.kill();
        set.primary().await;
    });
    assert_eq!(this.code("run -n k -- true"), 1);
    assert_eq!(this.code("elect -n e -- true"), 1);
    for running in [runs, leads] {
        running.renewed_now();
        assert_eq!(running.code(), 0);
    }
    assert_eq!(this.code("run -n k -- true"), 0);
    assert_eq!(this.code("elect -n e -- true"), 0);
}

#[test]
fn a_command_is_killed_before_the_term_ends_if_no_server_answers() {
    let server = Runtime::new().unwrap().block_on(Server::start(&[])).unwrap();
    let this = Mongodb::new(format!("{}?skew=0&timeout=500ms", server.url()));
    let running = this.start("run --ttl 6s --json -v k", "echo held; cat");
    assert_eq!(running.line(), "held");
    server.kill();
    let killed = now();
    running.event("ending");
    assert!(now() - killed < Duration::from_secs(6));
    assert_eq!(running.code(), 123);
}

#[test]
fn a_collection_that_is_not_prepared_is_refused_with_the_way_to_prepare_it() {
    let server = Runtime::new().unwrap().block_on(Server::start(&[])).unwrap();
    let this = Mongodb { store: Store::new(), url: server.url() };
    let refused = this.command("run -n k -- true").stdin(Stdio::null()).output().unwrap();
    assert_ne!(code(&refused), 0);
    assert!(text(&refused.stderr).contains("leasehold init"), "{}", text(&refused.stderr));
}
