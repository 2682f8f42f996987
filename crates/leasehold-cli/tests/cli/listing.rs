//! list, status, break, purge, init.

use std::process::Stdio;

use crate::support::{Running, Store, code, group, hold, leasehold, runs, text, until};
use crate::terminal::Shell;
use serde_json::Value;

/// The keys that `list` shows with these options, in order.
fn listed(store: &Store, options: &str) -> Vec<String> {
    let output = store.output(&format!("list --json {options}"));
    assert_eq!(code(&output), 0, "{options}: {}", text(&output.stderr));
    let stdout = text(&output.stdout);
    let records = stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records.map(|record| record["key"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_filter_narrows() {
    let store = Store::new();
    let forever = hold(&store, "--ttl never report:a --comment monthly");
    let short = hold(&store, "--ttl 60s --key report:b:2 report:b:1");
    let shared = hold(&store, "--ttl 60s -s pool");
    // Expired but not purged.
    let expired = hold(&store, "--ttl 2s old");
    expired.crash();
    until("expired", || !store.is_held("old"));

    let all = ["pool", "report:a", "report:b:1", "report:b:2"];
    assert_eq!(listed(&store, ""), all);
    for (options, expected) in [
        ("--key report:a", &all[1..2]),
        ("--key report:a --key pool", &all[..2]),
        ("--prefix report:b", &all[2..]),
        ("--prefix report: --glob *:?", &all[1..]),
        ("--glob report:?", &all[1..2]),
        ("--mode shared", &all[..1]),
        ("--mode exclusive", &all[1..]),
        ("--host nowhere", &[]),
        ("--group nobody", &[]),
        ("--min-age 1h", &[]),
        ("--max-age 1h", &all),
        ("--min-left 1h", &all[1..2]),
        ("--max-left 1h --mode exclusive", &all[2..]),
        ("--min-left 1s --max-left 1h --mode shared", &all[..1]),
        ("--only-expired", &["old"]),
        ("--expired --key old --key pool", &["old", "pool"]),
    ] {
        assert_eq!(listed(&store, options), expected, "{options}");
    }

    let record = store.records("report:a").remove(0);
    assert_eq!(record["remaining_us"], Value::Null);
    assert_eq!((&record["comment"], &record["mode"]), (&"monthly".into(), &"exclusive".into()));
    assert_eq!(record["pid"], forever.pid().as_raw());
    let (lease, host) = (record["lease"].as_str().unwrap(), record["host"].as_str().unwrap());
    assert_eq!(listed(&store, &format!("--lease {lease}")), ["report:a"]);
    assert_eq!(listed(&store, &format!("--host {host}")), all);

    for running in [forever, short, shared] {
        assert_eq!(running.code(), 0);
    }
}

#[test]
fn tables_are_for_people() {
    let store = Store::new();
    assert_eq!(store.code("init"), 0);
    assert_eq!(text(&store.output("list").stdout), "");
    assert_eq!(text(&store.output("status k").stdout), "\"k\" is free\n");
    let holder = hold(&store, "k");
    for line in ["list", "status k"] {
        let table = text(&store.output(line).stdout);
        let rows: Vec<_> = table.lines().collect();
        assert_eq!(rows.len(), 2, "{table}");
        assert!(rows[0].contains("KEY") && rows[0].contains("LEASE"), "{table}");
        assert!(rows[1].contains(" exclusive ") && rows[1].contains("29s"), "{table}");
        assert!(!table.contains('\u{1b}'), "no control sequences");
    }
    assert_eq!(holder.code(), 0);
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
    let store = Store::new();
    let holder = hold(&store, "k");
    for line in ["list", "list --json", "status k", "purge", "init", "--help"] {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        drop(reader);
        let mut command = store.command(line);
        let output = command.stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(code(&output), 0, "{line}");
        assert_eq!(text(&output.stderr), "", "{line}");
    }
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = store.command("status k").stdout(full).output().unwrap();
    assert_eq!(code(&output), 70, "a full disk is one");
    assert_eq!(holder.code(), 0);
}

#[test]
fn break_ends_exactly_what_it_finds() {
    let store = Store::new();
    let one = hold(&store, "--ttl 4s -s k");
    let two = hold(&store, "--ttl 4s -s k");
    let other = hold(&store, "--ttl 4s other");

    let pid = one.pid().as_raw();
    let records = store.records("k");
    let record = records.iter().find(|record| record["pid"] == pid).unwrap();
    let lease = record["lease"].as_str().unwrap();
    let broken = store.json(&format!("break k --lease {lease} --reason test --json"));
    assert_eq!(broken["key"], "k");
    assert_eq!(broken["removed"].as_array().unwrap().len(), 1);
    assert_eq!(broken["removed"][0]["lease"], lease);
    assert_eq!(one.code(), 123);
    assert_eq!(store.records("k").len(), 1);

    let printed = text(&store.output("break k").stdout);
    assert!(printed.starts_with("broken: \"k\", held by sh, pid "), "{printed}");
    assert!(printed.contains(&format!("pid {}", two.pid())), "{printed}");
    assert_eq!(two.code(), 123);
    assert!(!store.is_held("k"));

    let printed = text(&store.output("break k").stdout);
    assert!(printed.starts_with("nothing was broken"), "{printed}");
    assert_eq!(store.json("break k --json")["removed"], Value::Array(Vec::new()));
    assert_eq!(other.code(), 0, "its lease was not touched");
}

#[test]
fn purge_removes_expired_records_in_batches() {
    let store = Store::new();
    let live = hold(&store, "a:live");
    for key in ["a:1", "a:2", "a:3", "b:1"] {
        let crashed = Running::start(store.script(&format!("--json -v --ttl 2s {key}"), "cat"));
        crashed.crash();
    }
    until("expired", || listed(&store, "--only-expired").len() == 4);
    let purged = store.json("purge --prefix a: --batch 2 --json");
    assert_eq!(purged["removed"], 3);
    assert!(purged["batches"].as_u64().unwrap() >= 2, "{purged}");
    assert_eq!(listed(&store, "--expired"), ["a:live", "b:1"]);
    let printed = text(&store.output("purge").stdout);
    assert!(printed.starts_with("removed 1 expired records"), "{printed}");
    assert_eq!(listed(&store, "--expired"), ["a:live"]);
    assert_eq!(live.code(), 0);
}

#[test]
fn init_prepares_and_may_be_repeated() {
    let store = Store::new();
    for _ in 0..2 {
        let prepared = store.json("init --json");
        assert_eq!(prepared["store"], "sqlite");
        assert!(prepared["hazards"].is_array());
        assert!(prepared["level"].as_str().unwrap().starts_with('L'));
    }
    let url = format!("sqlite:{}", store.file("locks.db").display());
    let from = "the environment variable LEASEHOLD_STORE";
    let ready = format!("the store sqlite is ready: {url}, from {from}\nlevel:     L");
    assert!(text(&store.output("init").stdout).starts_with(&ready));
}

#[test]
fn what_only_looks_at_a_store_creates_none() {
    let store = Store::new();
    let absent = store.file("mistyped.db");
    let quorum = format!("quorum:?node=sqlite:{}&node=sqlite:/absent/b.db", absent.display());
    for url in [format!("sqlite:{}", absent.display()), quorum] {
        for line in ["list", "status k", "leader k", "break k", "purge"] {
            let output = leasehold(line).args(["--store", &url]).output().unwrap();
            assert_eq!(code(&output), 64, "{line}: {}", text(&output.stderr));
            let fragment = format!("there is no store at {}", absent.display());
            assert!(text(&output.stderr).contains(&fragment), "{}", text(&output.stderr));
            assert!(!absent.exists(), "{line}");
        }
    }
}

#[test]
fn the_default_store_is_in_the_state_directory() {
    use std::os::unix::fs::PermissionsExt as _;

    let store = Store::new();
    for (variable, path) in [("XDG_STATE_HOME", "leasehold"), ("HOME", ".local/state/leasehold")] {
        let home = store.file(variable);
        std::fs::create_dir(&home).unwrap();
        let mut command = leasehold("run -n k -- true");
        // An empty setting counts as none.
        command.env_remove("XDG_STATE_HOME").env("LEASEHOLD_STORE", "").env(variable, &home);
        assert_eq!(code(&command.output().unwrap()), 0);
        let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(home.join(path)), 0o700);
        assert_eq!(mode(home.join(path).join("locks.db")), 0o600);
    }
    let no_home = store.file("no-home");
    let run = |state: Option<&std::path::Path>| {
        let mut command = leasehold("run -n k -- true");
        command.env_remove("XDG_STATE_HOME").env("LEASEHOLD_STORE", "").env("HOME", &no_home);
        command.envs(state.map(|state| ("XDG_STATE_HOME", state)));
        code(&command.output().unwrap())
    };
    assert_eq!(run(None), 64);
    assert!(!no_home.exists(), "it is not created");
    assert_eq!(
        run(Some(&store.file("XDG_STATE_HOME"))),
        0,
        "another state directory needs no home"
    );
}

#[test]
fn the_exit_code_of_status_states_whether_a_key_is_held() {
    let store = Store::new();
    let holder = hold(&store, "k");
    for (line, expected) in [("k", 0), ("free", 3), ("free k", 0), ("free other", 3)] {
        assert_eq!(store.code(&format!("status {line}")), expected, "{line}");
    }
    let printed = text(&store.output("status free k").stdout);
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 3, "{printed}");
    assert_eq!(lines[0], "\"free\" is free");
    assert!(lines[2].trim_start().starts_with("k "), "{printed}");
    let printed = text(&store.output("status free k --json").stdout);
    let held: Vec<Value> = printed
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["held"].clone())
        .collect();
    assert_eq!(held, [Value::Bool(false), Value::Bool(true)]);
    assert_eq!(holder.code(), 0);
    let unreachable = "status k --store redis://127.0.0.1:1/";
    assert_eq!(store.code(unreachable), 69, "neither held nor free");
}

#[test]
fn several_keys_are_broken_only_if_that_is_confirmed() {
    let store = Store::new();
    let held = ["a:1", "a:2", "b"].map(|key| hold(&store, key));
    for line in ["break a:1 b", "break --glob a:*"] {
        let refused = store.output(line);
        assert_eq!(code(&refused), 64, "{line}");
        assert!(text(&refused.stderr).contains("--yes"), "{}", text(&refused.stderr));
    }
    assert_eq!(listed(&store, ""), ["a:1", "a:2", "b"]);
    let broken = text(&store.output("break --glob a:* --yes").stdout);
    assert_eq!(broken.lines().count(), 2, "{broken}");
    assert!(
        broken.contains("its holder runs on until its next renewal, within about "),
        "{broken}"
    );
    assert_eq!(listed(&store, ""), ["b"]);
    assert_eq!(store.code("break --glob a:* --yes"), 3);
    assert_eq!(store.code("break a:1"), 3);
    let [one, two, other] = held;
    assert_eq!((one.code(), two.code(), other.code()), (123, 123, 0));
}

#[test]
fn on_a_terminal_a_break_is_confirmed() {
    let store = Store::new();
    let holder = hold(&store, "k");
    let mut shell = Shell::new(&store);
    shell.types("$LEASEHOLD break k; echo code $?\n");
    shell.sees(&format!("\"k\" is held by sh, pid {}", holder.pid()));
    shell.sees("break it? [y/N] ");
    shell.types("n\n");
    shell.sees("code 1");
    assert!(store.is_held("k"));
    shell.types("$LEASEHOLD break k; echo code $?\n");
    shell.sees("break it? [y/N] ");
    shell.types("y\n");
    shell.sees("broken: \"k\"");
    shell.sees("code 0");
    assert_eq!(holder.code(), 123);
}

#[test]
fn a_terminal_gets_short_lines_and_is_told_when_nothing_is_held() {
    let store = Store::new();
    assert_eq!(store.code("init"), 0);
    let mut shell = Shell::new(&store);
    shell.resizes(24, 120);
    shell.types("$LEASEHOLD list\n");
    shell.sees("nothing is held");
    let holder = hold(&store, &format!("k --comment {}", "c".repeat(100)));
    let lease = store.records("k")[0]["lease"].as_str().unwrap().to_owned();
    shell.types("$LEASEHOLD list\n");
    shell.sees(&format!(" {}… ", &lease[..8]));
    shell.sees("c…");
    shell.types("$LEASEHOLD list --wide\n");
    shell.sees(&lease);
    assert_eq!(holder.code(), 0);
}

#[test]
fn a_list_that_is_watched_shows_each_change() {
    let store = Store::new();
    assert_eq!(store.code("init"), 0);
    let watching = Running::start(store.command("list --watch=10ms"));
    assert_eq!(watching.line(), "nothing is held");
    let holder = hold(&store, "k");
    assert!(watching.line().trim_start().starts_with("KEY "));
    assert!(watching.line().trim_start().starts_with("k "));
    assert_eq!(holder.code(), 0);
    assert_eq!(watching.line(), "nothing is held");
    watching.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(watching.code(), 143);

    let watching = Running::start(store.command("list --watch=10ms --json"));
    assert_eq!(watching.line(), "[]");
    let holder = hold(&store, "k");
    let records: Value = serde_json::from_str(&watching.line()).unwrap();
    assert_eq!(records[0]["key"], "k");
    assert_eq!(holder.code(), 0);
}

/// The holder cannot learn of the break: its `leasehold` is stopped.
#[test]
fn a_break_that_waits_returns_when_the_command_is_dead() {
    let store = Store::new();
    let holder = hold(&store, "--ttl 3s k");
    let command = group(&holder.event("started")).to_string();
    holder.signal(nix::sys::signal::Signal::SIGSTOP);
    let broken = store.output("break k --wait");
    assert_eq!(code(&broken), 0);
    assert!(!runs(&command));
    holder.signal(nix::sys::signal::Signal::SIGCONT);
    assert_eq!(holder.code(), 123);
    assert_eq!(store.code("break k --wait"), 3, "at once");
    let holder = hold(&store, "--ttl never k");
    assert_eq!(store.code("break k --wait"), 64);
    assert!(store.is_held("k"), "it is not broken");
    assert_eq!(holder.code(), 0);
}
