//! Counters and histograms through the `metrics` facade, by store and by the user's label, never by key (F12). Without
//! the feature `metrics` nothing is counted.
//!
//! | name | kind | labels | counts |
//! |---|---|---|---|
//! | `leasehold_attempts_total` | counter | store, label, outcome | tries: granted, refused, failed |
//! | `leasehold_wait_seconds` | histogram | store, label, outcome | calls that wanted a lock, from call to return |
//! | `leasehold_hold_seconds` | histogram | store, label | from grant to release or loss |
//! | `leasehold_renewals_total` | counter | store, label, outcome | held, lost, failed |
//! | `leasehold_losses_total` | counter | store, label, reason | leases lost while a guard lived |
//! | `leasehold_purged_total` | counter | store, what | purged: records, counters |
//! | `leasehold_janitor_rounds_total` | counter | store, outcome | rounds of janitors: done, failed |

#![cfg_attr(not(feature = "metrics"), allow(unused_variables, reason = "nobody counts"))]

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{LostReason, RenewOutcome};
#[cfg(feature = "metrics")]
use metrics::{SharedString, counter, histogram};

#[cfg(feature = "metrics")]
fn label(label: Option<&Arc<str>>) -> SharedString {
    label.map_or(SharedString::const_str(""), |label| SharedString::from_shared(Arc::clone(label)))
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
    waited: Duration,
) {
    #[cfg(feature = "metrics")]
    histogram!("leasehold_wait_seconds", "store" => store, "label" => label(of), "outcome" => outcome)
        .record(waited);
}

pub(crate) fn hold_ended(store: &'static str, of: Option<&Arc<str>>, held_for: Duration) {
    #[cfg(feature = "metrics")]
    histogram!("leasehold_hold_seconds", "store" => store, "label" => label(of)).record(held_for);
}

pub(crate) fn renewed(store: &'static str, of: Option<&Arc<str>>, outcome: &RenewOutcome) {
    let outcome = match outcome {
        RenewOutcome::Held(_) => "held",
        RenewOutcome::Lost(_) => "lost",
        RenewOutcome::Failed(_) => "failed",
    };
    #[cfg(feature = "metrics")]
    counter!("leasehold_renewals_total", "store" => store, "label" => label(of), "outcome" => outcome)
        .increment(1);
}

pub(crate) fn lost(
    store: &'static str,
    of: Option<&Arc<str>>,
    reason: &LostReason,
    held_for: Duration,
) {
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

pub(crate) fn janitor_round(store: &'static str, outcome: &'static str) {
    #[cfg(feature = "metrics")]
    counter!("leasehold_janitor_rounds_total", "store" => store, "outcome" => outcome).increment(1);
}
