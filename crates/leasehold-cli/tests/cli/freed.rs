//! When `leasehold` is killed, its shim releases the lock as soon as nothing of the command is left.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid};

use crate::shim::{Writers, nothing_written_under, second};
use crate::support::{Running, Store, group, hold, is_stopped, now, pause, runs, shim_of, until};

/// Well below the terms: whoever waits longer has waited for the end of one.
const SOON: Duration = Duration::from_secs(10);

/// The default term is 30 s. With `LEASEHOLD_TEST_ALL=1` 200 rounds, otherwise 5; prints how long the next holder waited.
#[test]
fn the_next_holder_starts_when_nothing_of_the_command_is_left() {
    let store = Store::new();
    let rounds = if leasehold_testkit::all() { 200 } else { 5 };
    let mut waits = Vec::new();
    for round in 0..rounds {
        let ttl = ["30s", "never", "1h"][round % 3];
        let first = Writers::start(&store, &format!("--ttl {ttl} --kill-after 50ms"));
        let second = second(&store);
        first.running.signal(Signal::SIGKILL);
        until("dead", || first.all_dead());
        let dead = now();
        second.event("acquired");
        waits.push(now() - dead);
        nothing_written_under(&store, second);
        until("tidy", || !runs(&first.shim.to_string()));
        assert!(store.folders().is_empty());
        std::fs::remove_file(store.file("written")).unwrap();
    }
    waits.sort();
    println!("free after {:?}, at most {:?}", waits[waits.len() / 2], waits[waits.len() - 1]);
    // Few rounds, beside other tests, measure the machine.
    let most = if leasehold_testkit::all() { Duration::from_millis(500) } else { SOON };
    assert!(waits[waits.len() / 2] < most);
}

/// The record of `k` once its shim has ended.
fn left_by_a_kill(options: &str) -> Option<serde_json::Value> {
    let store = Store::new();
    let mut holder = hold(&store, &format!("--ttl 1h {options} k"));
    let shim = shim_of(group(&holder.event("started")));
    holder.signal(Signal::SIGKILL);
    if options.contains("--on-lost") {
        until("dead", || !runs(&holder.pid().to_string()));
        holder.close_stdin();
    }
    until("over", || !runs(&shim.to_string()));
    store.records("k").pop()
}

#[test]
fn its_keys_stay_taken_for_the_rest_of_min_hold_and_for_the_lock_delay() {
    assert_eq!(left_by_a_kill(""), None);
    for options in ["--min-hold 30m", "--lock-delay 30m", "--min-hold 20m --lock-delay 30m"] {
        let record = left_by_a_kill(options).expect("it is kept");
        assert_eq!(record["kept"], true, "{options}: {record}");
        let left = Duration::from_micros(record["remaining_us"].as_u64().unwrap());
        let most = Duration::from_secs(30 * 60);
        assert!(left <= most && left > most - Duration::from_secs(60), "{options}: {left:?}");
    }
}

/// Nobody knows whether such a command has ended for the loss.
#[test]
fn a_command_that_may_outlive_the_lease_keeps_it() {
    for on_lost in ["signal", "ignore"] {
        let record = left_by_a_kill(&format!("--on-lost {on_lost}")).expect("it is held");
        assert_eq!((&record["kept"], &record["live"]), (&false.into(), &true.into()));
    }
}

/// The command has ended by itself when `leasehold` is killed: a daemon that it has left may still use what the lock protects.
#[test]
fn a_daemon_keeps_the_lock() {
    for daemon in [false, true] {
        let store = Store::new();
        let script = if daemon { "setsid sleep 600 & echo $!; cat" } else { "echo 0; cat" };
        let mut holder = Running::start(store.script("--json -v --ttl 1h k", script));
        let left = holder.line();
        let command = group(&holder.event("started"));
        let shim = shim_of(command);
        let left = Pid::from_raw(left.parse().unwrap());
        // Until then it is a part of the command.
        until("a daemon", || !daemon || getpgid(Some(left)) == Ok(left));
        kill(shim, Signal::SIGSTOP).unwrap();
        until("stopped", || is_stopped(&shim.to_string()));
        holder.close_stdin();
        until("ended", || !runs(&command.to_string()));
        holder.signal(Signal::SIGKILL);
        drop(holder);
        let _ = kill(shim, Signal::SIGCONT);
        until("over", || !runs(&shim.to_string()));
        assert_eq!(store.is_held("k"), daemon);
        if daemon {
            kill(left, Signal::SIGKILL).unwrap();
        }
    }
}

#[test]
fn a_stop_before_the_kill_changes_nothing() {
    let store = Store::new();
    for who in ["leasehold", "shim"] {
        let holder = hold(&store, "--ttl 1h k");
        let command = group(&holder.event("started"));
        let shim = shim_of(command);
        let stopped = if who == "shim" { shim } else { holder.pid() };
        kill(stopped, Signal::SIGSTOP).unwrap();
        until("stopped", || is_stopped(&stopped.to_string()));
        holder.signal(Signal::SIGKILL);
        if who == "shim" {
            // The kernel may have continued it when its parent died.
            let _ = kill(shim, Signal::SIGCONT);
        }
        until("over", || !runs(&shim.to_string()));
        assert!(!store.is_held("k") && !runs(&command.to_string()), "{who}");
    }
}

#[test]
fn a_store_that_is_busy_then_is_asked_again() {
    let store = Store::prepared("?timeout=200ms");
    let holder = hold(&store, "--ttl 1h k");
    let command = group(&holder.event("started"));
    let others = store.lock_out();
    holder.signal(Signal::SIGKILL);
    until("dead", || !runs(&command.to_string()));
    // Longer than a try.
    pause(Duration::from_millis(500));
    drop(others);
    until("free", || !store.is_held("k"));
}

/// Whoever reads what the command has written does not wait for the store.
#[test]
fn its_streams_are_closed_before_it_asks_the_store() {
    let store = Store::prepared("?timeout=200ms");
    let mut holder = hold(&store, "--ttl 1h k");
    let others = store.lock_out();
    holder.signal(Signal::SIGKILL);
    assert_eq!(holder.next_line(), None);
    assert_eq!(holder.exit_code(), 128 + 9);
    drop(others);
    until("free", || !store.is_held("k"));
}

fn has_children(process: Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let children = |thread: std::fs::DirEntry| std::fs::read(thread.path().join("children"));
    threads.flatten().any(|thread| children(thread).is_ok_and(|list| !list.is_empty()))
}

#[test]
fn a_kill_before_the_command_starts_frees_the_key_too() {
    let store = Store::new();
    for _ in 0..10 {
        let running = Running::start(store.script("--json -v --ttl 1h k", "sleep 60"));
        until("started a shim", || has_children(running.pid()));
        running.signal(Signal::SIGKILL);
        drop(running);
        until("free", || !store.is_held("k"));
    }
}

#[test]
fn the_shim_has_the_url_of_the_store_neither_in_its_arguments_nor_in_its_environment() {
    let store = Store::new();
    let holder = hold(&store, "--ttl 1h k");
    let shim = shim_of(group(&holder.event("started")));
    for file in ["cmdline", "environ"] {
        let bytes = std::fs::read(format!("/proc/{shim}/{file}")).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("sqlite:") && !text.contains("locks.db"), "{file}: {text}");
    }
    assert_eq!(holder.code(), 0);
}
