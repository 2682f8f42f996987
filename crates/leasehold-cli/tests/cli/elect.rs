//! `leasehold elect` runs its command only while it leads; `leasehold leader` shows the leader.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

use crate::support::{Running, Store, code, group, pause, release, runs, text, until};
use nix::sys::signal::Signal;
use serde_json::Value;

/// Prints its token, and runs until its stdin is closed.
const LEADS: &str = "echo $LEASEHOLD_TOKEN; exec cat";

/// A candidate in the election `e`.
fn candidate(store: &Store, options: &str, script: &str) -> Running {
    let mut command = store.command(&format!("elect --json -v {options} e --"));
    command.args(["sh", "-c", script]);
    Running::start(command)
}

/// A candidate that is elected.
fn leader(store: &Store, options: &str) -> (Running, u64) {
    let running = candidate(store, options, LEADS);
    let token = running.line().parse().unwrap();
    (running, token)
}

/// The leader, as `leasehold leader` shows it.
fn led_by(store: &Store) -> Value {
    store.json("leader e --json")["leader"].clone()
}

#[test]
fn one_leads_and_the_other_follows_when_its_command_ends() {
    let store = Store::new();
    let (first, early) = leader(&store, "--candidate-name one");
    let second = candidate(&store, "--candidate-name two --comment spare", LEADS);
    second.event("waiting");
    assert_eq!(led_by(&store)["group"], "one");
    assert_eq!(first.code(), 0);
    let late: u64 = second.line().parse().unwrap();
    assert!(late > early);
    let led = led_by(&store);
    assert_eq!((&led["group"], &led["comment"]), (&"two".into(), &"spare".into()));
    assert_eq!(led["token"], late);
    assert_eq!(second.code(), 0);
    assert_eq!(led_by(&store), Value::Null);
}

#[test]
fn its_command_finds_the_election_in_its_environment() {
    let store = Store::new();
    let mut command = store.command("elect e --");
    let output =
        command.args(["sh", "-c", "echo $LEASEHOLD_KEY; cat $LEASEHOLD_LEASE_FILE; exit 7"]);
    let output = output.output().unwrap();
    assert_eq!(code(&output), 7, "the command's own");
    let stdout = text(&output.stdout);
    let (name, lease) = stdout.split_once('\n').unwrap();
    assert_eq!(name, "e");
    assert!(serde_json::from_str::<Value>(lease).unwrap()["token"].is_u64(), "{lease}");
    assert!(!store.is_held("e"));
}

#[test]
fn waiting_follows_the_options_of_run() {
    let store = Store::new();
    let (holder, _) = leader(&store, "");
    assert_eq!(store.code("elect -n e -- true"), 1);
    assert_eq!(store.code("elect -n -E 75 e -- true"), 75);
    assert_eq!(store.code("elect -w 100ms e -- true"), 124);
    let waiting = candidate(&store, "", LEADS);
    waiting.event("waiting");
    waiting.signal(Signal::SIGTERM);
    assert_eq!(waiting.events(), ["interrupted"]);
    assert_eq!(waiting.code(), 143);
    assert_eq!(holder.code(), 0);
    assert!(!store.is_held("e"));
}

#[test]
fn a_lost_leadership_ends_the_command_and_the_candidate() {
    let store = Store::new();
    let (running, _) = leader(&store, "--ttl 6s");
    assert_eq!(store.code("break e"), 0);
    running.event("lost");
    running.event("exited");
    assert_eq!(running.code(), 123);
}

#[test]
fn with_again_it_campaigns_after_a_loss_and_restarts_the_command() {
    let store = Store::new();
    let go = store.fifo("go");
    // It ends by itself only when it runs for the third time.
    let script = "echo $LEASEHOLD_TOKEN; echo >> runs; [ $(wc -l < runs) -lt 3 ] || { read line < go; exit 9; }
        sleep 60";
    let running = candidate(&store, "--ttl 9s --again", script);
    let mut tokens: Vec<u64> = Vec::new();
    for _ in 0..2 {
        let command = group(&running.event("started"));
        tokens.push(running.line().parse().unwrap());
        assert_eq!(store.code("break e"), 0);
        running.event("lost");
        running.event("exited");
        assert!(!runs(&command.to_string()));
    }
    running.event("started");
    tokens.push(running.line().parse().unwrap());
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    release(&go);
    assert_eq!(running.events(), ["exited", "released"]);
    assert_eq!(running.code(), 9, "a command that ends by itself is not started again");
}

#[test]
fn it_campaigns_again_when_the_store_is_back() {
    let store = Store::prepared("?timeout=300ms");
    let running = candidate(&store, "--ttl 2s --again", LEADS);
    let early: u64 = running.line().parse().unwrap();
    let others = store.lock_out();
    running.event("ending");
    running.event("exited");
    running.event("store_awaited");
    drop(others);
    let late: u64 = running.line().parse().unwrap();
    assert!(late > early);
    assert_eq!(running.code(), 0);
}

#[test]
fn while_it_campaigns_again_another_leads_and_a_signal_ends_it() {
    let store = Store::new();
    let running = candidate(&store, "--ttl 6s --again", LEADS);
    running.line();
    let other = candidate(&store, "--candidate-name other", LEADS);
    other.event("waiting");
    assert_eq!(store.code("break e"), 0);
    other.line();
    running.event("lost");
    running.event("waiting");
    // Signals that concern only a command, or nobody, end no wait.
    for signal in [Signal::SIGUSR1, Signal::SIGWINCH, Signal::SIGCONT] {
        running.signal(signal);
    }
    pause(Duration::from_millis(200));
    assert_eq!(led_by(&store)["group"], "other");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.events(), ["interrupted"]);
    assert_eq!(running.code(), 143);
    assert_eq!(other.code(), 0);
}

#[test]
fn a_candidate_that_was_asked_to_end_does_not_campaign_again() {
    let store = Store::new();
    let running = candidate(&store, "--ttl 6s --again", "trap '' TERM; echo ready; sleep 60");
    assert_eq!(running.line(), "ready");
    running.signal(Signal::SIGTERM);
    running.event("forwarded");
    assert_eq!(store.code("break e"), 0);
    assert_eq!(running.code(), 123);
    assert!(!store.is_held("e"));
}

#[test]
fn after_a_kill_its_command_ends_and_only_then_the_next_leads() {
    let store = Store::new();
    let running =
        candidate(&store, "--ttl 1h -k 100ms", "trap '' TERM; echo $$; sleep 60; sleep 60");
    let command = running.line();
    let second = candidate(&store, "", LEADS);
    second.event("waiting");
    running.signal(Signal::SIGKILL);
    second.line();
    assert!(!runs(&command));
    assert_eq!(second.code(), 0);
}

#[test]
fn after_a_stop_past_its_term_its_command_is_dead_before_the_next_leads() {
    let store = Store::new();
    let running = candidate(&store, "-v --ttl 3s --again", "echo $$; exec sleep 60");
    let command = running.line();
    let second = candidate(&store, "", LEADS);
    second.event("waiting");
    running.renewed_now();
    running.signal(Signal::SIGSTOP);
    second.event("acquired");
    assert!(!runs(&command), "the shim has ended it");
    running.signal(Signal::SIGCONT);
    running.event("lost");
    running.event("waiting");
    assert_eq!(second.code(), 0);
    running.line();
}

#[test]
fn mistakes_are_refused_and_nothing_is_held() {
    let store = Store::new();
    let id = "i".repeat(300);
    for (line, fragment) in [
        ("elect -- true", "<NAME>"),
        ("elect e", "COMMAND"),
        ("elect --kill-after 10s e -- true", "below a third of the TTL, which is 30s"),
        ("elect --permits 2 e -- true", "unexpected argument"),
        ("elect --min-hold 1s e -- true", "unexpected argument"),
        (&format!("elect --candidate-name {id} e -- true"), "at most"),
        ("elect --ttl 11years e -- true", "at most 10 years"),
    ] {
        let output = store.output(line);
        let stderr = text(&output.stderr);
        assert_eq!(code(&output), 64, "{line}: {stderr}");
        assert!(stderr.contains(fragment), "{line}: {stderr}");
    }
    assert!(!store.database().exists(), "the store was not even opened");
}

#[test]
fn leader_shows_the_leader() {
    let store = Store::new();
    assert_eq!(store.code("init"), 0);
    assert_eq!(text(&store.output("leader e").stdout), "nobody leads \"e\"\n");
    assert_eq!(store.json("leader e --json"), serde_json::json!({"name": "e", "leader": null}));
    let (running, token) = leader(&store, "--candidate-name node-3");
    let printed = text(&store.output("leader e").stdout);
    assert!(printed.starts_with("\"e\" is led by node-3"), "{printed}");
    assert!(printed.contains(&format!("pid {}", running.pid())), "{printed}");
    assert!(printed.contains(&format!(", token {token}, for ")), "{printed}");
    assert_eq!(led_by(&store)["token"], token);
    assert_eq!(store.code("leader"), 64);
    assert_eq!(running.code(), 0);
}

#[test]
fn leader_shows_each_change() {
    let store = Store::new();
    let watching = Running::start(store.command("leader e --watch --json"));
    let seen = || -> Value { serde_json::from_str(&watching.line()).unwrap() };
    assert_eq!(seen()["leader"], Value::Null);
    let (first, token) = leader(&store, "--candidate-name one");
    let change = seen();
    assert_eq!((&change["name"], &change["leader"]["group"]), (&"e".into(), &"one".into()));
    assert_eq!(change["leader"]["token"], token);
    assert_eq!(first.code(), 0);
    assert_eq!(seen()["leader"], Value::Null);
    let (second, _) = leader(&store, "--candidate-name two");
    assert_eq!(seen()["leader"]["group"], "two");
    assert_eq!(second.code(), 0);
}

#[test]
fn leader_ends_when_its_reader_has_gone() {
    let store = Store::new();
    let mut watch = store.command("leader e --watch");
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(watch.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    assert_eq!(first, "nobody leads \"e\"\n");
    drop(stdout);
    // It notices when it next writes.
    let (running, _) = leader(&store, "");
    let mut status = None;
    until("ended", || {
        status = watch.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success());
    assert_eq!(running.code(), 0);
}
