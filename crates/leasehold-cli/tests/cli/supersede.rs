//! `run --supersede`.

use std::process::Command;
use std::time::Duration;

use crate::support::{Running, Store, code, group, hold, now, runs, text, until};

/// A holder that ignores the request to end runs for as long as it may; nobody runs beside it.
pub(crate) fn the_next_run_starts_when_the_old_one_has_ended(command: impl Fn(&str) -> Command) {
    let script = |line: &str, script: &str| {
        let mut command = command(&format!("run {line} --json -v k --"));
        command.args(["sh", "-c", script]);
        Running::start(command)
    };
    let old = script("--ttl 6s", "trap '' TERM; echo old; while :; do sleep 0.05; done");
    let command_of_old = group(&old.event("started"));
    assert_eq!(old.line(), "old");
    let begun = now();
    let new = script("--supersede", "echo new; cat");
    let ended = new.event("superseded");
    assert_eq!(ended["holder"]["pid"], old.pid().as_raw());
    let between = command("run -n k -- true").output().unwrap();
    assert_eq!(code(&between), 1, "{}", text(&between.stderr));
    let why = text(&between.stderr);
    assert!(why.contains("kept after the lease of sh") && why.contains("--supersede"), "{why}");
    assert_eq!(new.line(), "new");
    let waited = now() - begun;
    // Its term, which a renewal may just have begun.
    assert!(waited >= Duration::from_secs(4), "{waited:?}");
    until("dead", || !runs(&command_of_old.to_string()));
    assert_eq!(old.code(), 123);
    assert_eq!(new.code(), 0);
}

#[test]
fn on_sqlite() {
    let store = Store::new();
    the_next_run_starts_when_the_old_one_has_ended(|line| store.command(line));
}

/// Each ends the lease that it saw, and none starts before that lease's term is over or beside another.
#[test]
fn two_at_once_run_one_after_the_other() {
    let store = Store::new();
    let log = store.file("log");
    let body = format!("echo begin >> {0}; sleep 0.2; echo end >> {0}", log.display());
    let old = Running::start(store.script("--json -v --ttl 6s k", "echo on; cat"));
    assert_eq!(old.line(), "on");
    let two =
        ["one", "two"].map(|_| Running::start(store.script("--json -v --supersede k", &body)));
    old.event("lost");
    assert_eq!(old.code(), 123);
    for new in two {
        assert_eq!(new.code(), 0);
    }
    assert_eq!(std::fs::read_to_string(log).unwrap(), "begin\nend\nbegin\nend\n");
}

#[test]
fn a_run_that_supersedes_now_does_not_wait() {
    let store = Store::new();
    let old = hold(&store, "--ttl 1h k");
    let begun = now();
    let new = Running::start(store.script("--json -v --supersede=now k", "echo new; cat"));
    assert_eq!(new.line(), "new");
    assert!(now() - begun < Duration::from_secs(30));
    assert_eq!(new.code(), 0);
    drop(old);
}

#[test]
fn a_free_key_is_taken_at_once() {
    let store = Store::new();
    assert_eq!(store.code("run --supersede k -- true"), 0);
    assert_eq!(store.code("run --min-hold 100ms k -- true"), 0);
    assert_eq!(store.code("run --supersede k -- true"), 0, "what is only kept is awaited");
}

#[test]
fn a_holder_that_cannot_be_awaited_goes_on() {
    let store = Store::new();
    for (ttl, option, fragment) in [
        ("60s", "-w 3s", "longer than the wait"),
        ("never", "", "nobody knows when its holder has ended"),
    ] {
        let old = hold(&store, &format!("--ttl {ttl} k"));
        let refused = store.output(&format!("run --supersede {option} k -- true"));
        assert_eq!(code(&refused), 64);
        assert!(text(&refused.stderr).contains(fragment), "{}", text(&refused.stderr));
        assert_eq!(old.code(), 0);
    }
}

/// It is ended once, when the store answers again.
#[test]
fn a_store_that_fails_for_a_moment_is_awaited() {
    let store = Store::prepared("?timeout=300ms");
    let old = hold(&store, "--ttl 60s k");
    let others = store.lock_out();
    let new = Running::start(store.script("--json -v --supersede k", "true"));
    new.event("store_awaited");
    drop(others);
    assert_eq!(new.event("superseded")["holder"]["pid"], old.pid().as_raw());
    let limited = store.output("run --supersede -w 10ms k -- true");
    assert_eq!(code(&limited), 124, "it is only awaited: {}", text(&limited.stderr));
}

/// The key stays taken although the run that wanted it has gone.
#[test]
fn an_interrupted_run_does_not_free_the_key_early() {
    let store = Store::new();
    let old = hold(&store, "--ttl 1h k");
    let new = Running::start(store.script("--json -v --supersede k", "true"));
    new.event("superseded");
    new.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(new.code(), 143);
    let record = store.records("k").remove(0);
    assert_eq!(record["kept"], true);
    assert!(record["remaining_us"].as_u64() > Some(3_500_000_000), "{record}");
    drop(old);
}
