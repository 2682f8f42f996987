use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// Why a lock was not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockError {
    /// A key is held, or somebody waits for it, and the request was not to wait.
    Held,
    /// The attempts or the deadline ended before the lock was free.
    TimedOut {
        /// How many attempts were made.
        attempts: u32,
        /// How long the request waited.
        waited: Duration,
    },
    /// The scope in which the request was made holds what it asks for; it would wait for itself.
    HeldByThisScope,
    /// The scope holds a key that is not below all requested ones; waiting could end in a deadlock.
    OutOfOrder,
    /// The closure that the scope was made for has ended.
    ScopeEnded,
    /// The request can never succeed as it is; the text says what was given and what is allowed.
    Invalid(Cow<'static, str>),
}

impl LockError {
    #[cold]
    pub(super) fn no_timeout() -> Self {
        Self::Invalid(Cow::Borrowed(
            "the lock time-out is 0; it must be above zero, or never_stale",
        ))
    }

    pub(super) fn no_keys() -> Self {
        Self::Invalid(Cow::Borrowed(
            "no key was given; a lock needs at least one key; acquire_all locks the whole table",
        ))
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held => f.write_str("the lock is held"),
            Self::TimedOut { attempts, waited } => {
                let noun = if *attempts == 1 { "attempt" } else { "attempts" };
                let seconds = waited.as_secs_f64();
                write!(f, "the lock was not free after {attempts} {noun} in {seconds:.3} s")
            }
            Self::HeldByThisScope => f.write_str(
                "the lock is held by the scope that asks for it; ask through the scope's handle, which does not wait \
                 for its own keys",
            ),
            Self::OutOfOrder => f.write_str(
                "the scope holds or waits for a key above one that is asked for; lock keys in their order, or all \
                 at once",
            ),
            Self::ScopeEnded => f.write_str("the scope has ended; its handle locks nothing more"),
            Self::Invalid(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for LockError {}
