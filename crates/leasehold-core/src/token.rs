use std::fmt;
use std::num::NonZeroU64;

use crate::InvalidValue;

/// A number that strictly grows per key with every grant.
///
/// Pass it to the resource that the lock protects, and let the resource refuse a token lower than the highest it
/// has seen: this protects against a holder that was paused past its term. Tokens are at least 1 and below 2^53,
/// so that JSON, JavaScript and Lua keep them exact. Tokens of two stores are not comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    /// The largest token, 2^53 - 1.
    pub const MAX: u64 = (1 << 53) - 1;

    /// Checks `value` and takes it.
    ///
    /// # Errors
    /// Fails unless it is 1 to 2^53 - 1.
    pub fn new(value: u64) -> Result<Self, InvalidValue> {
        NonZeroU64::new(value).filter(|v| v.get() <= Self::MAX).map(Self).ok_or_else(|| {
            InvalidValue::new(format!(
                "the fencing token is {value}; it must be 1 to {}",
                Self::MAX
            ))
        })
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl TryFrom<u64> for FencingToken {
    type Error = InvalidValue;

    fn try_from(value: u64) -> Result<Self, InvalidValue> {
        Self::new(value)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.get()
    }
}

/// For columns without an unsigned type.
impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        Self::try_from(token.get()).expect("a token is below 2^53")
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_token_fits_into_both_kinds_of_columns() {
        let largest = FencingToken::new(FencingToken::MAX).unwrap();
        assert_eq!(u64::from(largest), FencingToken::MAX);
        assert_eq!(i64::from(largest), (1_i64 << 53) - 1);
    }

    #[test]
    fn a_token_is_at_least_one_and_below_two_to_the_53() {
        for good in [1, 7, FencingToken::MAX] {
            let token = FencingToken::try_from(good).unwrap();
            assert_eq!((token.get(), token.to_string()), (good, good.to_string()));
        }
        for bad in [0, FencingToken::MAX + 1, u64::MAX] {
            let error = FencingToken::try_from(bad).unwrap_err();
            assert!(error.to_string().contains(&format!("is {bad}; it must be 1 to")), "{error}");
        }
    }
}
