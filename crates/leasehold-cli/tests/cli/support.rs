//! What the tests share: a store, and the built command on it.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs::{File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use leasehold::store::{Clock as _, SystemClock};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything takes: a longer wait is a failure.
const LIMIT: Duration = Duration::from_secs(60);

/// A SQLite file in its own directory, which tests also use for their files.
pub(crate) struct Store {
    directory: TempDir,
    options: &'static str,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self::with_options("")
    }

    /// With options in its URL, as in `?timeout=1s`.
    pub(crate) fn with_options(options: &'static str) -> Self {
        Self { directory: tempfile::tempdir().unwrap(), options }
    }

    /// With options that would not leave a slow disk the time to make the file: it is made without them.
    pub(crate) fn prepared(options: &'static str) -> Self {
        let mut store = Self::new();
        assert_eq!(store.code("init"), 0);
        store.options = options;
        store
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.file("locks.db")
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}{}", self.database().display(), self.options)
    }

    /// The path of a file beside the database.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A named pipe through which a test lets a command continue.
    pub(crate) fn fifo(&self, name: &str) -> PathBuf {
        let path = self.file(name);
        mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        path
    }

    /// The command with these arguments, one to a word, on this store.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = leasehold(line);
        let directory = self.directory.path();
        // A killed command leaves its lease file there.
        command.env("LEASEHOLD_STORE", self.url()).env("TMPDIR", directory).current_dir(directory);
        command
    }

    /// `leasehold run`, with a shell script as its command.
    pub(crate) fn script(&self, line: &str, script: &str) -> Command {
        let mut command = self.command(&format!("run {line} --"));
        command.args(["sh", "-c", script]);
        command
    }

    /// Runs the command to its end.
    pub(crate) fn output(&self, line: &str) -> Output {
        self.command(line).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs the command to its end and returns its exit code.
    pub(crate) fn code(&self, line: &str) -> i32 {
        code(&self.output(line))
    }

    /// The command's output, which is JSON.
    pub(crate) fn json(&self, line: &str) -> Value {
        let output = self.output(line);
        // 3: nobody holds it.
        assert!([0, 3].contains(&code(&output)), "{line}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The live records of a key.
    pub(crate) fn records(&self, key: &str) -> Vec<Value> {
        let status = self.json(&format!("status {key} --json"));
        let records = status["records"].as_array().unwrap().clone();
        assert_eq!(status["held"], !records.is_empty());
        records
    }

    pub(crate) fn is_held(&self, key: &str) -> bool {
        !self.records(key).is_empty()
    }

    /// The runtime folders of runs.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.directory.path()).unwrap();
        let is_one = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("leasehold-"))
        };
        entries.map(|entry| entry.unwrap().path()).filter(is_one).collect()
    }

    /// Keeps others from the database until it is dropped.
    pub(crate) fn lock_out(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.database()).unwrap();
        connection.busy_timeout(LIMIT).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        connection
    }
}

/// The built command, without this process's settings and without the signals that the caller of the tests ignores
/// (as `nohup` and `&` do).
pub(crate) fn leasehold(line: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_leasehold")]);
    command.args(line.split_ascii_whitespace());
    without_settings(&mut command);
    command
}

/// Removes the variables of this process that set something.
pub(crate) fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"LEASEHOLD_") {
            command.env_remove(name);
        }
    }
}

/// A running command: its stdout by lines, its events from stderr.
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    events: Receiver<String>,
}

impl Running {
    /// Starts it; it should have been given `--json -v`.
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        Self {
            stdin: child.stdin.take(),
            lines: lines(child.stdout.take().unwrap()),
            events: lines(child.stderr.take().unwrap()),
            child,
        }
    }

    /// The next line of stdout.
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(LIMIT).expect("a line")
    }

    /// The next line of stdout; `None` once it is closed.
    pub(crate) fn next_line(&self) -> Option<String> {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("it prints nothing more, and does not end"),
        }
    }

    /// Waits for this event.
    pub(crate) fn event(&self, name: &str) -> Value {
        loop {
            match self.next_event() {
                Some(event) if event["event"] == name => return event,
                Some(_) => {}
                None => panic!("it ended without {name}"),
            }
        }
    }

    /// The next event, whatever it is.
    pub(crate) fn some_event(&self) -> Value {
        self.next_event().expect("it tells something")
    }

    /// Waits until the lease has just been renewed, so that a stop does not find the store's file locked; needs
    /// `-vv`.
    pub(crate) fn renewed_now(&self) {
        while self.events.try_recv().is_ok() {}
        self.event("renewed");
    }

    /// The names of all further events, until it ends.
    pub(crate) fn events(&self) -> Vec<String> {
        std::iter::from_fn(|| self.next_event())
            .map(|event| event["event"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The names of all events from this one on, until it ends.
    pub(crate) fn events_from(&self, name: &str) -> Vec<String> {
        self.event(name);
        let mut names = self.events();
        names.insert(0, name.to_owned());
        names
    }

    /// The next event; `None` once it has ended.
    pub(crate) fn next_event(&self) -> Option<Value> {
        loop {
            match self.events.recv_timeout(LIMIT) {
                // Other text on the command's stderr, such as a shell's about its children.
                Ok(line) if line.starts_with('{') => return serde_json::from_str(&line).unwrap(),
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("it prints nothing more, and does not end")
                }
            }
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Kills it and its shim, so that nobody is left to release the lock. The command has started, and that event was not read
    /// yet.
    pub(crate) fn crash(&self) {
        self.crash_with(shim_of(group(&self.event("started"))));
    }

    /// The same, with its shim. Neither notices that the other is dead: a stopped process runs again when its parent dies,
    /// so the shim is first.
    pub(crate) fn crash_with(&self, shim: Pid) {
        self.signal(Signal::SIGSTOP);
        kill(shim, Signal::SIGSTOP).unwrap();
        kill(shim, Signal::SIGKILL).unwrap();
        self.signal(Signal::SIGKILL);
        until("killed", || !runs(&shim.to_string()));
    }

    /// Ends a command that reads its stdin.
    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for its end; returns its exit code, as a shell reports it.
    pub(crate) fn code(mut self) -> i32 {
        self.exit_code()
    }

    /// The same, if the rest is still needed.
    pub(crate) fn exit_code(&mut self) -> i32 {
        self.close_stdin();
        let mut status = None;
        until("ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let status = status.unwrap();
        status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap()
    }
}

impl Drop for Running {
    /// Leaves nothing behind when a test fails.
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Starts a command that holds `key` until its stdin is closed.
pub(crate) fn hold(store: &Store, line: &str) -> Running {
    let running = Running::start(store.script(&format!("--json -v {line}"), "echo held; cat"));
    assert_eq!(running.line(), "held");
    running
}

/// The process group that a `started` event names.
pub(crate) fn group(started: &Value) -> Pid {
    Pid::from_raw(i32::try_from(started["pid"].as_i64().unwrap()).unwrap())
}

pub(crate) fn signal_group(group: Pid, signal: Signal) {
    killpg(group, signal).unwrap();
}

/// True if the process runs; false for a zombie.
pub(crate) fn runs(pid: &str) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// True if a signal has stopped the process.
pub(crate) fn is_stopped(pid: &str) -> bool {
    state(pid) == Some('T')
}

/// The shim: the parent of the command.
pub(crate) fn shim_of(command: Pid) -> Pid {
    let stat = stat(&command.to_string()).expect("the command has not been reaped");
    Pid::from_raw(stat.split_whitespace().nth(1).unwrap().parse().unwrap())
}

/// Waits until this holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let from = now();
    while !holds() {
        assert!(now() - from < LIMIT, "not {what}");
        pause(Duration::from_millis(5));
    }
}

fn state(pid: &str) -> Option<char> {
    stat(pid)?.chars().next()
}

/// The state of a process and what follows it in `/proc`.
fn stat(pid: &str) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
    Some(stat.rsplit_once(") ").unwrap().1.to_owned())
}

/// Lets the reader of the pipe continue.
pub(crate) fn release(fifo: &Path) {
    File::options().write(true).open(fifo).unwrap().write_all(b"go\n").unwrap();
}

/// Sets the permissions of a file or directory.
pub(crate) fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Time on a clock that never steps.
pub(crate) fn now() -> Duration {
    SystemClock::new().now()
}

/// For what only time can show.
pub(crate) fn pause(duration: Duration) {
    let (_keep, never) = channel::<()>();
    assert_eq!(never.recv_timeout(duration), Err(RecvTimeoutError::Timeout));
}

/// The exit code of a command that has told its failure, if any, in a short line.
pub(crate) fn code(output: &Output) -> i32 {
    for line in text(&output.stderr).lines() {
        assert!(told(line) <= LONGEST_MESSAGE, "too long, {} characters: {line}", told(line));
    }
    output.status.code().expect("no signal ends leasehold itself")
}

/// The longest message, in characters, beside what the user has given.
const LONGEST_MESSAGE: usize = 200;

/// How many characters a message of `leasehold` has beside quotes, paths and what each node of a quorum reports.
fn told(line: &str) -> usize {
    let Some(message) = line.strip_prefix("leasehold: ") else { return 0 };
    let message = message.split(" nodes ").next().unwrap_or_default();
    let words = message.split('"').step_by(2).flat_map(|unquoted| unquoted.split(' '));
    words.filter(|word| !word.contains("/tmp/")).map(|word| word.chars().count() + 1).sum()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn lines(source: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(source).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}
