//! The exit codes: this is the only place that knows them, and `--help` prints them from here.

use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use leasehold::{Error, ErrorKind, WaitCause};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// How the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit(u8, Option<Death>);

/// The keyboard signal that the process must die of, as its command did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Death {
    pub(crate) signal: Signal,
    /// The rest of this process's group has not received it.
    pub(crate) of_the_group: bool,
}

impl Exit {
    pub(crate) const SUCCESS: Self = Self(0, None);
    pub(crate) const NOT_ACQUIRED: Self = Self(1, None);
    pub(crate) const HAZARDS: Self = Self(2, None);
    pub(crate) const NOT_HELD: Self = Self(3, None);
    pub(crate) const USAGE: Self = Self(64, None);
    pub(crate) const UNFIT: Self = Self(65, None);
    pub(crate) const UNAVAILABLE: Self = Self(69, None);
    pub(crate) const UNEXPECTED: Self = Self(70, None);
    pub(crate) const DENIED: Self = Self(77, None);
    pub(crate) const LOST: Self = Self(123, None);
    pub(crate) const TIMED_OUT: Self = Self(124, None);
    pub(crate) const NOT_EXECUTABLE: Self = Self(126, None);
    pub(crate) const NOT_FOUND: Self = Self(127, None);

    /// Added to the number of the signal that ended the command or the wait.
    const SIGNAL_BASE: u8 = 128;

    /// Every code of our own with its meaning; the command's own codes come on top.
    const TABLE: [(Self, &'static str); 13] = [
        (Self::SUCCESS, "success"),
        (Self::NOT_ACQUIRED, "not acquired: another process holds the lock (-E sets another code)"),
        (Self::HAZARDS, "the store works, but has hazards (doctor)"),
        (Self::NOT_HELD, "nobody holds it (status), or nothing was broken (break)"),
        (Self::USAGE, "wrong usage or input, or the store does not support the request"),
        (Self::UNFIT, "the store does not meet a requirement, or its data is damaged"),
        (Self::UNAVAILABLE, "the store cannot be reached"),
        (Self::UNEXPECTED, "anything unexpected"),
        (Self::DENIED, "the store denied access"),
        (Self::LOST, "the lease was lost"),
        (Self::TIMED_OUT, "the lock was not free within --wait (-E sets another code)"),
        (Self::NOT_EXECUTABLE, "the command cannot be executed"),
        (Self::NOT_FOUND, "the command was not found"),
    ];

    /// The code for an error of the library. A wait that ended while the store failed has the code of that
    /// failure.
    pub(crate) fn of(error: &Error) -> Self {
        match error.wait_report().map(|report| &report.cause) {
            Some(WaitCause::Store(cause)) => Self::of_error(cause.kind()),
            _ => Self::of_error(error.kind()),
        }
    }

    fn of_error(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Held => Self::NOT_ACQUIRED,
            ErrorKind::TimedOut => Self::TIMED_OUT,
            ErrorKind::Lost => Self::LOST,
            ErrorKind::InvalidInput | ErrorKind::Unsupported => Self::USAGE,
            ErrorKind::Unavailable => Self::UNAVAILABLE,
            ErrorKind::Denied => Self::DENIED,
            ErrorKind::Incompatible | ErrorKind::Corrupt => Self::UNFIT,
            _ => Self::UNEXPECTED,
        }
    }

    /// The code that shows a shell which signal ended the process.
    pub(crate) fn of_signal(signal: Signal) -> Self {
        Self::of_signal_number(signal as i32)
    }

    /// The command's own code, or the code of the signal that it died of.
    pub(crate) fn of_status(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => u8::try_from(code).map_or(Self::UNEXPECTED, Self::custom),
            (None, Some(signal)) => Self::of_signal_number(signal),
            (None, None) => Self::UNEXPECTED,
        }
    }

    /// A code that the user chose.
    pub(crate) fn custom(code: u8) -> Self {
        Self(code, None)
    }

    /// The same code, with a signal to die of.
    pub(crate) fn by(self, death: Option<Death>) -> Self {
        Self(self.0, death)
    }

    /// The signal to die of.
    pub(crate) fn death(self) -> Option<Death> {
        self.1
    }

    /// The number that the parent process sees.
    pub(crate) fn code(self) -> u8 {
        self.0
    }

    fn of_signal_number(signal: i32) -> Self {
        let code = u8::try_from(signal).ok().and_then(|n| Self::SIGNAL_BASE.checked_add(n));
        code.map_or(Self::UNEXPECTED, Self::custom)
    }

    /// The table as `--help` shows it.
    pub(crate) fn help() -> String {
        let mut text = String::from("Exit codes:\n");
        for (Self(code, _), meaning) in Self::TABLE {
            writeln!(text, "  {code:<6} {meaning}").expect("writing to a String does not fail");
        }
        text.push_str("  128+n  signal n ended the command, or the wait for the lock\n");
        text.push_str("  other  the command's own");
        text
    }
}

/// Ends this process by `signal`. Returns if the signal cannot end it; the exit code must report it then.
pub(crate) fn die_of(signal: Signal) {
    // The kernel spares the first process of a container, and what sends the signal would abort, which crashes there.
    if Pid::this().as_raw() != 1 {
        let _ = signal_hook::low_level::emulate_default_handler(signal as i32);
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_kind_of_error_has_its_code() {
        for (kind, code) in [
            (ErrorKind::Held, 1),
            (ErrorKind::TimedOut, 124),
            (ErrorKind::Lost, 123),
            (ErrorKind::InvalidInput, 64),
            (ErrorKind::Unsupported, 64),
            (ErrorKind::Unavailable, 69),
            (ErrorKind::Denied, 77),
            (ErrorKind::Incompatible, 65),
            (ErrorKind::Corrupt, 65),
            (ErrorKind::Unexpected, 70),
        ] {
            assert_eq!(Exit::of_error(kind).code(), code, "{kind:?}");
        }
    }

    #[test]
    fn a_wait_in_which_only_the_store_failed_ends_as_unavailable() {
        let key = leasehold::Key::new("k").unwrap();
        let report = |cause| {
            Error::timed_out(leasehold::WaitReport::new(key.clone(), Duration::ZERO, 1, cause))
        };
        let failure = Error::unavailable(leasehold::Effect::NotApplied, "gone");
        assert_eq!(Exit::of(&report(WaitCause::Store(failure))), Exit::UNAVAILABLE);
        assert_eq!(Exit::of(&report(WaitCause::Held)), Exit::TIMED_OUT);
    }

    #[test]
    fn the_commands_own_code_is_passed_through() {
        assert_eq!(Exit::of_status(ExitStatus::from_raw(7 << 8)).code(), 7);
        assert_eq!(Exit::of_status(ExitStatus::from_raw(9)).code(), 137);
        // A real-time signal, which has no name.
        assert_eq!(Exit::of_status(ExitStatus::from_raw(40)).code(), 168);
        assert_eq!(Exit::of_signal(Signal::SIGTERM).code(), 143);
    }

    #[test]
    fn the_manual_has_the_same_table() {
        let manual = include_str!("../../../docs/cli.md");
        for (Exit(code, _), meaning) in Exit::TABLE {
            let row = format!("| {code} | {meaning} |");
            assert!(manual.contains(&row), "docs/cli.md lacks {row:?}");
        }
    }
}
