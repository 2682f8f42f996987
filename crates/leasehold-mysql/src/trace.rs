//! Events through the `tracing` facade; empty without the feature `tracing`.

#![cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "nobody is told"))]

use leasehold_core::Error;

pub(crate) fn not_listed(key: &str, error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "leasehold_mysql", key, %error, "a lock cannot be listed");
}
