use std::fmt;
use std::time::Duration;

/// What is left of a term. `Never` is longer than any duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "a term ends or it does not")]
pub enum Remaining {
    /// It ends after this long.
    For(Duration),
    /// It does not end by itself.
    Never,
}

impl Remaining {
    /// The duration, or `None` for never.
    pub fn duration(self) -> Option<Duration> {
        match self {
            Self::For(duration) => Some(duration),
            Self::Never => None,
        }
    }
}

impl fmt::Display for Remaining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(duration) => write!(f, "{duration:?}"),
            Self::Never => f.write_str("never"),
        }
    }
}
