use std::fmt;
use std::num::NonZeroU32;

/// How a key is held.
///
/// The modes cover the usual three locks: a mutex is `Exclusive`, a read-write lock is `Exclusive` against `Shared
/// { max: None }`, a semaphore is `Shared { max: Some(n) }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums, reason = "one axis; a third mode would change what a lock is")]
pub enum Mode {
    /// One holder, alone.
    Exclusive,
    /// Others may hold the key in shared mode too.
    Shared {
        /// Grant only if the key then has at most this many holders; applies to this request alone.
        max: Option<NonZeroU32>,
    },
}

impl Mode {
    /// Shared without a limit.
    pub const SHARED: Self = Self::Shared { max: None };

    /// This mode with the smaller of its own limit and a store's
    /// [`max_holders`](crate::Capabilities::max_holders): what a store with such a limit grants (C9).
    #[must_use]
    pub fn limited_to(self, max_holders: Option<NonZeroU32>) -> Self {
        match self {
            Self::Exclusive => Self::Exclusive,
            Self::Shared { max } => Self::Shared { max: max.into_iter().chain(max_holders).min() },
        }
    }

    /// True for `Shared`, whatever its limit.
    pub fn is_shared(self) -> bool {
        matches!(self, Self::Shared { .. })
    }

    /// True if both are exclusive or both are shared, whatever their limits.
    pub fn same_kind(self, other: Self) -> bool {
        self.is_shared() == other.is_shared()
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared { max: None } => f.write_str("shared"),
            Self::Shared { max: Some(max) } => write!(f, "shared (at most {max})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(max: u32) -> Mode {
        Mode::Shared { max: NonZeroU32::new(max) }
    }

    #[test]
    fn the_smaller_limit_applies_to_shared_holders_alone() {
        for (mode, max_holders, expected) in [
            (Mode::SHARED, 0, Mode::SHARED),
            (Mode::SHARED, 2, shared(2)),
            (shared(3), 0, shared(3)),
            (shared(3), 2, shared(2)),
            (shared(3), 4, shared(3)),
            (Mode::Exclusive, 2, Mode::Exclusive),
        ] {
            assert_eq!(mode.limited_to(NonZeroU32::new(max_holders)), expected, "{max_holders}");
        }
    }

    #[test]
    fn modes_are_of_one_kind_whatever_their_limits() {
        assert!(!Mode::Exclusive.is_shared() && Mode::SHARED.is_shared());
        assert!(Mode::SHARED.same_kind(shared(3)) && Mode::Exclusive.same_kind(Mode::Exclusive));
        assert!(!Mode::SHARED.same_kind(Mode::Exclusive));
    }

    #[test]
    fn a_mode_is_shown_with_its_limit() {
        let shown = [Mode::Exclusive, Mode::SHARED, shared(3)].map(|mode| mode.to_string());
        assert_eq!(shown, ["exclusive", "shared", "shared (at most 3)"]);
    }
}
