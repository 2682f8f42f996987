//! `examples/leader.rs`, run as separate processes.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

#[path = "../../examples/leader.rs"]
#[allow(dead_code, reason = "its main is the example's")]
mod leader;

const NAME: &str =
    "election_example::when_the_leader_is_killed_the_other_takes_over_and_resigns_at_ctrl_c";

/// Set for the processes that run the example: the store and the name of the candidate, one per line.
const ARGUMENTS: &str = "LEASEHOLD_TEST_ARGUMENTS";

/// Long enough for one to lead until the next has started, on a busy machine too.
const TTL: Duration = Duration::from_secs(5);

struct Running {
    process: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(id: &str, folder: &Path) -> Self {
        let store = format!("sqlite:{}", folder.join("leader.db").display());
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(ARGUMENTS, format!("{store}\n{id}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, lines) = channel();
        let output = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                send.send(line).unwrap_or_default();
            }
        });
        Self { process, lines }
    }

    /// Waits for a line that contains this, and returns the line from there on.
    fn prints(&self, what: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(60));
            let line = line.unwrap_or_else(|_| panic!("never printed: {what}"));
            if let Some(at) = line.find(what) {
                return line[at..].to_owned();
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.process.kill().unwrap_or_default();
        self.process.wait().map(drop).unwrap_or_default();
    }
}

#[test]
fn when_the_leader_is_killed_the_other_takes_over_and_resigns_at_ctrl_c() {
    if let Ok(arguments) = std::env::var(ARGUMENTS) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (store, id) = arguments.split_once('\n').unwrap();
        return runtime.block_on(leader::stand(store, id, TTL)).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let token = |line: String| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let mut first = Running::start("one", folder.path());
    let before = token(first.prints("one works, with the token "));
    let mut second = Running::start("two", folder.path());
    second.prints("two follows one");
    first.process.kill().unwrap();
    let after = token(second.prints("two works, with the token "));
    assert!(after > before);

    let third = Running::start("three", folder.path());
    third.prints("three follows two");
    kill(Pid::from_raw(second.process.id().try_into().unwrap()), Signal::SIGINT).unwrap();
    second.prints("two has resigned");
    assert!(second.process.wait().unwrap().success());
    assert!(token(third.prints("three works, with the token ")) > after);
}
