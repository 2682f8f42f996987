//! Every exit code, seen from outside.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::support::{Running, Store, code, hold, leasehold, set_mode, text};

#[test]
fn the_commands_own() {
    let store = Store::new();
    for expected in [0, 1, 7, 64, 123, 255] {
        let output = store.script("k", &format!("exit {expected}")).output().unwrap();
        assert_eq!(code(&output), expected);
        assert_eq!(text(&output.stderr), "", "nothing went wrong");
    }
    assert!(!store.is_held("k"));
}

#[test]
fn the_signal_that_ended_the_command() {
    let store = Store::new();
    // The last two are real-time signals, which have no name.
    for signal in [1, 2, 9, 11, 15, 34, 64] {
        let output = store.script("k", &format!("kill -{signal} $$")).output().unwrap();
        assert_eq!(code(&output), 128 + signal);
    }
    assert!(!store.is_held("k"));
}

#[test]
fn not_acquired() {
    let store = Store::new();
    let holder = hold(&store, "k");
    let output = store.output("run -n k -- true");
    assert_eq!(code(&output), 1);
    let printed = text(&output.stderr);
    assert!(printed.contains(&format!("pid {}", holder.pid())), "{printed}");
    assert_eq!(store.code("run -n -E 75 k -- true"), 75);
    assert_eq!(store.code("run -n -E 0 k -- true"), 0);
    assert_eq!(text(&store.output("run -n -q k -- true").stderr), "");
    assert_eq!(holder.code(), 0);
}

#[test]
fn waited_too_long() {
    let store = Store::new();
    let holder = hold(&store, "k");
    assert_eq!(store.code("run -w 100ms k -- true"), 124);
    assert_eq!(store.code("run -w 0s -E 75 k -- true"), 75);
    assert_eq!(holder.code(), 0);
}

#[test]
fn wrong_usage() {
    let store = Store::new();
    for line in [
        "",
        "unknown",
        "run",
        "run k",
        "run k -- ",
        "run --frobnicate k -- true",
        "run -n -w 1s k -- true",
        "status",
        "list --mode both",
        "list --expired --only-expired",
        "list --min-age 2s --max-age 1s",
        "list --glob=",
        "purge --batch 0",
        "break k --lease=",
        "init --store sqlite:a --store-file b",
        "status k --store-file /nonexistent/file",
    ] {
        assert_eq!(store.code(line), 64, "{line}");
    }
}

#[test]
fn help_and_version_are_not_mistakes() {
    for line in ["--help", "-h", "--version", "help", "run --help", "list -h", "help purge"] {
        let output = leasehold(line).output().unwrap();
        assert_eq!(code(&output), 0, "{line}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{line}");
    }
    for line in ["--help", "run --help"] {
        let help = text(&leasehold(line).output().unwrap().stdout);
        for row in ["1      not acquired", "123    the lease was lost", "128+n  signal n", "127 "] {
            assert!(help.contains(row), "{row}");
        }
    }
}

#[test]
fn the_store_is_not_fit() {
    let store = Store::new();
    std::fs::write(store.database(), "this is no database, but long enough to be read as one")
        .unwrap();
    for line in ["run k -- true", "status k", "list", "break k", "purge", "init"] {
        let output =
            store.output(&format!("{line} --json").replace(" -- true --json", " --json -- true"));
        assert_eq!(code(&output), 65, "{line}: {}", text(&output.stderr));
        let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!((&error["event"], &error["exit_code"]), (&"error".into(), &65.into()));
    }
}

#[test]
fn the_store_cannot_be_reached() {
    let store = Store::prepared("?timeout=100ms");
    let _others = store.lock_out();
    let output = store.output("run --json -n k -- true");
    assert_eq!(code(&output), 69, "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(r#""kind":"unavailable""#));
}

#[test]
fn access_is_denied() {
    // A copy, because the other user may not be allowed to enter the build directory.
    let store = Store::new();
    let nobody = tempfile::tempdir().unwrap();
    set_mode(nobody.path(), 0o755);
    let copy = nobody.path().join("leasehold");
    std::fs::copy(env!("CARGO_BIN_EXE_leasehold"), &copy).unwrap();
    assert_eq!(store.code("init"), 0);
    set_mode(&store.file(""), 0o500);
    set_mode(&store.database(), 0o400);
    let mut command = Command::new(copy);
    command.args(["run", "k", "--", "true"]).env("LEASEHOLD_STORE", store.url());
    if nix::unistd::geteuid().is_root() {
        command.uid(65_534).gid(65_534).current_dir("/");
    }
    let output = command.output().unwrap();
    set_mode(&store.file(""), 0o700);
    assert_eq!(code(&output), 77, "{}", text(&output.stderr));
}

#[test]
fn the_command_cannot_be_started_and_nothing_stays_held() {
    let store = Store::new();
    std::fs::write(store.file("data"), "no program").unwrap();
    std::fs::write(store.file("script"), "#!/nonexistent/interpreter\n").unwrap();
    set_mode(&store.file("script"), 0o755);
    for (line, expected) in [
        ("run k -- /nonexistent", 127),
        ("run k -- no-such-program-anywhere", 127),
        ("run k -- ./script", 127),
        ("run k -- ./data", 126),
        ("run k -- ./data/below", 127),
        ("run k -- /", 126),
    ] {
        let output = store.output(line);
        assert_eq!(code(&output), expected, "{line}: {}", text(&output.stderr));
        assert!(!store.database().exists() || !store.is_held("k"), "{line}");
    }
}

#[test]
fn a_mistyped_command_fails_before_the_wait() {
    let store = Store::new();
    let holder = hold(&store, "k");
    assert_eq!(store.code("run k -- no-such-program-anywhere"), 127);
    assert_eq!(holder.code(), 0);
}

#[test]
fn the_lease_is_lost() {
    let store = Store::new();
    let running = Running::start(store.script("--json --ttl 1s k", "echo on; sleep 60"));
    assert_eq!(running.line(), "on");
    assert_eq!(store.code("break k"), 0);
    assert_eq!(running.code(), 123);
}
