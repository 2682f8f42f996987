use std::error::Error;
use std::fmt;
use std::panic::Location;

/// `Result` of everything that may find a fault.
pub type Result<T = (), E = Failure> = std::result::Result<T, E>;

/// Why a case failed: what it found, and where.
///
/// `?` converts any error, so that a [`Backing`](crate::Backing) may use its driver freely.
pub struct Failure {
    message: String,
    at: &'static Location<'static>,
}

impl Failure {
    /// A failure found here.
    #[track_caller]
    pub fn new(message: impl Into<String>) -> Self {
        Self::at(Location::caller(), message)
    }

    pub(crate) fn at(at: &'static Location<'static>, message: impl Into<String>) -> Self {
        Self { message: message.into(), at }
    }

    /// What was found.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl<E: Error> From<E> for Failure {
    #[track_caller]
    fn from(error: E) -> Self {
        Self::new(format!("an error where none belongs: {error:?}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}:{})", self.message, self.at.file(), self.at.line())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Fails the case unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::Failure::new(format!($($message)+)));
        }
    };
}

/// Fails the case unless both are equal.
macro_rules! ensure_eq {
    ($found:expr, $expected:expr, $($message:tt)+) => {
        match (&$found, &$expected) {
            (found, expected) => {
                if *found != *expected {
                    return Err($crate::Failure::new(format!(
                        "{}: expected {expected:?}, found {found:?}",
                        format_args!($($message)+)
                    )));
                }
            }
        }
    };
}

/// Takes what the pattern binds, or fails the case and shows the value.
macro_rules! take {
    ($pattern:pat => $value:expr, $found:expr, $($message:tt)+) => {
        match $found {
            $pattern => $value,
            #[allow(unreachable_patterns, reason = "the pattern may cover every value")]
            other => {
                return Err($crate::Failure::new(format!(
                    "{}: found {other:?}",
                    format_args!($($message)+)
                )));
            }
        }
    };
}

pub(crate) use {ensure, ensure_eq, take};
