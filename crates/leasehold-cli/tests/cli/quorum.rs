//! A quorum of three SQLite files, through the built command.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::doctor::a_store_is_examined;
use crate::support::{Running, Store, code, text, until};
use rusqlite::Connection;
use serde_json::Value;

/// Three files, each in its own directory.
struct Quorum {
    store: Store,
    options: &'static str,
}

impl Quorum {
    fn new(options: &'static str) -> Self {
        let store = Store::new();
        for node in 0..3 {
            std::fs::create_dir(store.file(&node.to_string())).unwrap();
        }
        Self { store, options }
    }

    fn file(&self, node: usize) -> PathBuf {
        self.store.file(&node.to_string()).join("locks.db")
    }

    fn name(&self, node: usize) -> String {
        format!("sqlite:{}", self.file(node).display())
    }

    fn url(&self) -> String {
        let nodes: Vec<_> = (0..3).map(|node| encoded(&self.name(node))).collect();
        format!("quorum:?node={}{}", nodes.join("&node="), self.options)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = self.store.command(line);
        command.env("LEASEHOLD_STORE", self.url());
        command
    }

    fn output(&self, line: &str) -> Output {
        self.command(line).stdin(Stdio::null()).output().unwrap()
    }

    fn json(&self, line: &str) -> Value {
        let output = self.output(line);
        // 3: nobody holds it.
        assert!([0, 3].contains(&code(&output)), "{line}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// A command that holds `k` until its stdin is closed.
    fn hold(&self, options: &str) -> Running {
        let mut command = self.command(&format!("run k --json -v {options} --"));
        command.args(["sh", "-c", "echo held; cat"]);
        let running = Running::start(command);
        assert_eq!(running.line(), "held");
        running
    }

    /// Puts a directory where the node's file was, or should be.
    fn spoil(&self, node: usize) {
        let directory = self.store.file(&node.to_string());
        std::fs::remove_dir_all(&directory).unwrap();
        std::fs::create_dir_all(self.file(node)).unwrap();
    }

    /// Keeps others from writing to the node until it is dropped.
    fn lock_out(&self, node: usize) -> Connection {
        let connection = Connection::open(self.file(node)).unwrap();
        connection.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        connection
    }
}

fn encoded(url: &str) -> String {
    url.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// The event's reports of the nodes.
fn nodes(event: &Value) -> &Vec<Value> {
    let nodes = event["nodes"].as_array().unwrap_or_else(|| panic!("no nodes in {event}"));
    assert_eq!(nodes.len(), 3, "{event}");
    nodes
}

fn with_outcome(event: &Value, outcome: &str) -> usize {
    nodes(event).iter().filter(|node| node["outcome"] == outcome).count()
}

#[test]
fn one_of_two_processes_holds_and_the_other_sees_each_nodes_answer() {
    let quorum = Quorum::new("");
    let mut holder = Running::start({
        let mut command = quorum.command("run k --json -v --");
        command.args(["sh", "-c", "echo held; cat"]);
        command
    });
    let acquired = holder.event("acquired");
    assert!(with_outcome(&acquired, "granted") >= 2, "{acquired}");
    assert_eq!(acquired["token"], Value::Null);
    assert_eq!(nodes(&acquired)[0]["node"], quorum.name(0));
    assert_eq!(holder.line(), "held");
    assert_eq!(code(&quorum.output("run -n k -- true")), 1);
    holder.close_stdin();
    let released = holder.event("released");
    assert!(with_outcome(&released, "released") >= 2, "{released}");
    assert_eq!(holder.code(), 0);
    let again = quorum.output("run -n -v k -- true");
    assert_eq!(code(&again), 0, "{}", text(&again.stderr));
    let told = text(&again.stderr);
    // A majority is reported; the third node may have answered a moment later.
    assert!(told.matches("locks.db: granted").count() >= 2, "{told}");
    assert!(told.matches("locks.db: released").count() >= 2, "{told}");
}

#[test]
fn a_fenced_quorums_tokens_grow_from_run_to_run() {
    let quorum = Quorum::new("&fenced=1");
    let token = || {
        let mut command = quorum.command("run k --");
        let output = command.args(["sh", "-c", "echo $LEASEHOLD_TOKEN"]).output().unwrap();
        text(&output.stdout).trim().parse::<u64>().unwrap()
    };
    let (first, second, third) = (token(), token(), token());
    assert!(first < second && second < third, "{first}, {second}, {third}");
}

#[test]
fn one_corrupt_node_changes_only_the_messages() {
    let quorum = Quorum::new("");
    quorum.spoil(1);
    let holder = quorum.hold("");
    let acquired = holder.event("acquired");
    assert_eq!(with_outcome(&acquired, "granted"), 2, "{acquired}");
    assert_eq!(nodes(&acquired)[1].get("outcome"), None);
    assert_eq!(code(&quorum.output("run -n k -- true")), 1);
    assert_eq!(quorum.json("status k --json")["held"], true);
    let listed = text(&quorum.output("list").stdout);
    assert!(listed.contains("NODE"), "{listed}");
    assert_eq!(
        [0, 1, 2].map(|node| listed.contains(&quorum.name(node))),
        [true, false, true],
        "{listed}"
    );
    assert_eq!(holder.code(), 0);
    assert_eq!(quorum.json("status k --json")["held"], false);
    // Every node must be prepared; an unprepared one would stay down.
    let init = quorum.output("init");
    assert_eq!(code(&init), 69);
    assert!(text(&init.stderr).contains("is a directory"), "{}", text(&init.stderr));
}

/// Another process keeps the file locked: the node neither answers nor fails.
#[test]
fn one_hung_node_delays_nobody() {
    let quorum = Quorum::new("");
    assert_eq!(code(&quorum.output("init")), 0);
    let locked = quorum.lock_out(2);
    let output = quorum.output("run k --json -v -w 3s -- true");
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    drop(locked);
}

#[test]
fn without_a_majority_the_failure_names_each_node() {
    let quorum = Quorum::new("");
    quorum.spoil(0);
    quorum.spoil(2);
    let output = quorum.output("run k --json -- true");
    // Two paths are directories, so there can never be a majority.
    assert_eq!(code(&output), 64);
    let error: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((&error["event"], &error["kind"]), (&"error".into(), &"invalid_input".into()));
    for node in [0, 2] {
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&quorum.name(node)), "{message}");
        let error_text = nodes(&error)[node]["error"].as_str().unwrap();
        assert!(error_text.contains("is a directory"), "{error_text}");
    }
}

#[test]
fn a_lost_majority_ends_the_command_and_reports_each_nodes_failure() {
    let quorum = Quorum::new("");
    let holder = quorum.hold("--ttl 6s");
    let locked = [quorum.lock_out(0), quorum.lock_out(1)];
    let failed = holder.event("renewal_failed");
    assert_eq!(nodes(&failed).iter().filter(|node| node.get("error").is_some()).count(), 2);
    holder.event("ending");
    drop(locked);
    assert_eq!(holder.code(), 123);
}

#[test]
fn a_broken_lease_is_gone_from_all_nodes_and_named_once() {
    for options in ["", "&fenced=1"] {
        let quorum = Quorum::new(options);
        let mut holder = quorum.hold("--ttl 6s");
        // The third node may have it a moment later than the majority.
        until("on every node", || text(&quorum.output("list --json").stdout).lines().count() == 3);
        let broken = quorum.json("break k --reason stuck --json");
        let removed = broken["removed"].as_array().unwrap();
        assert_eq!(removed.len(), 1, "{broken}");
        assert_eq!(removed[0]["node"], Value::Null);
        assert_eq!(quorum.output("list").stdout, b"");
        let lost = holder.event("lost");
        assert_eq!(lost["reason"], "evicted", "{options}");
        assert_eq!(holder.exit_code(), 123);
        assert_eq!(code(&quorum.output("run -n k -- true")), 0);
    }
}

#[test]
fn expired_records_are_purged_from_every_node() {
    let quorum = Quorum::new("");
    let holder = quorum.hold("--ttl 4s");
    holder.crash();
    until("free", || quorum.json("status k --json")["held"] == false);
    let purged = quorum.json("purge --json");
    assert_eq!(purged["removed"], 1, "{purged}");
    for node in 0..3 {
        let file = Connection::open(quorum.file(node)).unwrap();
        let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let left = file.query_row("SELECT count(*) FROM leasehold_holders", [], count).unwrap();
        assert_eq!(left, 0, "node {node}");
    }
    drop(holder);
}

#[test]
fn init_reports_the_level_of_the_quorum() {
    let quorum = Quorum::new("&fenced=1");
    let ready = quorum.json("init --json");
    assert_eq!((&ready["store"], &ready["hazards"]), (&"quorum".into(), &Value::Array(vec![])));
    assert!(ready["level"].as_str().unwrap().starts_with("L2"), "{ready}");
}

#[test]
fn mistakes_are_reported_before_any_file_is_created() {
    let quorum = Quorum::new("");
    let node = encoded(&quorum.name(0));
    for (url, fragment) in [
        ("quorum:".to_owned(), "has no node"),
        (format!("quorum:?node={node}&node={node}"), "twice"),
        (format!("quorum:?node={node}&node=redsi%3A"), "not known here"),
        (format!("quorum:?node={node}&quorums=2"), "quorums"),
    ] {
        let mut command = quorum.command("run k -- true");
        let output = command.env("LEASEHOLD_STORE", url).output().unwrap();
        assert_eq!(code(&output), 64, "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(fragment), "{}", text(&output.stderr));
    }
    assert!(!quorum.file(0).exists());
    for (line, fragment) in [
        ("run k --permits 2 -- true", "two of three nodes"),
        ("run k --ttl 61s -- true", "max_ttl"),
    ] {
        let output = quorum.output(line);
        assert_eq!(code(&output), 64, "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains(fragment), "{}", text(&output.stderr));
    }
}

#[test]
fn a_node_that_is_down_is_a_hazard_and_no_failure() {
    let quorum = Quorum::new("");
    assert_eq!(code(&quorum.output("init")), 0);
    let found = a_store_is_examined("quorum", |line| quorum.command(line));
    assert_eq!(found["nodes"].as_array().unwrap().len(), 3, "{found}");
    assert!(found["nodes"].as_array().unwrap().iter().all(|node| node["latency_us"].is_u64()));
    std::fs::write(quorum.file(1), "no database, and longer than the header of one".repeat(9))
        .unwrap();
    let found = a_store_is_examined("quorum", |line| quorum.command(line));
    assert!(found["nodes"][0]["server"].as_str().unwrap().starts_with("SQLite 3."), "{found}");
    assert!(found["nodes"][1]["error"].is_string(), "{found}");
    let told =
        |line: &str| text(&quorum.output(line).stderr).matches("nodes of the quorum fail").count();
    // The failure may come after the answers of the majority, to the release too.
    let mut counts = (0..50).map(|_| told("run k -- true"));
    assert_eq!(counts.find(|count| *count > 0), Some(1));
    assert_eq!(told("run -q k -- true"), 0);
    assert!(!found["hazards"].as_array().unwrap().is_empty(), "{found}");
}
