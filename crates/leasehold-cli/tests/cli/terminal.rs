//! In a real pseudo-terminal, under an interactive shell.
//!
//! A command that is stopped from the keyboard does not start a program at that moment: a stop that hits the shell
//! `dash` in its vfork(2) hangs it, with `leasehold` or without. Nor is a command stopped before it has read a
//! line: one that reads before the terminal is lent to it is stopped and at once continued, which discards another
//! stop.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use crate::support::{Running, Store};
use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, ttyname};

/// An interactive shell with its own terminal, in which `run` is `leasehold run`.
pub(crate) struct Shell {
    child: Child,
    terminal: PathBuf,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl Shell {
    const CTRL_C: &str = "\x03";
    const CTRL_D: &str = "\x04";
    const CTRL_Z: &str = "\x1a";
    const CTRL_BACKSLASH: &str = "\x1c";

    pub(crate) fn new(store: &Store) -> Self {
        let pty = openpty(None, None).unwrap();
        let terminal = ttyname(&pty.slave).unwrap();
        // In its own session, so that the terminal becomes its controlling terminal.
        let mut command = Command::new("env");
        command.args([
            "--default-signal",
            "setsid",
            "--ctty",
            "bash",
            "--norc",
            "--noediting",
            "-i",
        ]);
        crate::support::without_settings(&mut command);
        command.env("LEASEHOLD_STORE", store.url()).env("PS1", "$ ").env("HISTFILE", "");
        command.env("TMPDIR", store.file("")).env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold"));
        command.stdin(pty.slave.try_clone().unwrap());
        command.stdout(pty.slave.try_clone().unwrap()).stderr(pty.slave);
        let child = command.spawn().unwrap();
        let keyboard = File::from(pty.master);
        let mut master = keyboard.try_clone().unwrap();
        let (sender, screen) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4_096];
            // Fails when the last process has closed the terminal.
            while let Ok(read) = master.read(&mut buffer) {
                if sender.send(buffer[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        let mut shell = Self { child, terminal, keyboard, screen, seen: String::new() };
        shell.types("stty -echo; alias run='$LEASEHOLD run'; echo rea''dy\n");
        shell.sees("ready");
        shell
    }

    /// Text that is typed right after a signal key may be dropped with what was typed before it: wait for the
    /// effect of the key.
    pub(crate) fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until this is shown; forgets what was shown before it.
    pub(crate) fn sees(&mut self, text: &str) {
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            match self.screen.recv_timeout(Duration::from_secs(30)) {
                Ok(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => {
                    panic!("{error}: no {text:?} but {:?} from\n{}", self.seen, self.processes())
                }
            }
        }
    }

    /// The processes in the terminal.
    fn processes(&self) -> String {
        let mut ps = Command::new("ps");
        ps.args(["-o", "pid,ppid,pgid,tpgid,stat,wchan:20,args", "-t"]).arg(&self.terminal);
        crate::support::text(&ps.output().unwrap().stdout).to_owned()
    }

    /// The command under the `leasehold` with this process id.
    fn command_of(&self, leasehold: &str) -> String {
        child_of(&child_of(leasehold))
    }

    /// Changes the size of the window.
    pub(crate) fn resizes(&self, rows: u16, columns: u16) {
        let mut stty = Command::new("stty");
        stty.arg("-F").arg(&self.terminal);
        stty.args(["rows", &rows.to_string(), "columns", &columns.to_string()]);
        assert!(stty.status().unwrap().success());
    }

    /// The shell reads the terminal: it is in the foreground, and at its prompt.
    fn has_the_terminal(&mut self) {
        self.types("read line\nmine\n");
        self.types("echo got $line\n");
        self.sees("got mine");
    }

    /// Types a line that prints the exit code of the last command, and checks it.
    fn ended_with(&mut self, code: &str) {
        self.types("echo code=$?.\n");
        self.sees(&format!("code={code}."));
    }
}

fn child_of(parent: &str) -> String {
    let output = Command::new("ps").args(["-o", "pid=", "--ppid", parent]).output().unwrap();
    crate::support::text(&output.stdout).trim().to_owned()
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn the_command_reads_the_terminal_and_gets_its_interrupts() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    shell.types("run k -- cat\nhello\n");
    shell.sees("hello");
    shell.types(Shell::CTRL_C);
    shell.sees("$ ");
    shell.ended_with("130");
    shell.types("run k -- sh -c 'trap \"echo caught; exit 3\" QUIT; echo on; sleep 60 & wait'\n");
    shell.sees("on");
    shell.types(Shell::CTRL_BACKSLASH);
    shell.sees("caught");
    shell.ended_with("3");
    shell.has_the_terminal();
    shell.types("run k -- cat\nhello\n");
    shell.sees("hello");
    shell.types(Shell::CTRL_BACKSLASH);
    shell.sees("$ ");
    shell.ended_with("131");
    assert!(!store.is_held("k"));
}

#[test]
fn the_command_learns_of_a_new_window_size() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    let script = "trap \"stty size\" WINCH; while read line; do echo got $line; done";
    shell.types(&format!("run k -- bash -c '{script}'\none\n"));
    shell.sees("got one");
    shell.resizes(33, 77);
    shell.types("\n");
    shell.sees("33 77");
    shell.types(Shell::CTRL_D);
    shell.sees("$ ");
    shell.has_the_terminal();
}

#[test]
fn a_candidate_that_campaigns_again_stops_and_continues_like_any_job() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    shell.types("$LEASEHOLD elect -v --ttl 3s --again k -- sh -c 'echo on; exec cat'\nhello\n");
    shell.sees("hello");
    let other = Running::start(store.script("--json -v k", "cat"));
    other.event("waiting");
    assert_eq!(store.code("break k"), 0);
    other.event("started");
    shell.sees("the lock is lost");
    shell.sees("waiting for");
    shell.types(Shell::CTRL_Z);
    shell.sees("Stopped");
    assert_eq!(other.code(), 0);
    shell.has_the_terminal();
    shell.types("fg\n");
    shell.sees("on\r\n");
    shell.types("again\n");
    shell.sees("again");
    shell.types(Shell::CTRL_C);
    shell.sees("$ ");
    shell.ended_with("130");
    assert!(!store.is_held("k"));
}

#[test]
fn a_script_gets_the_terminal_back_afterwards() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    // A shell that runs a script does not take the terminal back by itself.
    shell.types("sh -c '$LEASEHOLD run k -- true; echo over; read line; echo got $line'\n");
    shell.sees("over");
    shell.types("it\n");
    shell.sees("got it");
}

#[test]
fn a_stop_and_fg() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    shell.types("run k -- cat\nbefore\n");
    shell.sees("before");
    shell.types(Shell::CTRL_Z);
    shell.sees("stopped by SIGTSTP; unless continued within");
    shell.sees("Stopped");
    assert!(store.is_held("k"));
    shell.types("fg\nafter\n");
    shell.sees("after");
    shell.types(Shell::CTRL_D);
    shell.ended_with("0");
    assert!(!store.is_held("k"));
}

#[test]
fn a_stop_and_bg() {
    let store = Store::new();
    let go = store.fifo("go");
    let mut shell = Shell::new(&store);
    shell.types(&format!("run -v k -- sh -c 'echo on; read line < {}; exit 6'\n", go.display()));
    shell.sees("on");
    shell.types(Shell::CTRL_Z);
    shell.sees("Stopped");
    shell.types("bg\n");
    shell.sees("continued the command");
    crate::support::release(&go);
    shell.sees("released");
    shell.types("wait %1\n");
    shell.ended_with("6");
}

#[test]
fn a_stop_that_outlives_the_term_ends_the_command() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    let script = "trap \"\" TERM; while read line; do echo got $line; done";
    shell.types(&format!("run --ttl 3s k -- sh -c '{script}'\nit\n"));
    shell.sees("got it");
    let pid = store.records("k")[0]["pid"].to_string();
    let command = shell.command_of(&pid);
    shell.types(Shell::CTRL_Z);
    shell.sees("Stopped");
    crate::support::until("free", || !store.is_held("k"));
    // Before anyone continues `leasehold`.
    assert!(!crate::support::runs(&command) && crate::support::is_stopped(&pid));
    shell.types("fg\n");
    shell.sees("the lock is lost: ");
    shell.ended_with("123");
}

#[test]
fn a_pipeline_keeps_the_terminal() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    // The other end of the pipe reads the terminal, as a pager does, while the command runs.
    let go = store.fifo("go");
    let reads = "read line < /dev/tty; echo read $line; exec cat";
    let reader = format!("sh -c 'read go < {}; {reads}'", go.display());
    shell.types(&format!("run -v k -- sleep 60 | {reader}\n"));
    // By then the terminal is lent, if it ever is.
    shell.sees("started");
    std::fs::write(&go, "now\n").unwrap();
    shell.types("typed\n");
    shell.sees("read typed");
    shell.types(Shell::CTRL_Z);
    shell.sees("Stopped");
    shell.types("fg\n");
    shell.sees("continued the command");
    shell.types(Shell::CTRL_C);
    shell.sees("forwarded SIGINT");
    shell.types("echo codes=${PIPESTATUS[0]}.\n");
    shell.sees("codes=130.");
}

#[test]
fn a_pager_keeps_the_keyboard() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    shell.resizes(10, 80);
    shell.types("export TERM=vt100 LESS=; run k -- seq 1 1000 | less\n");
    shell.sees("9");
    shell.types(" ");
    shell.sees("18");
    shell.types("q");
    shell.sees("$ ");
    shell.has_the_terminal();
    shell.types("run k -- seq 1 1000 | head -n 2; echo codes=${PIPESTATUS[1]}.\n");
    shell.sees("codes=0.");
    assert!(!store.is_held("k"));
}

/// The process ids of `leasehold` and of a command that reads the terminal.
fn reading(shell: &mut Shell, store: &Store, line: &str) -> (String, String) {
    shell.types(line);
    shell.sees("on");
    shell.types("hello\n");
    shell.sees("hello");
    let leasehold = store.records("k")[0]["pid"].to_string();
    let command = shell.command_of(&leasehold);
    (leasehold, command)
}

fn kill_hard(pid: &str) {
    kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL).unwrap();
}

const READS: &str = "run k -- sh -c 'echo on; exec cat'\n";

/// A shell that runs a script does not take the terminal back by itself. A process that reads it before the shim
/// has given it back is stopped: here it waits.
fn reads_in_a_script(store: &Store) -> String {
    let run = "$LEASEHOLD run k -- sh -c \"echo on; exec cat\"";
    let go = store.fifo("go");
    format!("sh -c '{run}; read go < {}; read line; echo got $line'\n", go.display())
}

#[test]
fn a_script_ends_at_ctrl_c_with_the_command() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    let run = "$LEASEHOLD run k -- sh -c \"read line; echo got \\$line; read line\"";
    for (program, key, code) in [
        ("sh", Shell::CTRL_C, "130"),
        ("bash", Shell::CTRL_C, "130"),
        ("sh", Shell::CTRL_BACKSLASH, "131"),
    ] {
        shell.types(&format!("{program} -c '{run}; echo not''reached'\nit\n"));
        shell.sees("got it");
        shell.types(key);
        shell.sees("$ ");
        assert!(!shell.seen.contains("notreached"));
        shell.ended_with(code);
        assert!(!store.is_held("k"));
    }
}

#[test]
fn a_command_with_redirected_output_gets_the_terminal_when_it_asks() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    for redirection in ["> $TMPDIR/out; cat $TMPDIR/out", "| cat"] {
        shell.types(&format!("run k -- sh -c 'read line; echo got $line.' {redirection}\nit\n"));
        shell.sees("got it.");
        shell.sees("$ ");
        shell.has_the_terminal();
    }
    // As behind `ssh -t`, where no shell would continue a stopped process.
    shell.types("exec sh -c \"$LEASEHOLD run k -- head -n 1 | cat; echo ov''er\"\n");
    shell.types("typed\n");
    shell.sees("typed");
    shell.sees("over");
    assert!(!store.is_held("k"));
}

#[test]
fn the_terminal_is_not_taken_from_another_job_when_the_term_ends() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    // It no longer asks for the terminal, so that only the end of the term concerns it.
    let line = "run --ttl 4s k -- sh -c 'echo on; read line; echo $line; exec sleep 60'\n";
    let (leasehold, command) = reading(&mut shell, &store, line);
    kill(Pid::from_raw(leasehold.parse().unwrap()), Signal::SIGSTOP).unwrap();
    shell.sees("Stopped");
    shell.types("cat\n");
    crate::support::until("dead", || !crate::support::runs(&command));
    shell.types("mine\n");
    shell.sees("mine");
    shell.types(Shell::CTRL_D);
    shell.has_the_terminal();
    shell.types("fg\n");
    shell.ended_with("123");
}

#[test]
fn the_shell_has_the_terminal_after_leasehold_was_killed() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    let (leasehold, command) = reading(&mut shell, &store, READS);
    kill_hard(&leasehold);
    shell.sees("$ ");
    // A process that waits for a line when it loses the foreground still gets one.
    crate::support::until("dead", || !crate::support::runs(&command));
    shell.has_the_terminal();
}

#[test]
fn a_script_has_the_terminal_after_leasehold_was_killed() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    let (leasehold, command) = reading(&mut shell, &store, &reads_in_a_script(&store));
    let shim = child_of(&leasehold);
    kill_hard(&leasehold);
    crate::support::until("dead", || {
        !crate::support::runs(&command) && !crate::support::runs(&shim)
    });
    crate::support::release(&store.file("go"));
    shell.types("it\n");
    shell.sees("got it");
}

#[test]
fn a_script_has_the_terminal_after_the_shim_was_killed() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    let (leasehold, command) = reading(&mut shell, &store, &reads_in_a_script(&store));
    kill_hard(&child_of(&leasehold));
    crate::support::release(&store.file("go"));
    shell.types("it\n");
    shell.sees("got it");
    assert!(!crate::support::runs(&command) && !store.is_held("k"));
}

#[test]
fn a_background_command_that_does_not_read_is_not_stopped() {
    let store = Store::new();
    let go = store.fifo("go");
    let mut shell = Shell::new(&store);
    shell.types(&format!("run k -- sh -c 'echo on; read line < {}; exit 6' &\n", go.display()));
    shell.sees("on");
    // The shell has kept the terminal.
    shell.has_the_terminal();
    crate::support::release(&go);
    shell.types("wait %1\n");
    shell.ended_with("6");
}

#[test]
fn in_the_background_reading_stops_until_fg() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    shell.types("run k -- cat &\n");
    shell.sees("stopped by SIGTTIN");
    let pid = store.records("k")[0]["pid"].to_string();
    while !crate::support::is_stopped(&pid) {
        crate::support::pause(Duration::from_millis(5));
    }
    shell.types("until jobs | grep -q Stopped; do :; done; fg\nhello\n");
    shell.sees("hello");
    shell.types(Shell::CTRL_D);
    shell.ended_with("0");
}

#[test]
fn a_shell_under_the_lock_has_job_control() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    shell.types("run k -- env PS1=inner: bash --norc --noediting -i\n");
    shell.sees("inner:");
    shell.types("cat\nhello\n");
    shell.sees("hello");
    shell.types(Shell::CTRL_Z);
    shell.sees("Stopped");
    shell.types("fg\nagain\n");
    shell.sees("again");
    shell.types(Shell::CTRL_D);
    shell.sees("inner:");
    shell.types("exit 4\n");
    shell.ended_with("4");
}

#[test]
fn a_session_leader_that_nobody_could_continue_is_not_stopped() {
    let store = Store::new();
    let mut shell = Shell::new(&store);
    // Replaces the shell, as in a container or behind `ssh -t`.
    shell.types("exec $LEASEHOLD run -v k -- sh -c 'while read line; do echo got $line; done'\n");
    shell.types("one\n");
    shell.sees("got one");
    shell.types(Shell::CTRL_Z);
    shell.sees("continued the command");
    shell.types("two\n");
    shell.sees("got two");
    shell.types(Shell::CTRL_D);
    shell.sees("released");
}
