//! Events through the `tracing` facade; empty without the feature `tracing`.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "nothing is logged"))]

use leasehold_core::Error;

pub(crate) fn no_wakeups(error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "leasehold_postgres", %error, "no wake-ups; waiters poll");
}
