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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_is_longer_than_any() {
        let most = Remaining::For(Duration::MAX);
        assert!(Remaining::Never > most);
        assert_eq!((most.duration(), Remaining::Never.duration()), (Some(Duration::MAX), None));
        let shown =
            [Remaining::For(Duration::from_secs(9)), Remaining::Never].map(|r| r.to_string());
        assert_eq!(shown, ["9s", "never"]);
    }
}
