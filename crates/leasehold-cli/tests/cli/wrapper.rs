//! What `timeout`, `nohup` and `env` do for the command that they start, `leasehold run` does too.

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use crate::support::{Running, Store, code, hold, now, set_mode, text, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

/// A container of its own for the program that is its argument.
fn container() -> Command {
    let mut container = Command::new("unshare");
    if !geteuid().is_root() {
        container.args(["--user", "--map-root-user"]);
    }
    container.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    container
}

fn has_containers() -> bool {
    let has = container().arg("true").status().unwrap().success();
    if !has {
        println!("ignored: no namespaces can be created here");
    }
    has
}

/// Makes `command` the first process of its own container, where it gets every orphan, and no signal ends it that it
/// does not handle. What the shell commands in `before` start is there already.
fn contained(before: &str, command: &Command) -> Command {
    let mut outer = container();
    outer.args(["sh", "-c", &format!("{before} exec \"$@\""), "sh"]);
    outer.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer.current_dir(command.get_current_dir().unwrap());
    outer
}

/// The child of `unshare`: the first process of its container.
fn first_process(outer: &Running) -> Pid {
    children_of(outer.pid())[0]
}

fn children_of(parent: Pid) -> Vec<Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).unwrap().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let pids = lists.flat_map(|list| list.split_whitespace().map(str::parse).collect::<Vec<_>>());
    pids.map(|pid| Pid::from_raw(pid.unwrap())).collect()
}

#[test]
fn the_first_process_of_a_container_exits_with_the_code_of_the_signal() {
    if !has_containers() {
        return;
    }
    let store = Store::new();
    for signal in [Signal::SIGINT, Signal::SIGQUIT] {
        let running = store.script("k", "echo ready; exec sleep 60");
        let running = Running::start(contained("", &running));
        assert_eq!(running.line(), "ready");
        kill(first_process(&running), signal).unwrap();
        assert_eq!(running.code(), 128 + signal as i32);
        assert!(!store.is_held("k"));
    }
    let watching = Running::start(contained("", &store.command("leader k --watch --json")));
    assert!(watching.line().contains("null"));
    kill(first_process(&watching), Signal::SIGTERM).unwrap();
    assert_eq!(watching.code(), 143);
}

#[test]
fn the_first_process_of_a_container_reaps_orphans_while_it_waits() {
    if !has_containers() {
        return;
    }
    let store = Store::new();
    let holder = hold(&store, "k");
    let go = store.fifo("go");
    for line in ["run", "elect"] {
        let command = store.command(&format!("{line} --json -v k -- true"));
        // Each waits to open the pipe; their parent ends before.
        let orphans = "(for i in 1 2 3 4 5 6 7 8 9 10; do (: < go) & done; :) &";
        let waiter = Running::start(contained(orphans, &command));
        waiter.event("waiting");
        let first = first_process(&waiter);
        until("all adopted", || children_of(first).len() == 10);
        drop(File::options().write(true).open(&go).unwrap());
        until("all reaped", || children_of(first).is_empty());
        kill(first, Signal::SIGTERM).unwrap();
        assert_eq!(waiter.code(), 143);
    }
    assert_eq!(holder.code(), 0);
}

#[test]
fn a_run_is_not_slower_with_its_signals_blocked() {
    let store = Store::new();
    assert_eq!(store.code("init"), 0);
    let took = |_| {
        let from = now();
        let mut command = Command::new("env");
        command.args(["--block-signal", env!("CARGO_BIN_EXE_leasehold"), "run", "k", "--", "true"]);
        assert!(command.env("LEASEHOLD_STORE", store.url()).status().unwrap().success());
        now() - from
    };
    // Each would take a second more. A busy machine may delay one, or two.
    assert!((0..5).map(took).min() < Some(Duration::from_millis(900)));
}

#[test]
fn a_script_without_an_interpreter_is_run_by_sh() {
    let store = Store::new();
    std::fs::write(store.file("plain"), "echo \"$0 $1\"\n").unwrap();
    set_mode(&store.file("plain"), 0o755);
    let output = store.output("run k -- ./plain one");
    assert_eq!((code(&output), text(&output.stdout).as_str()), (0, "./plain one\n"));
}

#[test]
fn a_missing_interpreter_and_a_missing_name_are_not_found() {
    let store = Store::new();
    std::fs::write(store.file("lost"), "#!/nonexistent/interpreter\n").unwrap();
    set_mode(&store.file("lost"), 0o755);
    let mut lost = store.command("run k -- ./lost");
    let mut empty = store.command("run k --");
    for (command, expected) in [
        (&mut lost, "the interpreter of the command \"./lost\" was not found"),
        (empty.arg(""), "the command \"\" was not found"),
    ] {
        let output = command.output().unwrap();
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 127, "{printed}");
        assert!(printed.contains(expected), "{printed}");
        assert!(!store.is_held("k"));
    }
}
