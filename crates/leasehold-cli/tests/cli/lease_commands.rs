//! A hold without a command: `acquire`, `adopt`, `renew`, `release`, `held` and `wait`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use serde_json::Value;

use crate::support::{Running, Store, code, hold, now, text, until};

fn json(command: &mut Command) -> Value {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Through every step, on any store.
pub(crate) fn a_lease_goes_from_process_to_process(command: impl Fn(&str) -> Command) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.lease");
    let on_file = |verb: &str| {
        let mut command = command(verb);
        command.arg(&file).stdin(Stdio::null());
        command
    };
    let exit = |mut command: Command| code(&command.stdin(Stdio::null()).output().unwrap());

    assert_eq!(exit(on_file("acquire --ttl 50s a -o")), 0);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(exit(command("run -n a -- true")), 1);
    assert_eq!(exit(on_file("held")), 0);
    let left = json(&mut on_file("renew --json"))["remaining_us"].as_u64().unwrap();
    assert!(left > 40_000_000, "{left}");
    assert_eq!(exit(command("wait -w 0.01 a")), 124);
    let waiting = Running::start(command("wait -w 60 a --json -v"));
    waiting.event("waiting");
    assert_eq!(exit(on_file("release")), 0);
    assert_eq!(waiting.code(), 0);
    assert!(!file.exists());
    assert_eq!(exit(on_file("acquire --ttl 50s a -o")), 0, "the same file again");
    let lease = std::fs::read(&file).unwrap();
    assert_eq!(exit(command("break a")), 0);
    for verb in ["held", "renew", "release"] {
        std::fs::write(&file, &lease).unwrap();
        assert_eq!(exit(on_file(verb)), 123, "{verb}");
    }
    assert_eq!(exit(command("run -n a -- true")), 0);

    assert_eq!(exit(on_file("acquire --ttl 50s a -o")), 0);
    let script = |script: &str| {
        let mut adopting = on_file("adopt");
        adopting.args(["--", "sh", "-c", script]);
        adopting
    };
    let adopting = script("[ \"$LEASEHOLD_KEY\" = a ] || exit 1; exit 9");
    assert_eq!(exit(adopting), 9);
    assert!(!file.exists(), "it is taken over");
    assert_eq!(exit(command("run -n a -- true")), 0, "it is released");
    std::fs::write(&file, &lease).unwrap();
    assert_eq!(exit(script("true")), 123);
    assert!(file.exists());
    std::fs::remove_file(&file).unwrap();

    let mut watched = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let line = format!("acquire --ttl 5s --keep-alive {} a -o", watched.id());
    assert_eq!(exit(on_file(&line)), 0);
    assert_eq!(json(&mut command("why a --json"))["holders"][0]["pid"], watched.id());
    // Longer than its TTL.
    let late = now() + Duration::from_secs(6);
    until("renewed", || exit(on_file("held")) == 0 && now() > late);
    watched.kill().unwrap();
    let ended = now();
    until("released", || exit(on_file("held")) == 123);
    assert!(now() - ended < Duration::from_secs(3), "{:?}", now() - ended);
    watched.wait().unwrap();
}

#[test]
fn on_sqlite() {
    let store = Store::new();
    a_lease_goes_from_process_to_process(|line| store.command(line));
}

/// A link stays, as `/dev/stdin` is one.
#[test]
fn release_removes_a_file_and_nothing_else() {
    let store = Store::new();
    for linked in [false, true] {
        let (file, link) = (store.file("a.lease"), store.file("link"));
        let mut command = store.command("acquire k -o");
        assert_eq!(code(&command.arg(&file).output().unwrap()), 0);
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut command = store.command("release");
        command.arg(if linked { &link } else { &file });
        assert_eq!(code(&command.output().unwrap()), 0);
        assert_eq!(file.exists(), linked);
        std::fs::remove_file(&link).unwrap();
    }
}

/// Of a process that has ended, of a store in its own process, and where nobody takes the lease.
#[test]
fn what_cannot_be_kept_alive_is_not_held() {
    let store = Store::new();
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let line = format!("acquire --keep-alive {} k", ended.id());
    let refused = store.output(&line);
    assert_eq!(code(&refused), 64);
    assert!(text(&refused.stderr).contains("no such process"), "{}", text(&refused.stderr));
    let line = format!("acquire --keep-alive {} k", std::process::id());
    assert_eq!(store.code(&format!("{line} --store sqlite::memory:")), 64);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(code(&store.command(&line).stdout(full).output().unwrap()), 70);
    assert!(!store.is_held("k"));
}

/// The processes that keep leases of this store alive, in `/proc`.
fn keepers(store: &Store) -> Vec<PathBuf> {
    let directory = store.database().parent().unwrap().to_string_lossy().into_owned();
    let is_one = |process: &PathBuf| {
        let read = |file| std::fs::read(process.join(file)).unwrap_or_default();
        let environment = String::from_utf8_lossy(&read("environ")).into_owned();
        read("cmdline").starts_with(b"lh-keep") && environment.contains(&directory)
    };
    std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()).filter(is_one).collect()
}

/// Also if it is killed before anybody has the lease.
#[test]
fn a_lease_that_nobody_got_is_not_kept_alive() {
    let store = Store::new();
    assert_eq!(store.code("init"), 0);
    let (reader, writer) = nix::unistd::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    while nix::unistd::write(&writer, &[0; 4_096]).is_ok() {}
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
    let line = format!("acquire --ttl 1h --keep-alive {} k", std::process::id());
    let mut acquiring = store.command(&line).stdout(writer).spawn().unwrap();
    // It writes to a pipe that is full.
    until("kept alive", || keepers(&store).len() == 1);
    until("held", || store.is_held("k"));
    acquiring.kill().unwrap();
    acquiring.wait().unwrap();
    until("released", || !store.is_held("k"));
    drop(reader);
}

/// The lock of a script, which its children have open, is not held by a process that outlives them.
#[test]
fn what_keeps_a_lease_alive_has_no_file_of_the_script() {
    let store = Store::new();
    let script = "exec 9> lock; flock 9; $LEASEHOLD acquire --keep-alive $0 k > /dev/null";
    let mut command = Command::new("sh");
    command.args(["-c", script, &std::process::id().to_string()]);
    command.current_dir(store.file("")).env("TMPDIR", store.database().parent().unwrap());
    command.env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold")).env("LEASEHOLD_STORE", store.url());
    assert!(command.status().unwrap().success());
    assert_eq!(keepers(&store).len(), 1);
    let free = Command::new("flock").args(["-n"]).arg(store.file("lock")).arg("true").status();
    assert!(free.unwrap().success());
    assert_eq!(store.code("break k"), 0);
}

#[test]
fn release_ends_the_process_that_keeps_a_lease_alive() {
    let store = Store::new();
    let file = store.file("a.lease");
    let line = format!("acquire --ttl 3s --keep-alive {} k -o", std::process::id());
    assert_eq!(code(&store.command(&line).arg(&file).output().unwrap()), 0);
    assert_eq!(keepers(&store).len(), 1);
    assert_eq!(code(&store.command("release").arg(&file).output().unwrap()), 0);
    assert_eq!(store.code("run -n k -- true"), 0);
    until("ended", || keepers(&store).is_empty());
}

/// Neither its arguments nor its environment name the store.
#[test]
fn the_process_that_keeps_a_lease_alive_hides_the_store() {
    let store = Store::with_options("?timeout=7s");
    let line = format!("acquire --ttl 30s --keep-alive {} k", std::process::id());
    let lease = json(&mut store.command(&line));
    let keeper = keepers(&store).remove(0);
    for file in ["cmdline", "environ"] {
        let shown = std::fs::read(keeper.join(file)).unwrap();
        assert!(!String::from_utf8_lossy(&shown).contains("timeout=7s"), "{file}");
    }
    let mut release = store.command("release -");
    release.stdin(Stdio::piped());
    let mut release = release.spawn().unwrap();
    serde_json::to_writer(release.stdin.take().unwrap(), &lease).unwrap();
    assert!(release.wait().unwrap().success());
}

#[test]
fn acquire_prints_the_lease_for_a_script() {
    let store = Store::new();
    let script = "lease=$($LEASEHOLD acquire --ttl 5m k) && echo $$ && \
                  echo \"$lease\" | $LEASEHOLD held - && echo \"$lease\" | $LEASEHOLD release -";
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"));
    let output = command.env("LEASEHOLD_STORE", store.url()).output().unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("held: 4m "), "{}", text(&output.stdout));
    assert!(!store.is_held("k"));
}

#[test]
fn the_holder_is_the_process_for_which_it_is_acquired() {
    let store = Store::new();
    let lease = json(&mut store.command("acquire --ttl 5m k other --comment by-hand"));
    assert_eq!(lease["claims"].as_array().unwrap().len(), 2);
    let record = store.records("k").remove(0);
    assert_eq!(record["pid"], std::process::id());
    assert_eq!((&record["comment"], &record["lease"]), (&"by-hand".into(), &lease["id"]));
}

#[test]
fn what_cannot_be_handed_over_is_not_held() {
    let store = Store::new();
    let file = store.file("there");
    std::fs::write(&file, "").unwrap();
    let mut command = store.command("acquire k -o");
    assert_eq!(code(&command.arg(&file).output().unwrap()), 64, "it exists");
    let mut command = store.command("acquire k -o /nonexistent/lease");
    assert_eq!(code(&command.output().unwrap()), 70);
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(code(&store.command("acquire k").stdout(full).output().unwrap()), 70);
    let (reader, writer) = nix::unistd::pipe().unwrap();
    drop(reader);
    assert_eq!(code(&store.command("acquire k").stdout(writer).output().unwrap()), 70);
    assert!(!store.is_held("k"));
}

/// A script takes 0 for a lock that it has.
#[test]
fn acquire_never_exits_with_0_without_the_lock() {
    let store = Store::new();
    let holder = hold(&store, "k");
    for (line, expected) in
        [("-n", 1), ("-w 0.5", 124), ("-n -E 75", 75), ("-n -E 0", 64), ("--skip", 64)]
    {
        assert_eq!(store.code(&format!("acquire k {line}")), expected, "{line}");
    }
    let mut command = store.command("acquire k -n");
    let output = command.env("LEASEHOLD_CONFLICT_EXIT_CODE", "0").output().unwrap();
    assert_eq!(code(&output), 64);
    assert_eq!(holder.code(), 0);
}

#[test]
fn a_signal_ends_the_wait_of_acquire_and_nothing_stays_held() {
    let store = Store::new();
    assert_eq!(store.code("init"), 0);
    let others = store.lock_out();
    let waiting = Running::start(store.command("acquire k --ttl never --json -v"));
    waiting.event("asking");
    waiting.signal(nix::sys::signal::Signal::SIGTERM);
    drop(others);
    assert_eq!(waiting.code(), 143);
    assert!(!store.is_held("k"));
}

#[test]
fn a_lease_that_cannot_be_read_is_refused() {
    let store = Store::new();
    let file = store.file("bad");
    for text in ["", "{}", "{\"version\":2}", "lease"] {
        std::fs::write(&file, text).unwrap();
        for verb in ["renew", "release", "held"] {
            let mut command = store.command(verb);
            assert_eq!(code(&command.arg(&file).output().unwrap()), 64, "{verb} {text}");
        }
    }
    assert_eq!(store.code("held /nonexistent"), 64);
    let none = store.output("held");
    assert_eq!(code(&none), 64);
    assert!(text(&none.stderr).contains("LEASEHOLD_LEASE_FILE is not set"));
}

/// `test` of a command for its own lock.
#[test]
fn a_command_asks_whether_it_still_holds_its_lock() {
    let store = Store::new();
    let script =
        "$LEASEHOLD held; echo $?; $LEASEHOLD break k > /dev/null; $LEASEHOLD held; echo $?";
    let mut command = store.script("--on-lost ignore k", script);
    let output = command.env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold")).output().unwrap();
    let printed = text(&output.stdout);
    let lines: Vec<_> = printed.lines().collect();
    assert!(lines[0].starts_with("held: "), "{printed}");
    assert_eq!(lines[1..], ["0", "not held", "123"], "{printed}");
}

#[test]
fn a_wait_ends_when_the_last_key_is_free() {
    let store = Store::new();
    assert_eq!(store.code("wait k"), 64, "there is no store yet");
    let (one, two) = (hold(&store, "one"), hold(&store, "--shared two"));
    let waiting = Running::start(store.command("wait two one --json -v"));
    assert_eq!(waiting.event("waiting")["holder"]["program"], "sh");
    assert_eq!(one.code(), 0);
    assert_eq!(store.code("wait -w 0.05 one two"), 124);
    assert_eq!(two.code(), 0);
    assert_eq!(waiting.code(), 0);
    assert_eq!(store.code("wait one two"), 0);
    assert_eq!(store.code("wait one --store redis://127.0.0.1:1/"), 69);
}

/// The idiom of GUIDE.md.
#[test]
fn a_script_locks_itself() {
    let store = Store::new();
    let script = store.file("self.sh");
    let body = "#!/bin/sh\n[ \"$LEASEHOLD_KEY\" = self ] || exec $LEASEHOLD run -n self -- \"$0\" \"$@\"\n\
                $LEASEHOLD status self > /dev/null && echo \"held, with $1\"\n";
    // By another process: what this one has open for writing, another test's child may have open too.
    let mut writer = Command::new("sh");
    writer.args(["-c", "printf %s \"$1\" > \"$0\" && chmod 700 \"$0\""]).arg(&script).arg(body);
    assert!(writer.status().unwrap().success());
    let mut command = Command::new(&script);
    command.arg("an argument").env("LEASEHOLD_STORE", store.url());
    command.env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"));
    let output = command.output().unwrap();
    assert_eq!(text(&output.stdout), "held, with an argument\n", "{}", text(&output.stderr));
}
