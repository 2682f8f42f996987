use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{Failure, Result};

/// A server that a test has started. It ends with this value, after a panic too, and if the test's own process is
/// killed: a shell that waits for that kills it.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    shell: Child,
    /// While this is open the server lives.
    leash: Option<ChildStdin>,
}

/// Prints the server's process id, waits until its own standard input ends, and kills the server.
const KEEPER: &str =
    "\"$@\" </dev/null >>server.log 2>&1 & echo $!; read -r line; kill -KILL $! 2>&-; wait $! 2>&-";

impl Process {
    /// Starts `program` in `directory`, where its output goes to `server.log`.
    ///
    /// # Errors
    /// If there is no shell. That the program does not start is seen when it cannot be reached.
    pub fn start<A: AsRef<OsStr>>(
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = A>,
        directory: &Path,
    ) -> Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", KEEPER, "sh"])
            .arg(program)
            .args(arguments)
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let leash = shell.stdin.take();
        let mut line = String::new();
        if let Some(stdout) = shell.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let pid = line.trim().parse().map_err(|_| Failure::new("the shell named no process"))?;
        Ok(Self { pid: Pid::from_raw(pid), shell, leash })
    }

    /// The server's process id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Stops the server, as SIGSTOP does: connections stay open and nothing is answered. When this returns, it does
    /// nothing any more.
    ///
    /// # Errors
    /// If it has ended.
    pub fn pause(&self) -> Result<()> {
        kill(self.pid, Signal::SIGSTOP)?;
        while !self.is_stopped()? {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Whether every thread stands still; the signal reaches them one by one.
    fn is_stopped(&self) -> Result<bool> {
        for thread in Path::new("/proc").join(self.pid.to_string()).join("task").read_dir()? {
            let stat = std::fs::read_to_string(thread?.path().join("stat"))?;
            let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            if state != Some('T') {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets a paused server go on.
    ///
    /// # Errors
    /// If it has ended.
    pub fn resume(&self) -> Result<()> {
        Ok(kill(self.pid, Signal::SIGCONT)?)
    }

    /// Kills the server, as a crash would, and waits until it is gone.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.leash.take());
        // The shell ends after the server, and cannot fail to.
        drop(self.shell.wait());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
