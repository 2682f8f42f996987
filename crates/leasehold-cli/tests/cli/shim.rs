//! The command does not outlive the lock, whichever process of ours fails.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Running, Store, group, now, pause, runs, shim_of, signal_group, text, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe};

/// Five processes that ignore TERM and append to a file all the time: the command, a child, a grandchild, a child
/// under timeout(1) in its own group, and a grandchild in its own session. Prints their process ids.
const WRITERS: &str = r#"
export write='trap "" TERM; echo $$; while :; do echo "$EPOCHREALTIME" >> written; sleep 0.005; done'
trap "" TERM
bash -c "$write" &
bash -c 'bash -c "$write" & wait' &
timeout 60 bash -c "$write" &
setsid bash -c 'bash -c "$write" & wait' &
eval "$write""#;

/// `leasehold run` with the writers.
pub(crate) struct Writers {
    pub(crate) running: Running,
    command: Pid,
    pub(crate) shim: Pid,
    pids: Vec<String>,
}

impl Writers {
    pub(crate) fn start(store: &Store, options: &str) -> Self {
        let mut command = store.command(&format!("run --json -vv {options} k --"));
        command.args(["bash", "-c", WRITERS]);
        let running = Running::start(command);
        let command = group(&running.event("started"));
        let pids: Vec<_> = (0..5).map(|_| running.line()).collect();
        assert_eq!(pids.iter().collect::<HashSet<_>>().len(), 5);
        let writers = Self { running, command, shim: shim_of(command), pids };
        let before = written(store);
        until("written", || written(store) > before);
        writers
    }

    pub(crate) fn all_dead(&self) -> bool {
        !self.pids.iter().any(|pid| runs(pid))
    }

    /// Every descendant of the shim.
    fn tree(&self) -> Vec<Pid> {
        let output = Command::new("ps").args(["-eo", "pid=,ppid="]).output().unwrap();
        let output = text(&output.stdout);
        let rows: Vec<(i32, i32)> = output
            .lines()
            .map(|line| {
                let mut numbers = line.split_whitespace().map(|number| number.parse().unwrap());
                (numbers.next().unwrap(), numbers.next().unwrap())
            })
            .collect();
        let mut found = vec![self.shim.as_raw()];
        let mut at = 0;
        while let Some(parent) = found.get(at).copied() {
            found.extend(rows.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
            at += 1;
        }
        found.split_off(1).into_iter().map(Pid::from_raw).collect()
    }
}

impl Drop for Writers {
    /// A test that fails leaves none behind.
    fn drop(&mut self) {
        for pid in self.pids.iter().filter(|pid| runs(pid)) {
            let _ = kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL);
        }
    }
}

fn written(store: &Store) -> u64 {
    std::fs::metadata(store.file("written")).map_or(0, |file| file.len())
}

/// Waits for the lock, and a while longer; prints the length of the file at the start.
pub(crate) fn second(store: &Store) -> Running {
    let second =
        Running::start(store.script("--json -v --ttl 30s -w 60s k", "wc -c < written; sleep 0.3"));
    second.event("waiting");
    second
}

/// Nothing was written while the second process held the lock.
pub(crate) fn nothing_written_under(store: &Store, second: Running) {
    let at_start: u64 = second.line().trim().parse().unwrap();
    assert!(at_start > 0);
    assert_eq!(second.code(), 0);
    assert_eq!(written(store), at_start, "bytes were written after another held the lock");
}

fn leasehold_is_killed(options: &str) {
    let store = Store::new();
    let first = Writers::start(&store, options);
    let second = second(&store);
    first.running.signal(Signal::SIGKILL);
    nothing_written_under(&store, second);
    assert!(first.all_dead());
    until("tidy", || !runs(&first.shim.to_string()));
    assert!(store.folders().is_empty());
}

#[test]
fn leasehold_killed() {
    leasehold_is_killed("--ttl 3s");
}

#[test]
fn leasehold_killed_in_a_term_below_a_second() {
    leasehold_is_killed("--ttl 950ms");
}

#[test]
fn leasehold_killed_is_noticed_at_once() {
    let store = Store::new();
    for ttl in ["60s", "never"] {
        let first = Writers::start(&store, &format!("--ttl {ttl} --kill-after 500ms"));
        first.running.signal(Signal::SIGKILL);
        let from = now();
        until("dead", || first.all_dead());
        assert!(now() - from < Duration::from_secs(15));
        until("free", || !store.is_held("k"));
    }
}

#[test]
fn leasehold_killed_gives_the_command_time_to_end() {
    let store = Store::new();
    let script = "trap 'echo asked; exit' TERM; echo ready; while :; do sleep 0.05; done";
    for on_lost in ["kill", "signal"] {
        let first =
            Running::start(store.script(&format!("--json --on-lost {on_lost} {on_lost}"), script));
        assert_eq!(first.line(), "ready");
        first.signal(Signal::SIGKILL);
        assert_eq!(first.line(), "asked");
    }
}

#[test]
fn leasehold_killed_spares_a_command_that_ignores_a_loss() {
    let store = Store::new();
    let go = store.fifo("go");
    let script = "trap 'echo asked' TERM; echo ready; read line < go; echo done";
    let first = Running::start(store.script("--json -v --ttl 3s --on-lost ignore k", script));
    let command = group(&first.event("started"));
    let shim = shim_of(command);
    assert_eq!(first.line(), "ready");
    first.signal(Signal::SIGKILL);
    assert_eq!(store.code("run --ttl 30s -w 60s k -- true"), 0, "until the term is over");
    assert!(runs(&command.to_string()));
    crate::support::release(&go);
    assert_eq!(first.line(), "done");
    until("over", || !runs(&shim.to_string()));
}

fn leasehold_is_stopped(options: &str) {
    let store = Store::new();
    let first = Writers::start(&store, options);
    let second = second(&store);
    first.running.renewed_now();
    first.running.signal(Signal::SIGSTOP);
    nothing_written_under(&store, second);
    assert!(first.all_dead());
    first.running.signal(Signal::SIGCONT);
    first.running.event("lost");
    first.running.event("killed");
    let status = first.running.event("exited");
    assert_eq!(status["exit_code"], 137);
    assert_eq!(end(first), 123);
}

/// Waits for the end of `leasehold`, after which nothing of its command runs; returns its exit code.
fn end(mut writers: Writers) -> i32 {
    let code = writers.running.exit_code();
    assert!(writers.all_dead());
    code
}

#[test]
fn leasehold_stopped() {
    leasehold_is_stopped("--ttl 3s");
}

#[test]
fn leasehold_stopped_in_a_term_below_a_second() {
    leasehold_is_stopped("--ttl 950ms");
}

/// Others keep the store busy for longer than the term.
fn the_store_fails(first: Writers, store: &Store) {
    let second = second(store);
    let others = store.lock_out();
    first.running.event("renewal_failed");
    pause(Duration::from_secs(3));
    // The term has ended, so the second process may start at once.
    drop(others);
    nothing_written_under(store, second);
    assert_eq!(end(first), 123);
}

#[test]
fn the_store_unreachable() {
    let store = Store::prepared("?timeout=300ms");
    the_store_fails(Writers::start(&store, "--ttl 3s"), &store);
}

#[test]
fn the_store_hanging() {
    // No answer comes before the term is over.
    let store = Store::with_options("?timeout=60s");
    the_store_fails(Writers::start(&store, "--ttl 3s"), &store);
}

#[test]
fn the_commands_group_stopped() {
    let store = Store::prepared("?timeout=300ms");
    let first = Writers::start(&store, "--ttl 3s");
    signal_group(first.command, Signal::SIGSTOP);
    // Its lease is renewed meanwhile.
    first.running.event("renewed");
    first.running.event("renewed");
    the_store_fails(first, &store);
}

#[test]
fn the_shim_stopped() {
    let store = Store::prepared("?timeout=300ms");
    let first = Writers::start(&store, "--ttl 3s");
    kill(first.shim, Signal::SIGSTOP).unwrap();
    the_store_fails(first, &store);
}

#[test]
fn the_shim_killed() {
    let store = Store::new();
    for options in ["--ttl 30s", "--ttl never"] {
        let first = Writers::start(&store, options);
        let second = second(&store);
        kill(first.shim, Signal::SIGKILL).unwrap();
        // Long before the term ends.
        nothing_written_under(&store, second);
        assert_eq!(first.running.events_from("shim_failed"), ["shim_failed", "killed", "released"]);
        assert_eq!(end(first), 70);
    }
    assert!(store.folders().is_empty());
}

#[test]
fn the_shim_killed_spares_other_processes() {
    let store = Store::new();
    // The shell has a child before it becomes `leasehold`.
    let run = format!(
        "sleep 60 & echo $!; exec {} run --json -v k -- sleep 60",
        env!("CARGO_BIN_EXE_leasehold")
    );
    let mut command = Command::new("sh");
    command.args(["-c", &run]).env("LEASEHOLD_STORE", store.url()).stderr(Stdio::piped());
    let running = Running::start(command);
    let bystander = running.line();
    let command = group(&running.event("started"));
    kill(shim_of(command), Signal::SIGKILL).unwrap();
    running.event("released");
    assert!(runs(&bystander) && !runs(&command.to_string()));
    kill(Pid::from_raw(bystander.parse().unwrap()), Signal::SIGKILL).unwrap();
    assert_eq!(running.code(), 70);
}

/// A process that forks and ends all the time, in its own session: a look at the list of processes may miss it,
/// because the listed process has ended and its child is not listed.
#[test]
fn processes_that_fork_faster_than_one_can_look_are_killed_too() {
    let store = Store::new();
    let hop = "[ -e go ] || exit; echo >> written; sh hop & exit";
    std::fs::write(store.file("hop"), hop).unwrap();
    std::fs::write(store.file("go"), "").unwrap();
    for _ in 0..4 {
        let script = "setsid sh hop & trap '' TERM; echo ready; while :; do sleep 0.1; done";
        let first = Running::start(store.script("--json -vv --ttl 30s --max-hold 4s k", script));
        first.event("started");
        let before = written(&store);
        until("written", || written(&store) > before);
        let second = second(&store);
        nothing_written_under(&store, second);
        assert_eq!(first.code(), 123);
    }
}

/// As after a stop of `leasehold` between the grant and the start of the command.
#[test]
fn no_command_starts_after_the_term() {
    let store = Store::new();
    let ((orders, to_shim), (from_shim, notices)) = (pipe().unwrap(), pipe().unwrap());
    let (mut to_shim, mut from_shim) = (File::from(to_shim), File::from(from_shim));
    // A deadline, which is the instant 1.
    let order = [&1_u32.to_ne_bytes()[..], &1_i64.to_ne_bytes()].concat();
    to_shim.write_all(&order).unwrap();
    let mut shim = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    shim.arg0("lh-shim").arg(std::process::id().to_string());
    shim.args([orders.as_raw_fd().to_string(), notices.as_raw_fd().to_string()]);
    shim.args(["0", "kill", "0", "0", "0", "touch"]).arg(store.file("ran"));
    assert!(shim.status().unwrap().success());
    let mut notice = [0; 12];
    from_shim.read_exact(&mut notice).unwrap();
    assert_eq!(notice[..4], 8_u32.to_ne_bytes(), "too late");
    assert!(!store.file("ran").exists());
}

/// Like a pause of the whole machine, which tokens protect against.
#[test]
fn a_pause_of_all_beyond_the_term_ends_the_command_at_the_end_of_the_pause() {
    let rounds = || (0..5).map(|_| gap_after_a_pause()).collect();
    let mut gaps: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..4).map(|_| scope.spawn(rounds)).collect();
        running.into_iter().flat_map(|rounds| -> Vec<_> { rounds.join().unwrap() }).collect()
    });
    gaps.sort();
    println!("from the end of the pause to the last byte written: {gaps:?}");
    assert!(*gaps.last().unwrap() < Duration::from_secs(2), "{gaps:?}");
}

/// From the moment all are continued to the last byte that they write.
fn gap_after_a_pause() -> Duration {
    let store = Store::new();
    let first = Writers::start(&store, "--ttl 2s");
    let second = second(&store);
    first.running.renewed_now();
    first.running.signal(Signal::SIGSTOP);
    kill(first.shim, Signal::SIGSTOP).unwrap();
    signal_group(first.command, Signal::SIGSTOP);
    let tree = first.tree();
    for pid in &tree {
        // A process that has ended meanwhile was a `sleep`.
        let _ = kill(*pid, Signal::SIGSTOP);
    }
    let token = second.event("acquired");
    assert!(token["token"].as_u64().is_some());

    // The tree first, so that it has as much time as possible.
    let all = tree.into_iter().chain([first.running.pid(), first.shim]);
    let all: Vec<_> = all.map(|pid| pid.to_string()).collect();
    let script = format!("echo $EPOCHREALTIME; kill -CONT {} 2> /dev/null", all.join(" "));
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(end(first), 123);
    let written = std::fs::read_to_string(store.file("written")).unwrap();
    let last = written.lines().filter_map(instant).max().unwrap();
    let continued = instant(text(&output.stdout).trim()).unwrap();
    assert_eq!(second.code(), 0);
    last.saturating_sub(continued)
}

/// The shell's text for an instant.
fn instant(text: &str) -> Option<Duration> {
    let (seconds, micros) = text.split_once(['.', ','])?;
    let micros = Duration::from_micros(micros.parse().ok()?);
    Some(Duration::from_secs(seconds.parse().ok()?) + micros)
}
