use std::fmt;

use crate::Reason;

/// Why a lease was lost. Reasons may be added; each means that the lease is lost.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// Its term ended without a renewal.
    Expired,
    /// The store no longer has it and does not state why.
    Gone,
    /// It was ended by force; only some stores record that.
    Evicted(Option<Reason>),
    /// Its term ended while renewals failed or were not answered.
    StoreUnreachable,
    /// The store proved that it no longer has what it had: its file was removed or replaced, or another boot has taken
    /// it over.
    StoreReplaced,
    /// It was held for as long as the caller allowed (`max_hold`).
    MaxHold,
}

impl LostReason {
    /// Its name, for metrics and logs: `expired`, `gone`, `evicted`, `store_unreachable`,
    /// `store_replaced` or `max_hold`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Gone => "gone",
            Self::Evicted(_) => "evicted",
            Self::StoreUnreachable => "store_unreachable",
            Self::StoreReplaced => "store_replaced",
            Self::MaxHold => "max_hold",
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("its term ended"),
            Self::Gone => f.write_str("the store no longer has it"),
            Self::Evicted(None) => f.write_str("it was ended by force"),
            Self::Evicted(Some(reason)) => write!(f, "it was ended by force: {reason}"),
            Self::StoreUnreachable => {
                f.write_str("its term ended while renewals failed or were not answered")
            }
            Self::StoreReplaced => f.write_str("its store was replaced while it was open"),
            Self::MaxHold => f.write_str("it was held for its longest allowed time"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_name_and_a_text() {
        let reason = Reason::new("maintenance").unwrap();
        for (lost, name, text) in [
            (LostReason::Expired, "expired", "its term ended"),
            (LostReason::Gone, "gone", "no longer has it"),
            (LostReason::Evicted(None), "evicted", "ended by force"),
            (LostReason::Evicted(Some(reason)), "evicted", "ended by force: maintenance"),
            (LostReason::StoreUnreachable, "store_unreachable", "renewals failed"),
            (LostReason::StoreReplaced, "store_replaced", "was replaced"),
            (LostReason::MaxHold, "max_hold", "longest allowed time"),
        ] {
            assert_eq!(lost.name(), name);
            assert!(lost.to_string().contains(text), "{lost}");
        }
    }
}
