//! One holder at a time.

use std::thread;
use std::time::Duration;

use crate::support::{
    Running, Store, code, group, hold, now, pause, runs, shim_of, signal_group, text,
};
use nix::sys::signal::{Signal, kill};

#[test]
fn a_waiter_starts_when_the_holder_releases() {
    let store = Store::new();
    let mut first = hold(&store, "k");
    let second = Running::start(store.script("--json -v k", "echo mine"));
    assert_eq!(second.event("waiting")["keys"], serde_json::json!(["k"]));
    assert_eq!(store.records("k").len(), 1);
    assert_eq!(store.code("run -n k -- true"), 1);
    assert_eq!(store.code("run -n other -- true"), 0, "another key is another lock");
    first.close_stdin();
    first.event("released");
    assert_eq!(second.line(), "mine");
    assert_eq!((first.code(), second.code()), (0, 0));
    assert!(!store.is_held("k"));
}

/// The loops compete for the key all the time, each with its next job right after the last one.
#[test]
fn a_waiter_is_served_beside_loops_of_short_jobs() {
    let store = Store::new();
    let jobs = format!(
        "while {} run k -- sh -c 'echo job; sleep 0.05'; do :; done",
        env!("CARGO_BIN_EXE_leasehold")
    );
    let loops = ["one", "two"].map(|key| Running::start(store.script(key, &jobs)));
    for one in &loops {
        assert_eq!(one.line(), "job");
    }
    for _ in 0..10 {
        let start = now();
        assert_eq!(store.code("run -w 20s k -- true"), 0);
        assert!(now() - start < Duration::from_secs(5), "{:?}", now() - start);
    }
}

#[test]
fn several_keys_are_one_lease() {
    let store = Store::new();
    let holder = hold(&store, "--key b a --key c");
    let records = ["a", "b", "c"].map(|key| store.records(key).remove(0));
    for record in &records {
        assert_eq!(record["lease"], records[0]["lease"]);
        assert_eq!(record["token"], records[0]["token"]);
    }
    assert_eq!(store.code("run -n --key x c -- true"), 1);
    assert!(!store.is_held("x"), "all or none");
    assert_eq!(holder.code(), 0);
    assert!(["a", "b", "c"].iter().all(|key| !store.is_held(key)));
}

#[test]
fn shared_holders_and_limits() {
    let store = Store::new();
    let one = hold(&store, "--permits 2 k");
    let two = hold(&store, "--permits 2 k");
    assert_eq!(store.code("run -n --permits 2 k -- true"), 1);
    assert_eq!(store.code("run -n --permits 3 k -- true"), 0);
    assert_eq!(store.code("run -n -s k -- true"), 0);
    assert_eq!(store.code("run -n k -- true"), 1, "not exclusively");
    assert_eq!((one.code(), two.code()), (0, 0));
    assert_eq!(store.code("run -n k -- true"), 0);
}

#[test]
fn min_hold_keeps_the_key_taken() {
    let store = Store::new();
    let output = store.output("run --json -v --min-hold 30s k -- true");
    assert_eq!(code(&output), 0);
    let printed = text(&output.stderr);
    assert!(printed.contains(r#""event":"released","kept_us":2"#), "{printed}");
    let records = store.records("k");
    assert_eq!(records[0]["kept"], true);
    assert_eq!(store.code("run -n k -- true"), 1);
}

#[test]
fn a_crash_frees_the_key_after_its_ttl_and_not_before() {
    let store = Store::new();
    let first = Running::start(store.script("--json -v --ttl 6s k", "echo $$; exec sleep 60"));
    let command = group(&first.event("started"));
    assert_eq!(first.line(), command.to_string());
    first.crash_with(shim_of(command));
    let asked = now();
    let left = store.records("k")[0]["remaining_us"].as_u64().unwrap();
    let second = Running::start(store.script("--json -v k", "true"));
    second.event("acquired");
    let waited = now() - asked;
    let left = Duration::from_micros(left);
    assert!(left > Duration::from_secs(2), "renewed until the crash: {left:?}");
    assert!(waited >= left, "free after {waited:?}, not before {left:?}");
    assert!(waited < left + Duration::from_secs(15), "free after {waited:?}, soon after {left:?}");
    assert_eq!(second.code(), 0);
    assert!(!runs(&command.to_string()));
}

/// Stops `leasehold`, its shim and its command for longer than the term, lets another process hold the lock, and
/// continues them.
fn paused_beyond_the_term(continue_command_first: bool) {
    let store = Store::new();
    let file = store.file("written");
    std::fs::write(&file, "").unwrap();
    let script = "echo $LEASEHOLD_TOKEN; while :; do echo >> written; sleep 0.01; done";
    let first = Running::start(store.script("--json -vv --ttl 3s k", script));
    let command = group(&first.event("started"));
    let shim = shim_of(command);
    let early: u64 = first.line().parse().unwrap();
    first.renewed_now();
    first.signal(Signal::SIGSTOP);
    kill(shim, Signal::SIGSTOP).unwrap();
    signal_group(command, Signal::SIGSTOP);

    let second = Running::start(store.script("--json -v k", "echo $LEASEHOLD_TOKEN; cat"));
    let late: u64 = second.line().parse().unwrap();
    assert!(late > early, "{late} {early}");
    let written = || std::fs::metadata(&file).unwrap().len();
    let before = written();

    if continue_command_first {
        signal_group(command, Signal::SIGCONT);
    }
    first.signal(Signal::SIGCONT);
    kill(shim, Signal::SIGCONT).unwrap();
    let events = first.events();
    assert_eq!(events[0], "lost", "not continued before");
    // Either may be the first to kill the command.
    assert!(["killed", "shim_failed"].contains(&events[1].as_str()), "{events:?}");
    assert!(!events.contains(&"continued".to_owned()), "{events:?}");
    assert_eq!(first.code(), 123);
    assert!(!runs(&command.to_string()));
    if !continue_command_first {
        assert_eq!(written(), before, "it never ran again");
    }
    let records = store.records("k");
    assert_eq!(records[0]["token"], late, "the other still holds it");
    assert_eq!(second.code(), 0);
}

#[test]
fn a_pause_beyond_the_term_ends_the_command_at_once() {
    paused_beyond_the_term(false);
}

#[test]
fn a_pause_beyond_the_term_ends_even_a_command_that_continues_first() {
    paused_beyond_the_term(true);
}

#[test]
fn a_pause_within_the_term_does_no_harm() {
    let store = Store::new();
    let first = Running::start(store.script("--json -v --ttl 5s k", "echo on; read line; exit 6"));
    let command = group(&first.event("started"));
    assert_eq!(first.line(), "on");
    first.signal(Signal::SIGSTOP);
    signal_group(command, Signal::SIGSTOP);
    pause(Duration::from_millis(500));
    // Continuing `leasehold` is enough: a shell does no more.
    first.signal(Signal::SIGCONT);
    first.event("continued");
    assert_eq!(first.code(), 6);
}

#[test]
fn reading_and_writing_under_the_lock_is_atomic() {
    const PROCESSES: u32 = 8;
    const ROUNDS: u32 = 50;
    let store = Store::with_options("?timeout=30s");
    std::fs::write(store.file("counter"), "0").unwrap();
    thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let script = "n=$(cat counter); echo $((n + 1)) > counter";
                    let output = store.script("counter", script).output().unwrap();
                    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
                }
            });
        }
    });
    let counter = std::fs::read_to_string(store.file("counter")).unwrap();
    assert_eq!(counter.trim(), (PROCESSES * ROUNDS).to_string());
}
