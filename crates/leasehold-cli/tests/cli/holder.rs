//! Who holds a key: what a refusal, a wait and a break state.

use serde_json::Value;

use crate::support::{Running, Store, code, hold, text};
use crate::terminal::Shell;

/// The last line of what it prints to stderr, which is JSON.
fn error(store: &Store, line: &str) -> Value {
    let printed = text(&store.output(line).stderr);
    serde_json::from_str(printed.lines().last().unwrap()).unwrap()
}

#[test]
fn a_refusal_states_who_holds_the_key_since_when_and_until_when() {
    let store = Store::new();
    let holder = hold(&store, "k --comment nightly");
    let refused = text(&store.output("run -n k -- true").stderr);
    let begins = format!("leasehold: \"k\" is held by sh, pid {} on ", holder.pid());
    assert!(refused.starts_with(&begins), "{refused}");
    assert!(refused.contains(", since 20") && refused.contains("Z ("), "{refused}");
    assert!(refused.contains(", until 20") && refused.contains(" unless renewed ("), "{refused}");
    assert!(refused.ends_with(": nightly\n"), "{refused}");

    let refused = error(&store, "run -n k --json -- true");
    assert_eq!((&refused["event"], &refused["kind"]), (&"error".into(), &"held".into()));
    assert_eq!((&refused["key"], &refused["tries"]), (&"k".into(), &1.into()));
    let record = &refused["holder"];
    assert_eq!(record["program"], "sh");
    assert_eq!(record["pid"], holder.pid().as_raw());
    assert_eq!(record["comment"], "nightly");
    assert!(record["age_us"].is_u64() && record["remaining_us"].is_u64(), "{record}");

    let late = error(&store, "run -w 500ms k --json -- true");
    assert_eq!((&late["kind"], &late["holder"]["program"]), (&"timed_out".into(), &"sh".into()));
    assert!(late["waited_us"].as_u64() >= Some(400_000), "{late}");
    let late = text(&store.output("run -w 500ms k -- true").stderr);
    assert!(late.starts_with(&begins) && late.contains("; waited "), "{late}");
    assert_eq!(holder.code(), 0);
}

#[test]
fn a_key_that_is_only_kept_is_said_to_be() {
    let store = Store::new();
    assert_eq!(store.code("run --min-hold 1h k -- true"), 0);
    let refused = text(&store.output("run -n k -- true").stderr);
    let begins = "leasehold: \"k\" is kept after the lease of true, pid ";
    assert!(
        refused.starts_with(begins)
            && refused.contains("(--min-hold, --once-per, --lock-delay or --supersede), "),
        "{refused}"
    );
    assert!(!refused.contains("unless renewed"), "{refused}");
    assert_eq!(error(&store, "run -n k --json -- true")["holder"]["kept"], true);
}

/// The name alone: an argument may be a password.
#[test]
fn the_program_of_a_holder_is_its_command_without_its_arguments() {
    let store = Store::new();
    let mut command = store.command("run k --json -v --");
    command.args(["/bin/sh", "-c", "echo held; cat", "secret"]);
    let holder = Running::start(command);
    assert_eq!(holder.line(), "held");
    assert_eq!(store.records("k")[0]["program"], "/bin/sh");
    assert!(!store.json("status k --json").to_string().contains("secret"));
    assert_eq!(holder.code(), 0);

    let mut command = store.command("elect e --json -v --");
    command.args(["sh", "-c", "echo leading; cat"]);
    let leader = Running::start(command);
    assert_eq!(leader.line(), "leading");
    assert_eq!(store.json("leader e --json")["leader"]["program"], "sh");
    assert_eq!(leader.code(), 0);
}

#[test]
fn a_wait_states_each_holder() {
    let store = Store::new();
    let first = hold(&store, "--shared k");
    let waits = Running::start(store.command("run k --json -v -- true"));
    let named = |waiting: &Value| waiting["holder"]["pid"].as_i64();
    let pid = |holder: &Running| Some(i64::from(holder.pid().as_raw()));
    assert_eq!(named(&waits.event("waiting")), pid(&first));
    let second = hold(&store, "--shared k");
    assert_eq!(first.code(), 0);
    assert_eq!(named(&waits.event("waiting")), pid(&second));
    assert_eq!(second.code(), 0);
    assert_eq!(waits.code(), 0);
}

#[test]
fn a_wait_on_a_terminal_says_who_holds_the_key() {
    let store = Store::new();
    let holder = hold(&store, "k");
    let mut shell = Shell::new(&store);
    shell.types("run k -- echo in\n");
    shell.sees(&format!("waiting for \"k\": \"k\" is held by sh, pid {}", holder.pid()));
    assert_eq!(holder.code(), 0);
    shell.sees("in");
}

/// Only what fails is said there without `-v`.
#[test]
fn a_wait_in_a_pipe_says_nothing() {
    let store = Store::new();
    let holder = hold(&store, "k");
    let late = store.output("run -w 1500ms k --json -- true");
    assert_eq!(code(&late), 124);
    assert_eq!(text(&late.stderr).lines().count(), 1, "{}", text(&late.stderr));
    assert_eq!(holder.code(), 0);
}

#[test]
fn a_break_states_whom_it_broke() {
    let store = Store::new();
    let holder = hold(&store, "k");
    let printed = text(&store.output("break k").stdout);
    let begins = format!("broken: \"k\", held by sh, pid {} on ", holder.pid());
    assert!(printed.starts_with(&begins), "{printed}");
    assert_eq!(holder.code(), 123);
}

#[test]
fn why_states_all_that_is_known_of_the_holder() {
    let store = Store::new();
    assert_eq!(store.code("init"), 0);
    let free = store.output("why k");
    assert_eq!((code(&free), text(&free.stdout)), (3, "\"k\" is free\n".to_owned()));
    let holder = hold(&store, "k");
    let why = store.json("why k --json");
    assert_eq!((&why["key"], &why["held"]), (&"k".into(), &true.into()));
    let (lease, token) = (&why["holders"][0]["lease"], &why["holders"][0]["token"]);
    assert_eq!(why["holders"][0]["process"], "running");
    let printed = text(&store.output("why k").stdout);
    let lines: Vec<_> = printed.lines().collect();
    assert!(lines[0].starts_with("\"k\" is held by sh, pid "), "{printed}");
    let rows = [
        "  mode:    exclusive".to_owned(),
        format!("  lease:   {}", lease.as_str().unwrap()),
        format!("  token:   {token}"),
        "  process: running, on this machine".to_owned(),
    ];
    assert_eq!(lines[1..], rows);
    assert_eq!(holder.code(), 0);
    let script = "$LEASEHOLD acquire --ttl 1h k > /dev/null";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &format!("{script}; true")]);
    command.env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold")).env("LEASEHOLD_STORE", store.url());
    assert!(command.status().unwrap().success());
    assert_eq!(store.json("why k --json")["holders"][0]["process"], "gone");
}
