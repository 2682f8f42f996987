//! Signals: those that end a wait, those that are passed on, and those that are ignored.

use std::process::Command;
use std::time::Duration;

use crate::support::{Running, Store, group, hold, now, runs, shim_of, text};
use nix::sys::signal::{Signal, kill};

/// Prints the signals that it gets, and continues.
const TELLS: &str = "\
for s in TERM INT HUP QUIT USR1 USR2 WINCH; do trap \"echo $s\" $s; done
echo ready
while :; do sleep 60 & wait $!; done";

#[test]
fn ending_signals_end_a_wait_and_nothing_stays_held() {
    let store = Store::new();
    let holder = hold(&store, "k");
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        let waiter = Running::start(store.script("--json -v --key other k", "echo never"));
        waiter.event("waiting");
        waiter.signal(signal);
        assert_eq!(waiter.event("interrupted")["signal"], signal.as_str());
        assert_eq!(waiter.code(), 128 + signal as i32);
        assert_eq!(store.records("k").len(), 1);
    }
    assert_eq!(holder.code(), 0);
    assert!(!store.is_held("k") && !store.is_held("other"));
}

#[test]
fn a_signal_ends_a_wait_for_a_busy_store_and_nothing_stays_held() {
    let store = Store::with_options("?timeout=30s");
    assert_eq!(store.code("init"), 0);
    let others = store.lock_out();
    let waiter = Running::start(store.script("--json -v k", "echo never"));
    waiter.event("asking");
    waiter.signal(Signal::SIGTERM);
    waiter.event("interrupted");
    // Its request is granted only now, and nobody wants it any more.
    drop(others);
    assert_eq!(waiter.code(), 143);
    assert!(!store.is_held("k"));
}

#[test]
fn signals_reach_the_command_and_are_not_escalated() {
    let store = Store::new();
    let running = Running::start(store.script("--json -v --ttl 6s -k 100ms k", TELLS));
    let command = group(&running.event("started"));
    assert_eq!(running.line(), "ready");
    // TERM first: all that follow show that it is still alive.
    for (signal, name) in [
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGINT, "INT"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
        (Signal::SIGWINCH, "WINCH"),
    ] {
        running.signal(signal);
        assert_eq!(running.event("forwarded")["signal"], signal.as_str());
        assert_eq!(running.line(), name);
    }
    assert!(store.is_held("k"));
    kill(command, Signal::SIGKILL).unwrap();
    assert_eq!(running.code(), 137);
}

#[test]
fn a_signal_reaches_the_whole_group() {
    let store = Store::new();
    let script = "trap 'wait; echo outer; exit 5' TERM
        sh -c 'trap \"echo inner; exit\" TERM; echo ready; while :; do sleep 0.05; done' &
        wait";
    let running = Running::start(store.script("--json -v k", script));
    assert_eq!(running.line(), "ready");
    running.signal(Signal::SIGTERM);
    assert_eq!((running.line().as_str(), running.line().as_str()), ("inner", "outer"));
    assert_eq!(running.code(), 5);
}

#[test]
fn a_command_without_handlers_dies_by_the_signal() {
    let store = Store::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1] {
        let running = Running::start(store.script("--json -v k", "echo ready; exec sleep 60"));
        assert_eq!(running.line(), "ready");
        running.signal(signal);
        assert_eq!(running.code(), 128 + signal as i32);
        assert!(!store.is_held("k"));
    }
}

#[test]
fn signals_that_nohup_ignores_stay_ignored() {
    let store = Store::new();
    let run = format!(
        "trap '' HUP; exec {} run --json -v k -- sh -c '{}'",
        env!("CARGO_BIN_EXE_leasehold"),
        "echo ready; read line; exit 5"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &run]).env("LEASEHOLD_STORE", store.url());
    let running = Running::start(command);
    let started = group(&running.event("started"));
    assert_eq!(running.line(), "ready");
    running.signal(Signal::SIGHUP);
    kill(started, Signal::SIGHUP).unwrap();
    // A relevant signal follows, so the first one has been handled by then.
    running.signal(Signal::SIGWINCH);
    assert_eq!(running.event("forwarded")["signal"], "SIGWINCH");
    assert!(runs(&started.to_string()));
    assert_eq!(running.code(), 5);
}

/// The signals that `program` blocks and ignores when `env` with this option starts it to show them; without those
/// that the C library keeps for itself, 32 and 33.
fn blocked_and_ignored(store: &Store, option: &str, program: &[&str]) -> [u64; 2] {
    let mut command = Command::new("env");
    command.args(["--default-signal", option]).args(program);
    // No shell: some unblock every signal.
    command.args(["sed", "-n", r"s/^Sig\(Blk\|Ign\):\t//p", "/proc/self/status"]);
    let output = command.env("LEASEHOLD_STORE", store.url()).output().unwrap();
    let masks = text(&output.stdout);
    let masks: Vec<_> =
        masks.lines().map(|mask| u64::from_str_radix(mask, 16).unwrap() & !(0b11 << 31)).collect();
    masks.try_into().unwrap()
}

#[test]
fn the_command_inherits_the_signal_mask_and_dispositions_of_leasehold() {
    let store = Store::new();
    let bit = |signal: Signal| 1_u64 << (signal as i32 - 1);
    let reset = bit(Signal::SIGCHLD) | bit(Signal::SIGCONT) | bit(Signal::SIGPIPE);
    for (option, count) in [
        ("--default-signal", 0),
        ("--block-signal=USR1,TERM,CHLD,CONT,TTOU,XFSZ", 6),
        ("--block-signal", 60),
        ("--ignore-signal=HUP,USR2,TSTP,XFSZ", 4),
        ("--ignore-signal", 58),
    ] {
        let [blocked, ignored] = blocked_and_ignored(&store, option, &[]);
        assert!((blocked | ignored).count_ones() >= count, "{option}: {blocked:x} {ignored:x}");
        let run = [env!("CARGO_BIN_EXE_leasehold"), "run", "k", "--"];
        let command = blocked_and_ignored(&store, option, &run);
        assert_eq!(command, [blocked, ignored & !reset], "{option}");
    }
}

#[test]
fn signals_to_the_shim_change_nothing() {
    let store = Store::new();
    let running = Running::start(store.script("--json -v k", "echo ready; read line; exit 5"));
    let shim = shim_of(group(&running.event("started")));
    assert_eq!(running.line(), "ready");
    for signal in Signal::iterator().filter(|s| !matches!(s, Signal::SIGKILL | Signal::SIGSTOP)) {
        kill(shim, signal).unwrap();
    }
    // A relevant signal is passed on.
    running.signal(Signal::SIGWINCH);
    assert_eq!(running.event("forwarded")["signal"], "SIGWINCH");
    assert_eq!(running.code(), 5);
}

#[test]
fn an_ending_signal_ends_the_wait_for_a_hung_release() {
    let store = Store::with_options("?timeout=60s");
    let mut running = hold(&store, "k");
    let others = store.lock_out();
    running.close_stdin();
    running.event("exited");
    let from = now();
    running.signal(Signal::SIGTERM);
    assert_eq!(running.event("interrupted")["signal"], "SIGTERM");
    assert_eq!(running.code(), 0, "the command's own");
    assert!(now() - from < Duration::from_secs(8));
    drop(others);
}
