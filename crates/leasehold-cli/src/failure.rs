//! Failures of a command, with their exit codes.

use std::error::Error as _;
use std::ffi::OsStr;
use std::fmt;
use std::io;

use leasehold::inspect::NodeReport;
use leasehold::{Error, ErrorKind, WaitCause, WaitReport};
use nix::errno::Errno;

use crate::exit::Exit;
use crate::holder::NotFree;
use crate::record::duration;

/// A failure that ends the process.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    kind: &'static str,
    message: String,
    nodes: Vec<NodeReport>,
    wait: Option<Box<WaitReport>>,
}

impl Failure {
    fn new(exit: Exit, kind: &'static str, message: String) -> Self {
        Self { exit, kind, message, nodes: Vec::new(), wait: None }
    }

    /// The input can never succeed.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::USAGE, "invalid_input", message.into())
    }

    /// An unexpected failure.
    pub(crate) fn unexpected(message: impl Into<String>) -> Self {
        Self::new(Exit::UNEXPECTED, "unexpected", message.into())
    }

    /// The lease is lost.
    pub(crate) fn lost(message: impl Into<String>) -> Self {
        Self::new(Exit::LOST, kind_name(ErrorKind::Lost), message.into())
    }

    /// The operating system failed to do something; `what` names the operation.
    pub(crate) fn of_system(what: &str, error: &io::Error) -> Self {
        // Also for memory, where it is for a thread.
        let limits = match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EAGAIN) => {
                "; the user may have too many processes (ulimit -u), or this one too little memory (ulimit -v)"
            }
            Some(Errno::EMFILE) => "; raise the limit (ulimit -n)",
            _ => "",
        };
        Self::unexpected(format!("{what}: {error}{limits}"))
    }

    /// The store granted the request, but too late.
    pub(crate) fn too_late() -> Self {
        let what = "the grant came too late for its term to be trusted";
        Self::new(Exit::UNAVAILABLE, kind_name(ErrorKind::Unavailable), what.to_owned())
    }

    /// The operating system could not start the command.
    pub(crate) fn not_started(name: &OsStr, error: &io::Error) -> Self {
        match error.kind() {
            _ if is_for_want_of_resources(error) => {
                Self::of_system(&format!("the command {name:?} cannot be started"), error)
            }
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::new(
                Exit::NOT_FOUND,
                "not_found",
                format!("the command {name:?} was not found: {error}"),
            ),
            _ => Self::new(
                Exit::NOT_EXECUTABLE,
                "not_executable",
                format!("the command {name:?} cannot be executed: {error}"),
            ),
        }
    }

    /// The file of the command exists, but not what it names to run it: the program after `#!`, or the dynamic loader.
    pub(crate) fn no_interpreter(name: &OsStr, error: &io::Error) -> Self {
        Self::new(
            Exit::NOT_FOUND,
            "not_found",
            format!("the interpreter of the command {name:?} was not found: {error}"),
        )
    }

    /// The same failure with another exit code.
    pub(crate) fn with_exit(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    /// The same failure with its cause.
    pub(crate) fn because(self, cause: &str) -> Self {
        Self { message: format!("{}: {cause}", self.message), ..self }
    }

    /// How the process ends.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// The kind as `--json` prints it.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    /// How the wait for the lock ended.
    pub(crate) fn wait(&self) -> Option<&WaitReport> {
        self.wait.as_deref()
    }

    /// True if the lock is held, and nothing failed.
    pub(crate) fn is_refusal(&self) -> bool {
        self.wait().is_some_and(|report| matches!(report.cause, WaitCause::Held))
    }

    /// What each node of a quorum reported.
    pub(crate) fn nodes(&self) -> &[NodeReport] {
        &self.nodes
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let nodes = error.nodes().to_vec();
        let wait = error.wait_report().cloned().map(Box::new);
        let message = match wait.as_deref() {
            Some(report) if matches!(report.cause, WaitCause::Held) => not_free(&error, report),
            _ => describe(&error),
        };
        let failure = Self::new(Exit::of(&error), kind_name(error.kind()), message);
        Self { nodes, wait, ..failure }
    }
}

/// The lock was held, at once or for as long as the wait lasted.
fn not_free(error: &Error, report: &WaitReport) -> String {
    let not_free = NotFree { key: &report.key, holder: report.holder.as_deref() };
    match error.kind() {
        ErrorKind::TimedOut => format!("{not_free}; waited {}", duration(report.waited)),
        _ => not_free.to_string(),
    }
}

/// A thread of this process could not be started.
pub(crate) fn no_thread(error: io::Error) -> Failure {
    Failure::of_system("a thread of leasehold could not be started", &error)
}

/// True if the system could not do something for want of memory, processes, threads or open files.
pub(crate) fn is_for_want_of_resources(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EAGAIN | Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM))
}

/// The error with all its causes, in one line.
pub(crate) fn describe(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some errors repeat their cause.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// The name of a kind in JSON.
pub(crate) fn kind_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Held => "held",
        ErrorKind::TimedOut => "timed_out",
        ErrorKind::Lost => "lost",
        ErrorKind::InvalidInput => "invalid_input",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::Unavailable => "unavailable",
        ErrorKind::Denied => "denied",
        ErrorKind::Incompatible => "incompatible",
        ErrorKind::Corrupt => "corrupt",
        _ => "unexpected",
    }
}
