//! Signals: those that end a wait, those that are passed on, and those that are ignored.

use std::process::Command;
use std::time::Duration;

use crate::support::{Running, Store, group, hold, now, runs, shim_of};
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
    waiter.event("waiting");
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
    let running = Running::start(store.script("--json -v --ttl 2s -k 100ms k", TELLS));
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

#[test]
fn the_command_inherits_the_signal_mask_and_dispositions_of_leasehold() {
    let store = Store::new();
    // Those up to 28; the C library ignores some of its own at each start of a program. Not SIGPIPE: the runtime of
    // this program ignores it before it can be asked.
    let shown = r"s/^Sig\(Blk\|Ign\):.*\(.\{7\}\)$/\1 \2/p";
    for (option, expected) in [
        ("--default-signal", "Blk 0000000\nIgn 0000000\n"),
        ("--block-signal=USR1", "Blk 0000200\nIgn 0000000\n"),
        ("--ignore-signal=HUP,USR2,TSTP", "Blk 0000000\nIgn 0080801\n"),
    ] {
        let mut command = Command::new("env");
        command.args(["--default-signal", option, env!("CARGO_BIN_EXE_leasehold")]);
        // No shell: some unblock every signal.
        command.args(["run", "k", "--", "sed", "-n", shown, "/proc/self/status"]);
        command.env("LEASEHOLD_STORE", store.url());
        let output = command.output().unwrap();
        assert_eq!(crate::support::text(&output.stdout), expected, "{option}");
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
