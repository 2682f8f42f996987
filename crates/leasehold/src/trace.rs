//! Events and spans through the `tracing` facade, as functions of plain values; empty without the feature `tracing` (F12).

#![cfg_attr(not(feature = "tracing"), allow(unused_variables, reason = "nobody is told"))]

use std::fmt::Debug;
use std::future::Future;

use leasehold_core::{Error, GroupName, Key, LeaseId, LostReason};
#[cfg(feature = "tracing")]
use tracing::{Instrument, debug, debug_span, info, warn};

pub(crate) fn lease_lost(lease: &LeaseId, reason: &LostReason) {
    #[cfg(feature = "tracing")]
    warn!(target: "leasehold", %lease, %reason, "a lease is lost");
}

pub(crate) fn renewal_failed(lease: &LeaseId, error: &Error) {
    #[cfg(feature = "tracing")]
    warn!(target: "leasehold", %lease, %error, "a renewal failed");
}

pub(crate) fn release_failed(error: &Error) {
    #[cfg(feature = "tracing")]
    debug!(target: "leasehold", %error, "a release failed");
}

pub(crate) fn no_runtime(error: &Error) {
    #[cfg(feature = "tracing")]
    debug!(target: "leasehold", %error, "background work waits for a runtime");
}

pub(crate) fn no_wakeups(error: &Error) {
    #[cfg(feature = "tracing")]
    debug!(target: "leasehold", %error, "no wake-ups; polling instead");
}

pub(crate) fn janitor_round(store: &str, purged: &dyn Debug, failed: Option<&Error>) {
    #[cfg(feature = "tracing")]
    match failed {
        None => debug!(target: "leasehold", store, ?purged, "a janitor's round is done"),
        Some(error) => {
            warn!(target: "leasehold", store, ?purged, %error, "a janitor's round failed");
        }
    }
}

pub(crate) fn leadership(election: &Key, candidate: &GroupName, what: &str) {
    #[cfg(feature = "tracing")]
    info!(target: "leasehold", %election, %candidate, "leadership {what}");
}

pub(crate) fn resignation_continues(error: &Error) {
    #[cfg(feature = "tracing")]
    debug!(target: "leasehold", %error, "a resignation goes on in the background");
}

pub(crate) fn stood_down_early() {
    #[cfg(feature = "tracing")]
    debug!(target: "leasehold", "a candidate stood down before everything was answered");
}

/// Runs an acquire in a span of its own.
pub(crate) fn in_acquire<F: Future>(
    store: &str,
    label: Option<&str>,
    acquire: F,
) -> impl Future<Output = F::Output> + use<F> {
    #[cfg(feature = "tracing")]
    let acquire = acquire.instrument(debug_span!(target: "leasehold", "acquire", store, label));
    acquire
}

/// Runs a future on another thread in the span of the caller.
pub(crate) fn in_current_span<F: Future>(future: F) -> impl Future<Output = F::Output> + use<F> {
    #[cfg(feature = "tracing")]
    let future = future.in_current_span();
    future
}
