use std::fmt;

use crate::Reason;

/// Why a lease was lost.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "callers must handle every way to lose a lock")]
pub enum LostReason {
    /// Its term ended without a renewal.
    Expired,
    /// The store has it no more, and does not say why.
    Gone,
    /// Somebody ended it by force, where the store recorded that.
    Evicted(Option<Reason>),
    /// Its term ended while renewals failed or were not answered.
    StoreUnreachable,
    /// It was held for as long as the caller allowed.
    MaxHold,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("its term ended"),
            Self::Gone => f.write_str("the store no longer has it"),
            Self::Evicted(None) => f.write_str("it was ended by force"),
            Self::Evicted(Some(reason)) => write!(f, "it was ended by force: {reason}"),
            Self::StoreUnreachable => {
                f.write_str("its term ended while the store could not be reached")
            }
            Self::MaxHold => f.write_str("it was held for its longest allowed time"),
        }
    }
}
