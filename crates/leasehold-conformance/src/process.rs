use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, User, chown, geteuid, sysconf};

use crate::{Failure, Result};

/// A server that a test has started, with all its descendants, whatever group or session they are in. It ends when
/// this value is dropped, after a panic too, and when the test's own process is killed: a shell that waits for
/// that kills it.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    shell: Child,
    /// The server lives while this is open.
    leash: Option<ChildStdin>,
}

/// Prints the server's process id, waits until its own standard input ends, kills the server with its descendants, and
/// waits until they are gone. It stops them first, so that none starts another meanwhile.
const KEEPER: &str = r#"
tree() {
    kill -STOP $1 2>&-
    for child in $(cat /proc/$1/task/*/children 2>&-); do tree $child; done
    echo $1
}
"$@" </dev/null >>server.log 2>&1 &
echo $!
read -r line
all=$(tree $!)
kill -KILL $all 2>&-
wait $! 2>&-
for pid in $all; do
    while read -r line 2>&- </proc/$pid/stat; do
        case $line in *') Z '*) break ;; esac
        sleep 0.01
    done
done
"#;

/// The user of a server that refuses to run as root.
const NOBODY: &str = "nobody";

/// The command prefix for a server that refuses to run as root. If the test runs as root, it starts the server as
/// the user `nobody`, who is given `directory`; otherwise it is empty. Other files that the server reads, such as
/// that of a [`ServerClock`](crate::ServerClock), must be in that directory too.
///
/// # Errors
/// If there is no such user, or the directory cannot be given away.
pub fn unprivileged(directory: &Path) -> Result<Vec<String>> {
    if !geteuid().is_root() {
        return Ok(Vec::new());
    }
    let missing = || Failure::new(format!("this machine has no user {NOBODY:?}"));
    let user = User::from_name(NOBODY)?.ok_or_else(missing)?;
    chown(directory, Some(user.uid), Some(user.gid))?;
    let ids = [format!("--reuid={}", user.uid), format!("--regid={}", user.gid)];
    let words = ["setpriv", &ids[0], &ids[1], "--clear-groups"];
    Ok(words.map(str::to_owned).to_vec())
}

impl Process {
    /// Starts `program` in `directory`, with its output in `server.log`.
    ///
    /// # Errors
    /// If there is no shell. A program that does not start shows only in that it cannot be reached.
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

    /// The process id of the server itself.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Stops the server, as SIGSTOP does: connections stay open and nothing is answered. When this returns, all
    /// its processes stand still.
    ///
    /// # Errors
    /// If it has ended.
    pub fn pause(&self) -> Result<()> {
        let mut stopped = BTreeSet::new();
        loop {
            let running: Vec<_> =
                self.processes().into_iter().filter(|pid| !stopped.contains(pid)).collect();
            if running.is_empty() {
                return Ok(());
            }
            for pid in running {
                stop(pid, pid == self.pid)?;
                stopped.insert(pid);
            }
        }
    }

    /// Continues a paused server.
    ///
    /// # Errors
    /// If it has ended.
    pub fn resume(&self) -> Result<()> {
        for pid in self.processes() {
            signal(pid, Signal::SIGCONT, pid == self.pid)?;
        }
        Ok(())
    }

    /// How long processors have worked for the server and for the descendants that it has now, since each started.
    ///
    /// # Errors
    /// If it has ended.
    pub fn processor_time(&self) -> Result<Duration> {
        let mut all = ticks(self.pid).ok_or_else(|| Failure::new("the server has ended"))?;
        // A descendant may have ended meanwhile.
        all += self.processes().into_iter().skip(1).filter_map(ticks).sum::<u64>();
        let unknown = || Failure::new("the system does not report how long a tick is");
        let per_second = sysconf(SysconfVar::CLK_TCK)?.ok_or_else(unknown)?;
        let tick = Duration::from_secs(1) / u32::try_from(per_second)?;
        Ok(tick * u32::try_from(all)?)
    }

    /// The server and its descendants.
    fn processes(&self) -> Vec<Pid> {
        let mut all = vec![self.pid];
        let mut at = 0;
        while let Some(pid) = all.get(at) {
            all.extend(children(*pid));
            at += 1;
        }
        all
    }

    /// Kills the server, as a crash would, and waits until it has ended.
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

/// Sends a signal. A descendant may have ended meanwhile; the server must not have.
fn signal(pid: Pid, signal: Signal, must_live: bool) -> Result<()> {
    match kill(pid, signal) {
        Err(Errno::ESRCH) if !must_live => Ok(()),
        done => Ok(done?),
    }
}

/// Stops a process and waits until all its threads stand still; the signal reaches them one by one.
fn stop(pid: Pid, must_live: bool) -> Result<()> {
    signal(pid, Signal::SIGSTOP, must_live)?;
    let is_still = |state: char| "TZX".contains(state);
    while !threads(pid).all(|thread| state(&thread).is_none_or(is_still)) {
        std::thread::yield_now();
    }
    Ok(())
}

/// The folders of a process's threads; none if it has ended.
fn threads(pid: Pid) -> impl Iterator<Item = std::path::PathBuf> {
    let folder = Path::new("/proc").join(pid.to_string()).join("task");
    folder.read_dir().into_iter().flatten().flatten().map(|thread| thread.path())
}

fn state(thread: &Path) -> Option<char> {
    let stat = std::fs::read_to_string(thread.join("stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The clock ticks that a process has used, in user and kernel mode.
fn ticks(pid: Pid) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<_> = stat.rsplit_once(") ")?.1.split(' ').collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

fn children(pid: Pid) -> Vec<Pid> {
    let reported =
        threads(pid).filter_map(|thread| std::fs::read_to_string(thread.join("children")).ok());
    reported
        .flat_map(|pids| pids.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|pid| pid.parse().ok().map(Pid::from_raw))
        .collect()
}
