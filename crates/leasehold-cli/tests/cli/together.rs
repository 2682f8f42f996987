//! `leasehold` and its shim die, or stop, together: what the kernel still ends, and what escapes.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{
    Running, Store, group, is_stopped, now, pause, runs, set_mode, shim_of, until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Far longer than any of these tests, so that no term ends in one unnoticed.
const TERM: &str = "--json -v --ttl 60s k";

/// A run whose two processes can be killed together.
struct Pair {
    running: Running,
    command: Pid,
    shim: Pid,
    /// Other processes of the command, to be killed at the end.
    others: Vec<String>,
}

impl Pair {
    fn start(command: Command) -> Self {
        let running = Running::start(command);
        let command = group(&running.event("started"));
        Self { shim: shim_of(command), running, command, others: Vec::new() }
    }

    /// A process id that the command prints.
    fn other(&mut self) -> String {
        self.others.push(self.running.line());
        self.others[self.others.len() - 1].clone()
    }

    fn signal(&self, signal: Signal) {
        self.running.signal(signal);
        kill(self.shim, signal).unwrap();
    }

    fn kill(&self) {
        self.running.crash_with(self.shim);
    }

    fn runs(&self) -> bool {
        runs(&self.command.to_string())
    }

    fn escapes(&self) {
        self.kill();
        pause(Duration::from_millis(200));
        assert!(self.runs());
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for pid in self.others.iter().chain([&self.command.to_string()]) {
            if runs(pid) {
                let _ = kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL);
            }
        }
    }
}

/// Prints why a test has nothing to run on.
fn is_root() -> bool {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        println!("ignored: only root can prepare it");
    }
    is_root
}

/// Another user, who is nobody.
fn nobody() -> [&'static str; 4] {
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
}

fn written(store: &Store) -> u64 {
    std::fs::metadata(store.file("written")).map_or(0, |file| file.len())
}

#[test]
fn killed_together_their_command_is_dead_at_once() {
    let store = Store::new();
    for stubborn in ["exec sleep 60", "trap '' TERM; while :; do read line; done"] {
        let pair = Pair::start(store.script(TERM, stubborn));
        let from = now();
        pair.kill();
        until("dead", || !pair.runs());
        assert!(now() - from < Duration::from_secs(20));
        assert!(store.is_held("k"), "until its term ends");
        assert_eq!(store.code("break k"), 0);
    }
}

#[test]
fn killed_together_their_command_is_dead_before_the_next_holder_starts() {
    let store = Store::new();
    let script = "trap '' TERM; while :; do echo >> written; sleep 0.005; done";
    let pair = Pair::start(store.script("--json -v --ttl 2s k", script));
    let second = Running::start(store.script("--json -v -w 60s k", "wc -c < written; sleep 0.2"));
    second.event("waiting");
    until("written", || written(&store) > 0);
    pair.kill();
    let at_start: u64 = second.line().trim().parse().unwrap();
    assert_eq!(second.code(), 0);
    assert!(at_start > 0 && at_start == written(&store), "written under another's lock");
}

#[test]
fn killed_together_they_treat_the_command_as_on_lost_requires() {
    let store = Store::new();
    let script = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done";
    let pair = Pair::start(store.script("--json -v --on-lost signal a", script));
    assert_eq!(pair.running.line(), "ready");
    pair.escapes();
    assert_eq!(pair.running.line(), "asked");
    Pair::start(store.script("--json -v --on-lost ignore b", "exec sleep 60")).escapes();
}

/// Only the test's own session is looked at.
#[test]
fn pkill_by_the_name_of_leasehold_ends_the_command_too() {
    let store = Store::new();
    let temporary = store.file("leasehold-tmp");
    std::fs::create_dir(&temporary).unwrap();
    let script = "trap 'echo asked; exit' TERM; echo ready; while :; do sleep 0.05; done";
    let mut run = Command::new("setsid");
    let inner = store.script(TERM, script);
    run.arg(inner.get_program()).args(inner.get_args()).current_dir(store.file(""));
    run.env("LEASEHOLD_STORE", store.url()).env("TMPDIR", &temporary);
    let pair = Pair::start(run);
    assert_eq!(pair.running.line(), "ready");
    let arguments = std::fs::read(format!("/proc/{}/cmdline", pair.shim)).unwrap();
    let arguments = String::from_utf8_lossy(&arguments).into_owned();
    assert!(arguments.starts_with("lh-shim\0") && !arguments.contains("leasehold"), "{arguments}");
    let session = pair.running.pid().to_string();
    let pkill = Command::new("pkill").args(["-9", "-s", &session, "-f", "leasehold"]).status();
    assert!(pkill.unwrap().success());
    assert_eq!(pair.running.line(), "asked");
    until("dead", || !pair.runs());
}

/// A run whose child of the shim is stopped before it executes the command, and that child.
fn slow_to_start(store: &Store, script: &str) -> (Running, Pid) {
    // It looks in each directory.
    let path = format!("{}{}", "/none:".repeat(20_000), std::env::var("PATH").unwrap());
    loop {
        let mut run = store.script("--json -vv --ttl 2s -w 60s k", script);
        let running = Running::start({
            run.env("PATH", &path);
            run
        });
        let child = first_child(running.pid()).and_then(first_child);
        if let Some(child) = child.filter(|child| stop_before_its_end(*child)) {
            return (running, child);
        }
        // The test was too slow.
        running.code();
        let _ = std::fs::remove_file(store.file("ran"));
    }
}

/// `None` if the parent ends without one.
fn first_child(parent: Pid) -> Option<Pid> {
    let list = format!("/proc/{parent}/task/{parent}/children");
    let mut child = None;
    until("a parent", || {
        let pids = std::fs::read_to_string(&list).unwrap_or_default();
        child = pids.split_whitespace().next().map(|pid| Pid::from_raw(pid.parse().unwrap()));
        child.is_some() || !runs(&parent.to_string())
    });
    child
}

/// True if it was not the command yet. Otherwise it is killed.
fn stop_before_its_end(child: Pid) -> bool {
    let pid = child.to_string();
    let _ = kill(child, Signal::SIGSTOP);
    until("stopped", || is_stopped(&pid) || !runs(&pid));
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let in_time = is_stopped(&pid) && name == "lh-shim\n";
    if !in_time {
        let _ = kill(child, Signal::SIGKILL);
    }
    in_time
}

#[test]
fn a_command_that_is_slow_to_start_starts_while_its_lease_is_renewed() {
    let store = Store::new();
    let (running, child) = slow_to_start(&store, "echo started");
    let stopped = now();
    // For longer than the first term.
    while now() - stopped < Duration::from_millis(2_200) {
        running.event("renewed");
    }
    running.signal(Signal::SIGWINCH);
    running.event("forwarded");
    kill(child, Signal::SIGCONT).unwrap();
    assert_eq!(running.line(), "started");
    assert_eq!(running.code(), 0);
}

#[test]
fn a_command_that_is_slow_to_start_does_not_start_without_leasehold() {
    let store = Store::new();
    let (running, child) = slow_to_start(&store, "touch ran");
    running.signal(Signal::SIGKILL);
    until("dead", || !runs(&child.to_string()));
    assert_eq!(store.code("run -w 60s k -- test ! -e ran"), 0);
}

#[test]
fn stopped_together_they_let_the_command_run_on() {
    let store = Store::new();
    let script = "while :; do echo >> written; sleep 0.005; done";
    let pair = Pair::start(store.script("--json -v --ttl 1s k", script));
    pair.signal(Signal::SIGSTOP);
    let mut second = Running::start(store.script("--json -v k", "echo mine; read line"));
    assert_eq!(second.line(), "mine");
    let before = written(&store);
    until("written", || written(&store) > before);
    pair.signal(Signal::SIGCONT);
    until("dead", || !pair.runs());
    second.close_stdin();
}

#[test]
fn killed_together_they_let_run_on_what_the_command_started() {
    let store = Store::new();
    let mut pair = Pair::start(store.script(TERM, "sleep 60 & echo $!; wait"));
    let grandchild = pair.other();
    pair.kill();
    until("dead", || !pair.runs());
    assert!(runs(&grandchild));
}

/// A copy of sleep(1) as another user may execute it.
fn sleep_of_nobody(store: &Store) -> PathBuf {
    let copy = store.file("sleep");
    std::fs::copy("/bin/sleep", &copy).unwrap();
    set_mode(&store.file(""), 0o755);
    set_mode(&copy, 0o755);
    copy
}

fn a_sleep_escapes(command: Command) {
    let pair = Pair::start(command);
    let name = format!("/proc/{}/comm", pair.command);
    until("executed", || std::fs::read_to_string(&name).is_ok_and(|name| name == "sleep\n"));
    pair.escapes();
}

#[test]
fn killed_together_they_let_a_setuid_program_run_on() {
    if !is_root() {
        return;
    }
    let store = Store::new();
    let sleep = sleep_of_nobody(&store);
    std::os::unix::fs::chown(&sleep, Some(65_534), None).unwrap();
    set_mode(&sleep, 0o4755);
    a_sleep_escapes(store.script(TERM, "exec ./sleep 60"));
}

#[test]
fn killed_together_they_let_a_program_run_on_that_changes_its_user() {
    if !is_root() {
        return;
    }
    let store = Store::new();
    let mut command = store.command(&format!("run {TERM} --"));
    command.args(nobody()).args(["sh", "-c", "echo changed; exec sleep 60"]);
    let pair = Pair::start(command);
    assert_eq!(pair.running.line(), "changed");
    pair.escapes();
}

#[test]
fn killed_together_they_let_a_program_with_file_capabilities_run_on() {
    if !is_root() {
        return;
    }
    let store = Store::new();
    let sleep = sleep_of_nobody(&store);
    let given = Command::new("setcap").arg("cap_net_bind_service=ep").arg(&sleep).status();
    if !given.is_ok_and(|status| status.success()) {
        println!("ignored: no file can be given capabilities");
        return;
    }
    // Root has them all anyway.
    let binary = store.file("leasehold");
    std::fs::copy(env!("CARGO_BIN_EXE_leasehold"), &binary).unwrap();
    std::os::unix::fs::chown(store.file(""), Some(65_534), None).unwrap();
    let mut command = Command::new(nobody()[0]);
    command.args(&nobody()[1..]).arg(&binary).arg("run").args(TERM.split(' '));
    command.args(["--", "./sleep", "60"]).current_dir(store.file(""));
    command.env("LEASEHOLD_STORE", store.url()).env("TMPDIR", store.file(""));
    a_sleep_escapes(command);
}

/// A cgroup of the unified hierarchy; `None` where this process may not create one.
fn cgroup() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find_map(|line| {
        let fields: Vec<_> = line.split(' ').collect();
        (fields[2] == "cgroup2").then(|| fields[1].to_owned())
    })?;
    let cgroup = Path::new(&mount).join(format!("leasehold-test-{}", std::process::id()));
    std::fs::create_dir(&cgroup).ok()?;
    let kill = OpenOptions::new().write(true).open(cgroup.join("cgroup.kill")).is_ok();
    let moves = OpenOptions::new().write(true).open(cgroup.join("cgroup.procs")).is_ok();
    if !(kill && moves) {
        std::fs::remove_dir(&cgroup).unwrap();
    }
    (kill && moves).then_some(cgroup)
}

#[test]
fn killed_together_with_their_cgroup_they_let_nothing_run_on() {
    let Some(cgroup) = cgroup() else {
        println!("ignored: no cgroup can be created here");
        return;
    };
    let store = Store::new();
    let inner = store.script(TERM, "setsid sh -c 'echo $$; exec sleep 60' & wait");
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$0/cgroup.procs\"; exec \"$@\""]).arg(&cgroup);
    command.arg(inner.get_program()).args(inner.get_args()).current_dir(store.file(""));
    command.env("LEASEHOLD_STORE", store.url()).env("TMPDIR", store.file(""));
    let mut pair = Pair::start(command);
    let grandchild = pair.other();
    pair.kill();
    assert!(runs(&grandchild));
    std::fs::write(cgroup.join("cgroup.kill"), "1").unwrap();
    until("dead", || !runs(&grandchild));
    until("removed", || std::fs::remove_dir(&cgroup).is_ok());
}
