use std::fmt;
use std::time::Duration;

use crate::InvalidValue;

/// How long a lease lives unless it is renewed: 10 ms to 10 years, or [`Ttl::NEVER`].
///
/// Stores keep microseconds, rounded **up**; what the holder may trust is rounded **down**. A store refuses a term
/// below its declared minimum.
///
/// ```
/// use leasehold_core::Ttl;
/// use std::time::Duration;
///
/// let ttl = Ttl::try_from(Duration::from_secs(30))?;
/// assert_eq!(ttl.duration(), Some(Duration::from_secs(30)));
/// assert!(Ttl::try_from(Duration::ZERO).is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Repr);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    For(Duration),
    Never,
}

impl Ttl {
    /// The shortest finite term.
    pub const MIN: Duration = Duration::from_millis(10);
    /// The longest finite term, 10 years of 365 days.
    pub const MAX: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
    /// The lease does not end by itself.
    pub const NEVER: Self = Self(Repr::Never);

    /// Checks `duration` and takes it.
    ///
    /// # Errors
    /// Fails unless it is 10 ms to 10 years.
    pub fn new(duration: Duration) -> Result<Self, InvalidValue> {
        if (Self::MIN..=Self::MAX).contains(&duration) {
            return Ok(Self(Repr::For(duration)));
        }
        Err(InvalidValue::new(format!(
            "the TTL is {duration:?}; it must be 10 ms to 10 years (3650 days), or never"
        )))
    }

    /// The term, or `None` for never.
    pub fn duration(self) -> Option<Duration> {
        match self.0 {
            Repr::For(duration) => Some(duration),
            Repr::Never => None,
        }
    }

    /// True for [`Ttl::NEVER`].
    pub fn is_never(self) -> bool {
        self.0 == Repr::Never
    }
}

impl TryFrom<Duration> for Ttl {
    type Error = InvalidValue;

    fn try_from(duration: Duration) -> Result<Self, InvalidValue> {
        Self::new(duration)
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Repr::For(duration) => write!(f, "{duration:?}"),
            Repr::Never => f.write_str("never"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_exact() {
        for good in [Ttl::MIN, Ttl::MAX, Duration::from_secs(30)] {
            assert!(Ttl::new(good).is_ok());
        }
        let nano = Duration::from_nanos(1);
        for bad in [Duration::ZERO, Ttl::MIN - nano, Ttl::MAX + nano, Duration::MAX] {
            let error = Ttl::new(bad).unwrap_err();
            assert!(error.to_string().contains("10 ms to 10 years"), "{error}");
        }
    }

    #[test]
    fn never_is_longer_than_any() {
        let longest = Ttl::try_from(Ttl::MAX).unwrap();
        assert!(Ttl::NEVER > longest);
        assert_eq!((longest.duration(), longest.is_never()), (Some(Ttl::MAX), false));
        assert_eq!((Ttl::NEVER.duration(), Ttl::NEVER.is_never()), (None, true));
        assert_eq!([longest, Ttl::NEVER].map(|ttl| ttl.to_string()), ["315360000s", "never"]);
    }
}
