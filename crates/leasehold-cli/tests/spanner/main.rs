//! The built command on real emulators of Cloud Spanner, in both formats.
//!
//! Without an emulator each test is ignored.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking, in their helpers too")]

#[path = "../cli/support.rs"]
mod support;

use std::process::{Command, ExitCode, Output, Stdio};

use leasehold_testkit::spanner::{Emulator, Runtime};
use leasehold_testkit::spanner_tests;
use serde_json::Value;

use support::{Running, Store, code, text};

fn main() -> ExitCode {
    spanner_tests!(
        async [],
        [
            a_database_serves_every_command,
            a_table_of_spindle_serves_every_command,
            the_emulator_of_the_environment_is_used,
            a_table_of_spindle_names_its_longest_ttl,
            a_database_that_is_not_prepared_is_refused_with_the_way_to_prepare_it,
            a_command_is_killed_before_the_term_ends_if_the_emulator_is_gone,
        ]
    )
}

/// The command on a database, with its own directory.
struct Spanner {
    store: Store,
    url: String,
}

impl Spanner {
    fn new(url: String) -> Self {
        Self { store: Store::new(), url }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = self.store.command(line);
        command.env("LEASEHOLD_STORE", &self.url).stdin(Stdio::null());
        command
    }

    fn output(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    fn code(&self, line: &str) -> i32 {
        code(&self.output(line))
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
        let init = self.output("init");
        assert_eq!(code(&init), 0, "{}", text(&init.stderr));
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
        let one = self.start("elect --json -v --candidate-name node-3 e", leads);
        let early: u64 = one.line().parse().unwrap();
        let two = self.start("elect --json -v e", leads);
        two.event("waiting");
        let leader = self.json("leader e --json");
        assert_eq!(leader["leader"]["token"], early);
        assert_eq!(leader["leader"]["group"], "node-3");
        assert_eq!(one.code(), 0);
        let late: u64 = two.line().parse().unwrap();
        assert!(late > early);
        assert_eq!(two.code(), 0);
    }
}

fn emulator() -> Emulator {
    Runtime::new().unwrap().block_on(Emulator::start()).unwrap()
}

fn a_database_serves_every_command() {
    let emulator = emulator();
    Spanner::new(emulator.url()).holds_lists_and_elects();
}

fn a_table_of_spindle_serves_every_command() {
    let emulator = emulator();
    Spanner::new(emulator.spindle_url()).holds_lists_and_elects();
}

fn the_emulator_of_the_environment_is_used() {
    let emulator = emulator();
    let url = emulator.url().replace(&format!("emulator={}&", emulator.grpc()), "");
    let spanner = Spanner::new(url);
    let command = |line: &str| {
        let mut command = spanner.command(line);
        command.env("SPANNER_EMULATOR_HOST", emulator.grpc());
        code(&command.output().unwrap())
    };
    assert_eq!(command("init"), 0);
    assert_eq!(command("run -n k -- true"), 0);
}

fn a_table_of_spindle_names_its_longest_ttl() {
    let emulator = emulator();
    let spanner = Spanner::new(emulator.spindle_url());
    let refused = spanner.output("run --ttl 2s k -- true");
    assert_ne!(code(&refused), 0);
    assert!(text(&refused.stderr).contains("duration"), "{}", text(&refused.stderr));
    let refused = spanner.output("run --kill-after 4s k -- true");
    assert_ne!(code(&refused), 0);
    assert!(text(&refused.stderr).contains("--kill-after is 4s"), "{}", text(&refused.stderr));
}

fn a_database_that_is_not_prepared_is_refused_with_the_way_to_prepare_it() {
    let emulator = emulator();
    let spanner = Spanner::new(emulator.url());
    let refused = spanner.output("run -n k -- true");
    assert_ne!(code(&refused), 0);
    assert!(text(&refused.stderr).contains("leasehold init"), "{}", text(&refused.stderr));
    let sql = spanner.output("init --print");
    assert!(text(&sql.stdout).contains("CREATE TABLE IF NOT EXISTS `leasehold`"), "{sql:?}");
    let spindle = Spanner::new(emulator.spindle_url());
    let sql = spindle.output("init --print");
    assert!(text(&sql.stdout).contains("allow_commit_timestamp = true"), "{sql:?}");
}

fn a_command_is_killed_before_the_term_ends_if_the_emulator_is_gone() {
    let emulator = emulator();
    let spanner = Spanner::new(format!("{}&timeout=500ms", emulator.url()));
    assert_eq!(spanner.code("init"), 0);
    let running = spanner.start("run --ttl 6s --json -v k", "echo held; cat");
    assert_eq!(running.line(), "held");
    emulator.kill();
    running.event("ending");
    assert_eq!(running.code(), 123);
}
