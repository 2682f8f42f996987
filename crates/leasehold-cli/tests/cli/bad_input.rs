//! Invalid input: each is refused with what was given and what is allowed, and nothing stays held.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Output;

use crate::support::{Store, code, leasehold, text};

/// Checks that `output` is a refusal that contains `fragment`, and that the store holds nothing.
fn refused(store: &Store, output: &Output, expected: i32, fragment: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(code(output), expected, "{fragment}: {stderr}");
    assert!(stderr.contains(fragment), "not {fragment:?}: {stderr}");
    assert!(output.stdout.is_empty());
    if store.database().exists() {
        let list = store.output("list --expired");
        assert_eq!((code(&list), text(&list.stdout).as_str()), (0, ""), "{fragment}");
    }
}

#[test]
fn keys() {
    let store = Store::new();
    let long = "k".repeat(1_025);
    for (key, fragment) in [
        (&b""[..], "the key is empty"),
        (b"a\xffb", "not UTF-8"),
        (b"a\tb", "control character"),
        (long.as_bytes(), "1025 bytes; at most 1024"),
    ] {
        let key = OsStr::from_bytes(key);
        let run = store.command("run").arg(key).args(["--", "echo", "ran"]).output().unwrap();
        refused(&store, &run, 64, fragment);
        let more = store.command("run good --key").arg(key).args(["--", "echo"]).output().unwrap();
        refused(&store, &more, 64, fragment);
        for command in ["status", "break", "list --key", "purge --key"] {
            let output = store.command(command).arg(key).output().unwrap();
            refused(&store, &output, 64, fragment);
        }
    }
}

#[test]
fn options_of_run() {
    let store = Store::new();
    let comment = "c".repeat(513);
    let comment = format!("--comment {comment}");
    for (options, fragment) in [
        ("--ttl 0s", "10 ms to 10 years"),
        ("--ttl 9ms", "10 ms to 10 years"),
        ("--ttl=-5s", "such as 30s"),
        ("--ttl 5", "such as 30s"),
        ("--ttl 11years", "at most 10 years"),
        ("--wait soon", "such as 30s"),
        ("--permits 0", "from 1 to"),
        ("--permits -1", "unexpected argument"),
        ("--permits many", "from 1 to"),
        ("--kill-after 10s", "below a third of the TTL, which is 30s"),
        ("--ttl 900ms -k 300ms", "below 300ms"),
        ("--max-hold 0s", "longer than zero"),
        ("--max-hold 1s --min-hold 2s", "shorter than min_hold"),
        ("-E 256", "256"),
        ("--on-lost pray", "kill, signal, ignore"),
        (&comment, "513 bytes; at most 512"),
        ("--nonblock --wait 1s", "cannot be used with"),
    ] {
        let output = store.output(&format!("run {options} k -- echo ran"));
        refused(&store, &output, 64, fragment);
    }
}

#[test]
fn too_long_a_kill_after_is_refused_before_the_store_is_opened() {
    let store = Store::new();
    for options in ["--kill-after 10s", "--ttl 900ms -k 300ms", "-k 1s --max-hold 3s"] {
        let output = store.output(&format!("run {options} k -- echo ran"));
        assert_eq!((code(&output), output.stdout.as_slice()), (64, &b""[..]), "{options}");
        assert!(text(&output.stderr).contains("must be below a third of"), "{options}");
        assert!(!store.database().exists());
    }
}

#[test]
fn stores() {
    let store = Store::new();
    std::fs::write(store.file("empty"), "\n").unwrap();
    for (url, expected, fragment) in [
        ("locks.db", 64, "no scheme"),
        ("db2://user:hunter2@host", 64, "\"db2\" is not known"),
        ("redis://user:hunter2@:x", 64, "cannot be parsed"),
        ("redis://user:hunter2@127.0.0.1:1/?ttl=1", 64, "unknown option \"ttl\""),
        ("redis://user:hunter2@127.0.0.1:1/", 69, "127.0.0.1:1"),
        ("sqlite:", 64, "no path"),
        ("sqlite:a.db?cache=shared&password=hunter2", 64, "unknown option \"cache\""),
        ("sqlite:a.db?mode=ro", 64, "the option mode is \"ro\""),
        ("sqlite:a.db?timeout=0s", 64, "timeout"),
        ("sqlite:missing/directory/a.db", 64, "missing/directory"),
        ("sqlite:.", 64, "directory"),
        ("sqlite:/dev/null", 64, "/dev/null"),
    ] {
        for line in ["run -n --store URL k -- echo ran", "status k --store URL"] {
            let output = store.output(&line.replace("URL", url));
            assert!(!text(&output.stderr).contains("hunter2"), "{url}");
            refused(&store, &output, expected, fragment);
        }
    }
    let mut none = leasehold("run --store-file empty k -- echo ran");
    refused(
        &store,
        &none.current_dir(store.file("")).output().unwrap(),
        64,
        "must contain one line",
    );
    let mut none = leasehold("run k -- echo ran");
    let output = none.env("LEASEHOLD_STORE", OsStr::from_bytes(b"a\xff")).output().unwrap();
    refused(&store, &output, 64, "LEASEHOLD_STORE is not UTF-8");
}

#[test]
fn init_prints_its_statements_without_a_server() {
    let store = Store::new();
    for (url, fragment) in [
        ("postgres://nowhere.invalid/app?schema=s1", "TABLE IF NOT EXISTS \"s1\".leases"),
        ("mysql://nowhere.invalid/s2", "CREATE TABLE IF NOT EXISTS `s2`.leasehold_leases"),
    ] {
        let output = store.output(&format!("init --print --store {url}"));
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains(fragment), "{}", text(&output.stdout));
    }
    let output = store.output("init --print");
    refused(&store, &output, 64, "the statements of a sqlite store cannot be shown");
}

#[test]
fn errors_are_json_on_request() {
    let store = Store::new();
    let output = store.output("run --json --kill-after 10s k -- echo ran");
    refused(&store, &output, 64, "\"kind\":\"invalid_input\",\"exit_code\":64,");
    let output = store.output("run --json k -- no-such-program-anywhere");
    refused(&store, &output, 127, "\"kind\":\"not_found\",\"exit_code\":127,");
}
