//! With too few processes, open files or bytes a run fails in one line with the cause, and holds and starts nothing.

use std::os::unix::fs::chown;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::support::{Running, Store, code, group, runs, shim_of, text, until};
use leasehold_testkit::all;
use nix::unistd::geteuid;

/// A store, and a command that a limit is set for.
struct Trial {
    store: Store,
    binary: PathBuf,
    /// Processes are counted by user, so that trial needs one that runs nothing else. Only root can become it.
    user: Option<u32>,
    option: &'static str,
    /// What the line reports of it.
    cause: &'static str,
}

impl Trial {
    fn new(option: &'static str, cause: &'static str, user: Option<u32>) -> Self {
        let store = Store::new();
        let mut binary = PathBuf::from(env!("CARGO_BIN_EXE_leasehold"));
        if user.is_some() {
            // It may not be allowed to enter the build directory.
            let copy = store.file("leasehold");
            std::fs::copy(&binary, &copy).unwrap();
            binary = copy;
            chown(store.file(""), user, user).unwrap();
        }
        Self { store, binary, user, option, cause }
    }

    /// The command, with a limit. One that hangs is killed.
    fn output(&self, limit: Option<u64>, line: &str) -> Output {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "20"]);
        if let Some(limit) = limit {
            command.args(["prlimit", &format!("--{}={limit}:{limit}", self.option)]);
        }
        command.arg(&self.binary).args(line.split_ascii_whitespace()).stdin(Stdio::null());
        crate::support::without_settings(&mut command);
        command.env("LEASEHOLD_STORE", self.store.url()).env("TMPDIR", self.store.file(""));
        command.current_dir(self.store.file(""));
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command.output().unwrap()
    }

    /// Walks from the smallest limit with which the program starts to the first with which a run succeeds.
    fn walk(&self, from: u64, next: impl Fn(u64) -> u64) {
        let ran = self.store.file("ran");
        let mut limits = std::iter::successors(Some(from), |limit| Some(next(*limit)));
        let mut failed = 0;
        loop {
            let limit = limits.next().unwrap();
            if !self.output(Some(limit), "--version").status.success() {
                continue;
            }
            let output = self.output(Some(limit), "run -n k -- touch ran");
            let stderr = text(&output.stderr);
            let outcome = format!("{} {limit}: {}: {stderr}", self.option, output.status);
            println!("{outcome}");
            match output.status.code() {
                Some(0) => {
                    assert!(ran.exists(), "{outcome}");
                    if stderr.is_empty() {
                        break;
                    }
                    // The release needed more than the grant.
                    assert!(stderr.starts_with("leasehold: not released"), "{outcome}");
                    std::fs::remove_file(&ran).unwrap();
                    assert_eq!(code(&self.output(None, "break k")), 0);
                }
                Some(69 | 70) => {
                    assert!(
                        stderr.starts_with("leasehold: ") && stderr.contains(self.cause),
                        "{outcome}"
                    );
                    assert_eq!(stderr.lines().count(), 1, "{outcome}");
                    assert!(
                        self.option != "nofile" || !stderr.contains(".rs:"),
                        "a panic: {outcome}"
                    );
                }
                // The allocator's own words.
                None | Some(134) => {
                    assert!(matches!(output.status.signal(), None | Some(6)), "{outcome}");
                    assert!(self.option == "as" && stderr.contains("memory"), "{outcome}");
                }
                Some(_) => panic!("{outcome}"),
            }
            assert!(!ran.exists(), "{outcome}");
            // Not held, or this would exit with 1.
            let next = self.output(None, "run -n k -- true");
            assert_eq!(code(&next), 0, "after {outcome}{}", text(&next.stderr));
            failed += 1;
        }
        assert!(failed > 0, "no limit was too small");
    }
}

#[test]
fn open_files() {
    Trial::new("nofile", "open files", None).walk(1, |limit| limit + 1);
}

#[test]
fn processes() {
    let id = std::process::id();
    if geteuid().is_root() {
        Trial::new("nproc", "(ulimit -u)", Some(100_000 + id)).walk(1, |limit| limit + 1);
    } else {
        let tasks = Command::new("ps").args(["-L", "-u", &geteuid().to_string()]).output().unwrap();
        let tasks = text(&tasks.stdout).lines().count();
        Trial::new("nproc", "(ulimit -u)", None)
            .walk(u64::try_from(tasks).unwrap(), |limit| limit + 1);
    }
}

#[test]
fn memory() {
    let step = if all() { 1 << 18 } else { 1 << 21 };
    Trial::new("as", "memory", None).walk(step, |limit| limit + step);
}

#[test]
fn the_size_of_a_file() {
    let step = if all() { 512 } else { 1 << 14 };
    Trial::new("fsize", "(ulimit -f)", None).walk(0, |limit| limit + step);
}

#[test]
fn a_shim_that_cannot_look_keeps_the_lock_until_it_can() {
    let store = Store::new();
    let script = "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 1; done' & read line; exit 7";
    let mut running = Running::start(store.script("--json -v -k 100ms k", script));
    let shim = shim_of(group(&running.event("started")));
    let left = running.line();
    let limit = |files: &str| {
        let mut command = Command::new("prlimit");
        command.args(["--pid", &shim.to_string(), &format!("--nofile={files}:")]);
        assert!(command.status().unwrap().success());
    };
    limit("3");
    running.close_stdin();
    running.event("leftovers");
    until("killed", || !runs(&left));
    assert!(store.is_held("k"));
    limit("100");
    running.event("released");
    assert_eq!(running.code(), 7);
}
