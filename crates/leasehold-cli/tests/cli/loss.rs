//! The command does not outlive its lease.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Running, Store, group, now, release, runs, shim_of, until};
use nix::sys::signal::Signal;

/// Ignores TERM, and so do a child in its group, one that `timeout` put into its own group, and one in its own
/// session; prints their process ids.
const STUBBORN: &str = "\
trap '' TERM
sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.05; done' &
timeout 60 sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.05; done' &
setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.05; done' &
echo $$
while :; do sleep 0.05; done";

fn stubborn(running: &Running) -> Vec<String> {
    let pids: Vec<_> = (0..4).map(|_| running.line()).collect();
    assert!(pids.iter().all(|pid| runs(pid)), "{pids:?}");
    pids
}

#[test]
fn a_broken_lease_kills_the_command_and_all_its_descendants_at_once() {
    let store = Store::new();
    // Such a long grace that only "at once" ends in time.
    let running = Running::start(store.script("--json -v --ttl 18s -k 5900ms k", STUBBORN));
    let pids = stubborn(&running);
    let broken = store.json("break k --reason test --json");
    assert_eq!(broken["removed"].as_array().unwrap().len(), 1);
    running.event("lost");
    let lost = now();
    running.event("killed");
    assert_eq!(running.code(), 123);
    assert!(now() - lost < Duration::from_secs(5), "{:?}", now() - lost);
    assert!(!pids.iter().any(|pid| runs(pid)), "{pids:?}");
    assert!(!store.is_held("k"));
}

#[test]
fn an_unreachable_store_kills_the_command_before_the_term_ends() {
    let ttl = Duration::from_secs(9);
    let store = Store::prepared("?timeout=300ms");
    let running = Running::start(store.script("--json -vv --ttl 9s -k 2s k", STUBBORN));
    let pids = stubborn(&running);
    running.event("renewed");
    let others = store.lock_out();
    // The last renewal was sent before this.
    let renewed = now();
    running.event("renewal_failed");
    running.event("ending");
    let asked = now();
    assert!(pids.iter().all(|pid| runs(pid)), "asked, not killed");
    running.event("killed");
    let killed = now();
    assert!(killed - renewed < ttl, "{:?}", killed - renewed);
    assert!(killed - asked >= Duration::from_secs(1), "{:?}", killed - asked);
    drop(others);
    assert_eq!(running.code(), 123);
    assert!(!pids.iter().any(|pid| runs(pid)), "{pids:?}");
}

#[test]
fn a_command_that_ends_when_asked_is_not_killed() {
    let store = Store::prepared("?timeout=300ms");
    let script = "trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let running = Running::start(store.script("--json -vv --ttl 6s -k 1900ms k", script));
    assert_eq!(running.line(), "ready");
    running.event("renewed");
    let others = store.lock_out();
    assert_eq!(running.line(), "asked");
    drop(others);
    assert_eq!(running.event("lost")["reason"], "store_unreachable");
    let events = running.events();
    assert!(!events.contains(&"killed".to_owned()), "{events:?}");
    assert_eq!(running.code(), 123, "whatever it ended with");
}

#[test]
fn processes_that_left_the_group_are_killed_even_if_the_command_ends_when_asked() {
    let store = Store::new();
    let script = "setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.05; done' &
        trap 'exit 0' TERM; while :; do sleep 0.05; done";
    let running = Running::start(store.script("--json -v --ttl 30s --max-hold 5s k", script));
    let outside = running.line();
    running.event("ending");
    running.event("killed");
    running.event("exited");
    assert!(!runs(&outside));
    assert_eq!(running.code(), 123);
}

#[test]
fn max_hold_ends_the_command() {
    let store = Store::new();
    let from = now();
    let running = Running::start(store.script("--json -v --max-hold 4s k", "echo on; sleep 60"));
    assert_eq!(running.line(), "on");
    running.event("ending");
    assert_eq!(running.event("lost")["reason"], "max_hold");
    running.event("released");
    assert!(now() - from < Duration::from_secs(20));
    assert_eq!(running.code(), 123);
    assert!(!store.is_held("k"));
}

#[test]
fn on_lost_signal_asks_and_waits() {
    let store = Store::new();
    let go = store.fifo("go");
    let script = "trap 'echo asked; read line < go; echo done; exit 9' TERM
        echo ready; while :; do sleep 0.05; done";
    let running = Running::start(store.script("--json -v --ttl 1s --on-lost signal k", script));
    assert_eq!(running.line(), "ready");
    assert_eq!(store.code("break k"), 0);
    assert_eq!(running.line(), "asked");
    running.event("lost");
    // Another holds the lock for longer than any grace of the first.
    assert_eq!(store.code("run -n k -- sleep 1"), 0);
    release(&go);
    assert_eq!(running.line(), "done");
    assert_eq!(running.code(), 123);
}

#[test]
fn on_lost_ignore_only_reports() {
    let store = Store::new();
    let go = store.fifo("go");
    let script = "echo ready; read line < go; exit 9";
    let running = Running::start(store.script("--json -v --ttl 1s --on-lost ignore k", script));
    assert_eq!(running.line(), "ready");
    assert_eq!(store.code("break k --reason 'no'"), 0);
    running.event("lost");
    release(&go);
    assert_eq!(running.code(), 9);
}

#[test]
fn a_loss_that_only_the_release_shows() {
    let store = Store::new();
    let mut running = Running::start(store.script("--json -v k", "echo ready; cat"));
    assert_eq!(running.line(), "ready");
    assert_eq!(store.code("break k --reason maintenance"), 0);
    // Long before the next renewal.
    running.close_stdin();
    let overrun = running.event("overrun");
    assert_eq!(overrun["reason"], "evicted");
    assert!(overrun["message"].as_str().unwrap().ends_with(": maintenance"), "{overrun}");
    assert_eq!(running.code(), 123);
}

#[test]
fn a_stopped_command_is_killed_too() {
    let store = Store::new();
    let running = Running::start(store.script("--json -v --ttl 3s k", "echo ready; sleep 60"));
    let command = group(&running.event("started"));
    assert_eq!(running.line(), "ready");
    crate::support::signal_group(command, Signal::SIGSTOP);
    assert_eq!(store.code("run -n k -- true"), 1, "its lease is renewed meanwhile");
    assert_eq!(store.code("break k"), 0);
    assert_eq!(running.code(), 123);
    assert!(!runs(&command.to_string()));
}

#[test]
fn unread_messages_delay_nothing() {
    let store = Store::new();
    let (reader, writer) = nix::unistd::pipe().unwrap();
    let mut full = std::fs::File::from(writer);
    // As much as a pipe holds.
    full.write_all(&[b'.'; 65_536]).unwrap();
    let mut command = store.script("-vv --ttl 1s k", "echo $$; sleep 60");
    let mut child = command.stderr(full).stdout(Stdio::piped()).spawn().unwrap();
    drop(command);
    let mut pid = String::new();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut pid).unwrap();
    assert_eq!(store.code("break k"), 0);
    assert_eq!(child.wait().unwrap().code(), Some(123));
    assert!(!runs(&pid));
    drop(reader);
}

#[test]
fn orphans_are_reaped_while_the_command_lives() {
    let store = Store::new();
    // Each child of these ends as an orphan. One of them dies of a signal without a name.
    let script = "sh -c 'sh -c \"kill -40 \\$\\$\" & exec sleep 0.05' &
        for i in 1 2 3; do sh -c 'true & exec sleep 0.05' & done; wait
        echo over; cat";
    let running = Running::start(store.script("--json -v k", script));
    let shim = shim_of(group(&running.event("started")));
    assert_eq!(running.line(), "over");
    let zombies = || {
        let children =
            Command::new("ps").args(["-o", "stat=", "--ppid", &shim.to_string()]).output().unwrap();
        crate::support::text(&children.stdout).lines().filter(|line| line.starts_with('Z')).count()
    };
    until("reaped", || zombies() == 0);
    assert_eq!(running.code(), 0);
}

#[test]
fn on_lost_signal_spares_processes_that_left_the_group() {
    let store = Store::new();
    // The process left in the group ignores TERM, so it is killed.
    let script = "setsid sleep 60 & echo $!; sh -c 'trap \"\" TERM; echo $$; sleep 60; sleep 60' &
        trap exit TERM; while :; do sleep 0.05; done";
    let running =
        Running::start(store.script("--json -v --ttl 1s -k 100ms --on-lost signal k", script));
    let (daemon, left) = (running.line(), running.line());
    assert_eq!(store.code("break k"), 0);
    running.event("killed");
    assert_eq!(running.code(), 123);
    assert!(runs(&daemon) && !runs(&left));
    let daemon = nix::unistd::Pid::from_raw(daemon.parse().unwrap());
    nix::sys::signal::kill(daemon, Signal::SIGKILL).unwrap();
}
