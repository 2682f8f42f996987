//! What the command gets, and what happens to the processes that it leaves.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use leasehold::store::{STORES, StoreKind};

use crate::support::{Running, Store, code, group, runs, text};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

#[test]
fn its_environment() {
    let store = Store::new();
    let script = "echo \"$LEASEHOLD_KEY\"; echo $LEASEHOLD_TOKEN; echo $LEASEHOLD_LEASE_FILE
        env | grep -c ^LEASEHOLD_; cat";
    let mut command = store.script("--json -v --ttl 20s --key other k", script);
    command.env("LEASEHOLD_STORE_PASSWORD", "secret").env("LEASEHOLD_TOKEN", "1");
    let running = Running::start(command);
    let acquired = running.event("acquired");
    assert_eq!((running.line().as_str(), running.line().as_str()), ("k", "other"));
    assert_eq!(running.line(), acquired["token"].to_string());
    let file = running.line();
    assert_eq!(running.line(), "3", "no other variable of ours");

    let file = Path::new(&file);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(file), mode(file.parent().unwrap())), (0o600, 0o700));
    let lease: leasehold::Lease = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(lease.id.to_string(), acquired["lease"]);
    assert_eq!(lease.token.map(leasehold::FencingToken::get), acquired["token"].as_u64());
    assert_eq!(lease.claims.keys().map(|key| key.as_str()).collect::<Vec<_>>(), ["k", "other"]);
    assert_eq!(lease.ttl.to_string(), "20s");

    let directory = file.parent().unwrap().to_owned();
    assert_eq!(running.code(), 0);
    assert!(!directory.exists());
}

#[test]
fn the_command_never_sees_the_url_of_the_store() {
    let store = Store::new();
    let script = "cat /proc/self/environ /proc/$PPID/environ /proc/$PPID/cmdline; env";
    let output = store.script("k", script).output().unwrap();
    assert_eq!(code(&output), 0);
    assert!(!text(&output.stdout).contains("sqlite:"));

    std::fs::write(store.file("store"), store.url() + "\n").unwrap();
    let mut command = store.script("--store-file store k", script);
    let output = command.env_remove("LEASEHOLD_STORE").output().unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert!(!text(&output.stdout).contains("sqlite:"));
}

#[test]
fn its_streams_are_untouched() {
    let store = Store::new();
    let mut command = store.script("k", "cat; echo to stderr >&2");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"\x00through\xff\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0);
    assert_eq!(output.stdout, b"\x00through\xff\n");
    assert_eq!(text(&output.stderr), "to stderr\n");
}

#[test]
fn it_and_the_shim_run_in_groups_of_their_own_in_the_same_session() {
    let store = Store::new();
    let script = "shim=$PPID; ps -o pid=,pgid=,sid= -p $$; ps -o pid=,pgid=,sid= -p $shim
        ps -o pgid=,sid= -p $(ps -o ppid= -p $shim)";
    let output = store.script("k", script).output().unwrap();
    let printed = text(&output.stdout);
    let numbers: Vec<_> = printed.split_whitespace().collect();
    let [pid, group, session, shim, group_of_shim, session_of_shim, group_of_ours, session_of_ours] =
        numbers.as_slice()
    else {
        panic!("{printed}")
    };
    assert_eq!((pid, shim), (group, group_of_shim));
    assert!(![group, group_of_shim].contains(&group_of_ours));
    assert_eq!((session, session), (session_of_shim, session_of_ours));
}

#[test]
fn the_lease_file_is_where_something_can_be_written() {
    let store = Store::new();
    let mut command =
        store.script("k", "ls -A \"${LEASEHOLD_LEASE_FILE%/*}\"; echo $LEASEHOLD_LEASE_FILE");
    command.env("TMPDIR", "/nonexistent").env("XDG_RUNTIME_DIR", store.file(""));
    let output = command.output().unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let [lease, url, path] = printed.lines().collect::<Vec<_>>()[..] else { panic!("{printed}") };
    assert_eq!((lease, url), ("lease.json", "store"));
    assert!(path.starts_with(store.file("").to_str().unwrap()), "{path}");
}

/// As in a container whose disk cannot be written.
#[test]
fn without_a_place_for_the_lease_file_it_runs_and_reports_it() {
    let store = Store::new();
    let mut command = store.script(
        "k",
        "echo \"$LEASEHOLD_KEY ${LEASEHOLD_LEASE_FILE-none}\"; exec \"$LEASEHOLD\" list",
    );
    command.env("TMPDIR", "/nonexistent").env("XDG_RUNTIME_DIR", "/nonexistent");
    command.env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold")).env("LEASEHOLD_LEASE_FILE", "/outer");
    let output = command.output().unwrap();
    assert_eq!(text(&output.stdout), "k none\n");
    let printed = text(&output.stderr);
    assert!(printed.contains("no lease file") && printed.contains("set TMPDIR"), "{printed}");
    assert_eq!(code(&output), 64, "another store would exclude nobody");
    assert!(printed.contains("its store is not known here"), "{printed}");
    assert!(!store.is_held("k"));
}

#[test]
fn it_inherits_the_callers_open_files_and_none_of_ours() {
    let store = Store::new();
    let open_files = "ls /proc/self/fd";
    let alone = Command::new("sh").args(["-c", open_files]).output().unwrap();
    let output = store.script("k", open_files).output().unwrap();
    assert_eq!(text(&output.stdout), text(&alone.stdout));
    let run = format!(
        "exec {} run k -- sh -c 'echo passed >&7' 7> given",
        env!("CARGO_BIN_EXE_leasehold")
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &run]).env("LEASEHOLD_STORE", store.url()).current_dir(store.file(""));
    assert!(shell.status().unwrap().success());
    assert_eq!(std::fs::read_to_string(store.file("given")).unwrap(), "passed\n");
}

#[test]
fn processes_left_in_its_group_end_before_the_release() {
    let store = Store::new();
    let go = store.fifo("go");
    let script = "sh -c 'trap \"echo asked\" TERM; echo $$; while :; do sleep 0.05; done' &
        read line < go; exit 7";
    let running = Running::start(store.script("--json -v --ttl 6s -k 1s k", script));
    let left = running.line();
    crate::support::release(&go);
    running.event("leftovers");
    assert_eq!(running.line(), "asked");
    assert!(runs(&left) && store.is_held("k"));
    running.event("killed");
    running.event("released");
    assert!(!runs(&left));
    assert_eq!(running.code(), 7);
}

#[test]
fn a_process_that_ends_when_asked_is_not_awaited_for_longer() {
    let store = Store::new();
    let running = Running::start(store.script("--json -v -k 9s k", "sleep 60 & exit 7"));
    let events = running.events();
    assert!(events.contains(&"leftovers".to_owned()), "{events:?}");
    assert!(!events.contains(&"killed".to_owned()), "{events:?}");
    assert_eq!(running.code(), 7);
}

#[test]
fn a_daemon_that_left_the_group_is_left_alone() {
    let store = Store::new();
    let ready = store.fifo("ready");
    let script = "setsid sh -c 'echo $$; echo go > ready; exec sleep 60 > /dev/null 2>&1' &
        read line < ready; exit 7";
    assert!(ready.exists());
    let running = Running::start(store.script("--json -v k", script));
    let daemon = running.line();
    assert_eq!(running.code(), 7);
    assert!(runs(&daemon));
    kill(Pid::from_raw(daemon.parse().unwrap()), Signal::SIGKILL).unwrap();
}

#[test]
fn a_daemon_that_was_just_started_has_a_moment_to_leave_the_group() {
    let store = Store::new();
    // It leaves 50 ms after the command has ended.
    let script =
        "(sleep 0.05; exec setsid sh -c 'echo $$; exec sleep 60 > /dev/null 2>&1') & exit 7";
    let running = Running::start(store.script("--json -v k", script));
    let daemon = running.line();
    assert_eq!(running.code(), 7);
    assert!(runs(&daemon));
    kill(Pid::from_raw(daemon.parse().unwrap()), Signal::SIGKILL).unwrap();
}

#[test]
fn arguments_are_passed_as_they_are() {
    let store = Store::new();
    let mut command = store.command("run k -- printf %s\\n");
    let output = command.args(["a b", "", "--", "-n", "*"]).output().unwrap();
    assert_eq!(text(&output.stdout), "a b\n\n--\n-n\n*\n");
}

#[test]
fn messages_are_lines_of_json() {
    let store = Store::new();
    let output = store.output("run --json -v k -- true");
    let events: Vec<Value> =
        text(&output.stderr).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names = events.iter().map(|event| event["event"].as_str().unwrap());
    // On a busy machine even the first try may take long enough to be reported.
    let names: Vec<_> = names.filter(|name| *name != "waiting").collect();
    assert_eq!(names, ["acquired", "started", "exited", "released"]);
    assert!(events.iter().all(|event| event["message"].is_string()));
}

#[test]
fn renewals_are_reported_on_request() {
    let store = Store::new();
    let mut command = store.script("-vv --ttl 3s k", "read line");
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("leasehold: renewed")));
    drop(child.stdin.take());
    assert!(lines.any(|line| line == "leasehold: released"));
    assert_eq!(child.wait().unwrap().code(), Some(1), "read met the end of its input");
}

#[test]
fn after_a_forced_end_processes_that_left_the_group_end_before_the_release() {
    let store = Store::new();
    let script = "echo $$; timeout 60 sh -c 'trap \"\" TERM; echo $$; sleep 60; sleep 60'; true";
    for (signal, to_command, expected) in
        [(Signal::SIGTERM, false, 143), (Signal::SIGKILL, true, 137)]
    {
        let running = Running::start(store.script("--json -v -k 100ms k", script));
        let command = group(&running.event("started"));
        assert_eq!(running.line(), command.to_string());
        let child = running.line();
        if to_command {
            kill(command, signal).unwrap();
        } else {
            running.signal(signal);
        }
        running.event("leftovers");
        assert_eq!(running.code(), expected);
        assert!(!runs(&child), "{signal}");
        assert!(!store.is_held("k"));
    }
}

#[test]
fn the_help_names_every_store() {
    let page = include_str!("../../../../docs/cli.md");
    let help = text(&crate::support::leasehold("--help").output().unwrap().stdout);
    let features: Vec<_> = STORES.iter().map(StoreKind::feature).collect();
    for store in ["mysql", "postgres", "quorum", "redis", "sqlite"] {
        assert!(features.contains(&store), "{store}: {features:?}");
    }
    for kind in STORES {
        assert!(help.contains(&format!("  {}\n        {}", kind.url(), kind.about())), "{help}");
        for other in &kind.schemes()[1..] {
            assert!(help.contains(&format!(" {other}:")), "{other}: {help}");
        }
        assert!(page.contains(&format!("`{}`", kind.url())), "{kind}");
    }
    assert!(help.contains("format=nene"), "{help}");
}
