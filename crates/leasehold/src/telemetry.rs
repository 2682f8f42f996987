//! Counters and histograms through the `metrics` facade, by store and by the user's label, never by key (F12).
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

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{LostReason, RenewOutcome, Result};
use metrics::{SharedString, counter, histogram};

use crate::attempt::Tried;
use crate::held::Held;
use crate::janitor::Purged;

fn label(label: Option<&Arc<str>>) -> SharedString {
    label.map_or(SharedString::const_str(""), |label| SharedString::from_shared(Arc::clone(label)))
}

pub(crate) fn tried(store: &'static str, of: Option<&Arc<str>>, tried: &Tried) {
    let outcome = match tried {
        Tried::Granted { .. } => "granted",
        Tried::Refused(_) => "refused",
        Tried::Failed(_) => "failed",
    };
    counter!("leasehold_attempts_total", "store" => store, "label" => label(of), "outcome" => outcome)
        .increment(1);
}

pub(crate) fn waited(
    store: &'static str,
    of: Option<&Arc<str>>,
    outcome: &'static str,
    waited: Duration,
) {
    histogram!("leasehold_wait_seconds", "store" => store, "label" => label(of), "outcome" => outcome)
        .record(waited);
}

pub(crate) fn hold_ended(store: &'static str, held: &Held, now: Duration) {
    histogram!("leasehold_hold_seconds", "store" => store, "label" => label(held.plan.label.as_ref()))
        .record(now.saturating_sub(held.started));
}

pub(crate) fn renewal(store: &'static str, held: &Held, outcome: &RenewOutcome) {
    let outcome = match outcome {
        RenewOutcome::Held(_) => "held",
        RenewOutcome::Lost(_) => "lost",
        RenewOutcome::Failed(error) => {
            tracing::warn!(lease = %held.lease.id, %error, "a renewal failed");
            "failed"
        }
    };
    counter!(
        "leasehold_renewals_total",
        "store" => store, "label" => label(held.plan.label.as_ref()), "outcome" => outcome
    )
    .increment(1);
}

pub(crate) fn lost(store: &'static str, held: &Held, reason: &LostReason, now: Duration) {
    tracing::warn!(lease = %held.lease.id, %reason, "a lease is lost");
    let reason = match reason {
        LostReason::Expired => "expired",
        LostReason::Gone => "gone",
        LostReason::Evicted(_) => "evicted",
        LostReason::StoreUnreachable => "store_unreachable",
        LostReason::MaxHold => "max_hold",
    };
    counter!(
        "leasehold_losses_total",
        "store" => store, "label" => label(held.plan.label.as_ref()), "reason" => reason
    )
    .increment(1);
    hold_ended(store, held, now);
}

pub(crate) fn purged(store: &'static str, removed: usize, forgotten: usize) {
    for (what, count) in [("records", removed), ("counters", forgotten)] {
        let count = count.try_into().unwrap_or(u64::MAX);
        counter!("leasehold_purged_total", "store" => store, "what" => what).increment(count);
    }
}

pub(crate) fn janitor_round(store: &'static str, purged: Purged, round: &Result<()>) {
    let outcome = match round {
        Ok(()) => {
            tracing::debug!(store, ?purged, "a janitor's round is done");
            "done"
        }
        Err(error) => {
            tracing::warn!(store, ?purged, %error, "a janitor's round failed");
            "failed"
        }
    };
    counter!("leasehold_janitor_rounds_total", "store" => store, "outcome" => outcome).increment(1);
}
