//! What the lines of a crontab and of deploy scripts use.

use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::support::{Running, Store, code, group, hold, runs, text, until};

#[test]
fn skip_exits_with_0_and_silently_if_the_key_is_held() {
    let store = Store::new();
    let holder = hold(&store, "k");
    let skipped = store.output("run --skip k -- false");
    assert_eq!((code(&skipped), text(&skipped.stderr)), (0, String::new()));
    let told = store.output("run --skip k --json -v -- false");
    assert_eq!(code(&told), 0);
    let event: serde_json::Value = serde_json::from_slice(&told.stderr).unwrap();
    assert_eq!((&event["event"], &event["holder"]["program"]), (&"skipped".into(), &"sh".into()));
    assert_eq!(store.code("elect --skip k -- false"), 0);
    assert_eq!(holder.code(), 0);
    assert_eq!(store.code("run --skip k -- false"), 1, "the command's own");
    let unreachable = store.output("run --skip k --store redis://127.0.0.1:1/ -- false");
    assert_eq!(code(&unreachable), 69, "not skipped for that");
}

#[test]
fn a_quiet_run_tells_losses_and_failures_and_no_refusal() {
    let store = Store::new();
    let holder = Running::start(store.script("--json -q k", "echo held; cat"));
    assert_eq!(holder.line(), "held");
    for line in ["run -n -q k -- true", "run -w 1s -q k -- true", "-q run -n k -- true"] {
        let refused = store.output(line);
        assert_ne!(code(&refused), 0, "{line}");
        assert_eq!(text(&refused.stderr), "", "{line}");
    }
    assert_eq!(store.code("break k --reason stuck"), 0);
    holder.event("lost");
    assert_eq!(holder.code(), 123);
    for (level, is_told) in [("-q", true), ("-qq", false)] {
        let failed = store.output(&format!("run {level} k -- /nonexistent/program"));
        assert_eq!((code(&failed), !failed.stderr.is_empty()), (127, is_told), "{level}");
    }
}

#[test]
fn a_line_for_the_shell_needs_no_second_shell() {
    let store = Store::new();
    let mut command = store.command("run k -c");
    let output = command.arg("echo $LEASEHOLD_KEY | tr k x; exit 7").output().unwrap();
    assert_eq!((code(&output), text(&output.stdout)), (7, "x\n".to_owned()));
}

#[test]
fn the_code_for_a_lock_that_is_not_free_is_for_a_wait_too() {
    let store = Store::new();
    let holder = hold(&store, "k");
    assert_eq!(store.code("run -w 0.5 -E 75 k -- true"), 75);
    let mut command = store.command("run k -- true");
    command.env("LEASEHOLD_WAIT", "500ms").env("LEASEHOLD_CONFLICT_EXIT_CODE", "76");
    assert_eq!(code(&command.stdin(Stdio::null()).output().unwrap()), 76);
    assert_eq!(holder.code(), 0);
    let unreachable = "run -w 10ms -E 75 --store redis://127.0.0.1:1/ k -- true";
    assert_eq!(store.code(unreachable), 69);
}

#[test]
fn an_unknown_variable_of_ours_is_named_without_its_value() {
    let store = Store::new();
    let mut command = store.command("run k -- true");
    let output = command.env("LEASEHOLD_TLL", "secret").output().unwrap();
    assert_eq!(code(&output), 0);
    let printed = text(&output.stderr);
    assert!(printed.contains("LEASEHOLD_TLL is unknown"), "{printed}");
    assert!(!printed.contains("secret"), "{printed}");
    // Those that a command under the lock gets are known.
    let script = "$LEASEHOLD status k";
    let mut outer = store.script("k", script);
    let output = outer.env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold")).output().unwrap();
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_path_is_a_store() {
    let store = Store::new();
    let path = store.file("by path.db");
    for (option, variable) in [(true, false), (false, true)] {
        let mut command = store.command("run k");
        if option {
            command.arg("--store").arg(&path);
        }
        if variable {
            command.env("LEASEHOLD_STORE", &path);
        }
        assert_eq!(code(&command.args(["--", "true"]).output().unwrap()), 0);
        assert!(path.exists());
        std::fs::remove_file(&path).unwrap();
    }
    let file = store.file("url");
    std::fs::write(&file, path.to_str().unwrap()).unwrap();
    let mut command = store.command("run k -- true");
    command.env_remove("LEASEHOLD_STORE").env("LEASEHOLD_STORE_FILE", &file);
    assert_eq!(code(&command.output().unwrap()), 0);
    assert!(path.exists());
}

#[test]
fn a_command_that_ignores_a_passed_on_signal_is_killed() {
    let store = Store::new();
    let script = "trap '' TERM; (while :; do sleep 600; done) & echo $!; wait; wait";
    let running = Running::start(store.script("--json -v --kill-after-signal 300ms k", script));
    let child = running.line();
    running.event("started");
    running.signal(Signal::SIGTERM);
    running.event("killed");
    assert_eq!(running.code(), 128 + 9);
    until("dead", || !runs(&child));
    assert!(!store.is_held("k"));
}

#[test]
fn a_run_acquires_again_after_a_loss() {
    let store = Store::new();
    let script = "echo $LEASEHOLD_TOKEN; read line; exit 9";
    let mut running = Running::start(store.script("--json -v --ttl 9s --again k", script));
    let early: u64 = running.line().parse().unwrap();
    assert_eq!(store.code("break k"), 0);
    let late: u64 = running.line().parse().unwrap();
    assert!(late > early);
    running.close_stdin();
    assert_eq!(running.code(), 9);
}

#[test]
fn once_per_keeps_the_key_after_a_success_and_not_after_a_failure() {
    let store = Store::new();
    assert_eq!(store.code("run --once-per 1h k -- false"), 1);
    assert!(!store.is_held("k"));
    assert_eq!(store.code("run --once-per 1h k -- true"), 0);
    let record = store.records("k").remove(0);
    assert_eq!(record["kept"], true);
    assert!(record["remaining_us"].as_u64().unwrap() > 3_500_000_000, "{record}");
    assert_eq!(store.code("run -n k -- true"), 1);
    assert_eq!(store.code("run --skip --once-per 1h k -- false"), 0);
    assert_eq!(store.code("break k"), 0);
    // What a signal ended did not succeed.
    assert_eq!(code(&store.script("--once-per 1h k", "kill -9 $$").output().unwrap()), 137);
    assert!(!store.is_held("k"));
}

#[test]
fn once_per_is_refused_at_once_where_the_key_cannot_be_kept_so_long() {
    let store = Store::new();
    let url = ["a", "b", "c"].map(|name| format!("node=sqlite:{}", store.file(name).display()));
    let url = format!("quorum:?{}", url.join("&"));
    let mut command = store.command("run --once-per 1h k -- touch ran");
    let refused = command.env("LEASEHOLD_STORE", url).output().unwrap();
    assert_eq!(code(&refused), 64);
    assert!(text(&refused.stderr).contains("at most 1m"), "{}", text(&refused.stderr));
    assert!(!store.file("ran").exists());
}

#[test]
fn a_run_that_finds_the_key_held_after_a_loss_reports_the_loss() {
    let store = Store::new();
    for option in ["--skip", "-n", "-n -E 75"] {
        let line = format!("--json -v --ttl 9s --again {option} k");
        let running = Running::start(store.script(&line, "echo on; cat"));
        assert_eq!(running.line(), "on");
        // Before the run that has lost tries again, which lets others come first.
        let waits = Running::start(store.script("--json -v k", "echo held; cat"));
        waits.event("waiting");
        assert_eq!(store.code("break k"), 0);
        assert_eq!(waits.line(), "held");
        assert_eq!(running.code(), 123, "{option}");
        assert_eq!(waits.code(), 0);
    }
}

/// A kill that is due long after the end of the lease does not put off the one for it.
#[test]
fn a_lease_that_ends_before_the_kill_after_a_signal_ends_the_command() {
    let store = Store::new();
    let script = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
    let running =
        Running::start(store.script("--json -vv --ttl 3s --kill-after-signal 1h k", script));
    let command = group(&running.event("started")).to_string();
    assert_eq!(running.line(), "ready");
    running.signal(Signal::SIGTERM);
    running.event("forwarded");
    running.renewed_now();
    running.signal(Signal::SIGSTOP);
    until("dead", || !runs(&command));
    running.signal(Signal::SIGCONT);
    assert_eq!(running.code(), 123);
}
