//! Metrics through the `metrics` facade, by store and by the user's label, never by key; events and spans through the
//! `tracing` facade (F12). Functions of plain values, so that the rest knows neither; without the crate features `metrics`
//! and `tracing` they do nothing.
//!
//! The guide lists the metrics with their units and labels.

#![cfg_attr(
    not(all(feature = "metrics", feature = "tracing")),
    allow(unused_variables, reason = "without the facade nothing is logged")
)]

use std::fmt::{self, Debug};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tracing")]
use leasehold_core::FencingToken;
use leasehold_core::{
    Error, GroupName, Key, Lease, LostReason, Record, ReleaseEntry, ReleaseOutcome, RenewOutcome,
    Unreadable,
};
#[cfg(feature = "metrics")]
use metrics::{
    Gauge, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
#[cfg(feature = "tracing")]
use tracing::{Instrument, debug, debug_span, info, warn};

#[cfg(feature = "metrics")]
fn label(label: Option<&Arc<str>>) -> SharedString {
    label.map_or(SharedString::const_str(""), |label| SharedString::from_shared(Arc::clone(label)))
}

/// Describes each metric to the recorder; may be repeated.
pub(crate) fn describe() {
    #[cfg(feature = "metrics")]
    {
        describe_counter!("leasehold_attempts_total", Unit::Count, "Tries to acquire a lock");
        describe_histogram!(
            "leasehold_wait_seconds",
            Unit::Seconds,
            "Calls for a lock, from call to return"
        );
        describe_histogram!(
            "leasehold_hold_seconds",
            Unit::Seconds,
            "Holds, from grant to release or loss"
        );
        describe_gauge!("leasehold_held", Unit::Count, "Leases that are held now");
        describe_counter!("leasehold_renewals_total", Unit::Count, "Renewals of leases");
        describe_counter!("leasehold_losses_total", Unit::Count, "Leases lost while a guard lived");
        describe_counter!(
            "leasehold_purged_total",
            Unit::Count,
            "Expired records and counters removed"
        );
        describe_counter!("leasehold_janitor_rounds_total", Unit::Count, "Rounds of janitors");
    }
}

pub(crate) fn tried(store: &'static str, of: Option<&Arc<str>>, outcome: &'static str) {
    #[cfg(feature = "metrics")]
    counter!("leasehold_attempts_total", "store" => store, "label" => label(of), "outcome" => outcome)
        .increment(1);
}

pub(crate) fn waited(
    store: &'static str,
    of: Option<&Arc<str>>,
    outcome: &'static str,
    waited: impl FnOnce() -> Duration,
) {
    #[cfg(feature = "metrics")]
    histogram!("leasehold_wait_seconds", "store" => store, "label" => label(of), "outcome" => outcome)
        .record(waited());
}

/// Counts a held lease until it is dropped.
pub(crate) struct Held {
    #[cfg(feature = "metrics")]
    gauge: Gauge,
}

impl Held {
    pub(crate) fn new(store: &'static str, of: Option<&Arc<str>>) -> Self {
        #[cfg(feature = "metrics")]
        let gauge = gauge!("leasehold_held", "store" => store, "label" => label(of));
        #[cfg(feature = "metrics")]
        gauge.increment(1.0);
        Self {
            #[cfg(feature = "metrics")]
            gauge,
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        #[cfg(feature = "metrics")]
        self.gauge.decrement(1.0);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

/// A lease is held from now on: by a grant, or adopted or continued.
pub(crate) fn granted(store: &'static str, lease: &Lease, fresh: bool) {
    #[cfg(feature = "tracing")]
    {
        let (key, id) = (&lease.claims.first().key, &lease.id);
        let what = if fresh { "a lock is granted" } else { "a lease is continued" };
        debug!(target: "leasehold", store, %key, lease = %id, token = lease.token.map(FencingToken::get), "{what}");
    }
}

/// A try was refused; `is_here` if a lease of this process holds the key.
pub(crate) fn refused(store: &'static str, key: &Key, holder: Option<&Record>, is_here: bool) {
    #[cfg(feature = "tracing")]
    {
        let holder = holder.map(|holder| tracing::field::display(holder.who()));
        debug!(target: "leasehold", store, %key, holder, of_this_process = is_here, "a lock is refused");
    }
}

/// A caller waits for a lease of its own that is still held.
pub(crate) fn waits_for_itself(store: &'static str, holder: &Record, warns: bool) {
    #[cfg(feature = "tracing")]
    {
        let (key, lease) = (&holder.key, holder.id.as_ref().map(tracing::field::display));
        let what = "a caller waits for a lease of its own; locks are not re-entrant: pass the guard, or release it first";
        if warns {
            warn!(target: "leasehold", store, %key, lease, "{what}");
        } else {
            debug!(target: "leasehold", store, %key, lease, "{what}");
        }
    }
}

/// The store answered a release.
pub(crate) fn released(store: &'static str, lease: &ReleaseEntry, outcome: &ReleaseOutcome) {
    #[cfg(feature = "tracing")]
    {
        let key = lease.keys().first();
        debug!(target: "leasehold", store, key = key.map(tracing::field::display), lease = %lease.id(), ?outcome, "a lock is released");
    }
}

pub(crate) fn paused_time() {
    #[cfg(feature = "tracing")]
    warn!(target: "leasehold", "tokio's time is paused, and this Locker measures the machine's; build both it and its store with a TokioClock, or with a ManualClock");
}

pub(crate) fn hold_ended(store: &'static str, of: Option<&Arc<str>>, held_for: Duration) {
    #[cfg(feature = "metrics")]
    histogram!("leasehold_hold_seconds", "store" => store, "label" => label(of)).record(held_for);
}

pub(crate) fn renewed(store: &'static str, of: Option<&Arc<str>>, outcome: &RenewOutcome) {
    let outcome = match outcome {
        RenewOutcome::Held(_) => "renewed",
        RenewOutcome::Lost(_) => "lost",
        RenewOutcome::Failed(_) => "failed",
    };
    #[cfg(feature = "metrics")]
    counter!("leasehold_renewals_total", "store" => store, "label" => label(of), "outcome" => outcome)
        .increment(1);
}

/// A renewal failed; `first` after one that succeeded. Only the first is a warning: a store that is away fails all leases
/// again and again.
pub(crate) fn renewal_failed(store: &'static str, lease: &Lease, error: &Error, first: bool) {
    #[cfg(feature = "tracing")]
    {
        let (key, id) = (&lease.claims.first().key, &lease.id);
        if first {
            warn!(target: "leasehold", store, %key, lease = %id, %error, "renewals fail");
        } else {
            debug!(target: "leasehold", store, %key, lease = %id, %error, "a renewal failed");
        }
    }
}

pub(crate) fn renewals_succeed_again(store: &'static str) {
    #[cfg(feature = "tracing")]
    info!(target: "leasehold", store, "renewals succeed again");
}

pub(crate) fn lost(
    store: &'static str,
    of: Option<&Arc<str>>,
    lease: &Lease,
    reason: &LostReason,
    held_for: Duration,
) {
    #[cfg(feature = "tracing")]
    {
        let (key, id) = (&lease.claims.first().key, &lease.id);
        warn!(target: "leasehold", store, %key, lease = %id, %reason, "a lease is lost");
    }
    #[cfg(feature = "metrics")]
    counter!("leasehold_losses_total", "store" => store, "label" => label(of), "reason" => reason.name())
        .increment(1);
    hold_ended(store, of, held_for);
}

pub(crate) fn purged(store: &'static str, removed: usize, forgotten: usize) {
    for (what, count) in [("records", removed), ("counters", forgotten)] {
        #[cfg(feature = "metrics")]
        counter!("leasehold_purged_total", "store" => store, "what" => what)
            .increment(count.try_into().unwrap_or(u64::MAX));
    }
}

/// What the store has and cannot be read, in one event.
pub(crate) fn unreadable(store: &'static str, unreadable: &[Unreadable]) {
    #[cfg(feature = "tracing")]
    if let Some(Unreadable { name, error, .. }) = unreadable.first() {
        let count = unreadable.len();
        warn!(target: "leasehold", store, count, first = name, %error, "some records cannot be read");
    }
}

pub(crate) fn janitor_round(store: &'static str, purged: &dyn Debug, failed: Option<&Error>) {
    #[cfg(feature = "tracing")]
    match failed {
        None => debug!(target: "leasehold", store, ?purged, "a janitor's round is done"),
        Some(error) => {
            warn!(target: "leasehold", store, ?purged, %error, "a janitor's round failed");
        }
    }
    let outcome = if failed.is_none() { "done" } else { "failed" };
    #[cfg(feature = "metrics")]
    counter!("leasehold_janitor_rounds_total", "store" => store, "outcome" => outcome).increment(1);
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

pub(crate) fn leadership(election: &Key, candidate: &GroupName, what: &str) {
    #[cfg(feature = "tracing")]
    info!(target: "leasehold", %election, %candidate, "leadership {what}");
}

pub(crate) fn campaign_failed(election: &Key, candidate: &GroupName, error: &Error) {
    #[cfg(feature = "tracing")]
    warn!(target: "leasehold", %election, %candidate, %error, "a campaign failed and is repeated");
}

pub(crate) fn resignation_continues(error: &Error) {
    #[cfg(feature = "tracing")]
    debug!(target: "leasehold", %error, "a resignation continues in the background");
}

pub(crate) fn stood_down_early() {
    #[cfg(feature = "tracing")]
    debug!(target: "leasehold", "a candidate ended before every request was answered");
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
