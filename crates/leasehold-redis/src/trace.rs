//! Events through the `tracing` facade; empty without the feature `tracing`.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "nothing is logged"))]

use leasehold_core::Error;

pub(crate) fn slots_unknown(error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "leasehold_redis", %error, "no known node reports which nodes own the slots");
}

pub(crate) fn no_wakeups(error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "leasehold_redis", %error, "no wake-ups until the subscription is restored");
}
