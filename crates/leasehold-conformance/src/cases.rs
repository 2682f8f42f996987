//! The named cases, by clause of the contract.

mod c01_exchanges;
mod c02_whole;
mod c03_identity;
mod c03b_broken;
mod c04_clock;
mod c05_expired;
mod c06_ended;
mod c07_mark;
mod c07_tokens;
mod c08_swap;
mod c09_shared;
mod c10_lost_replies;
mod c10_retry_after;
mod c11_refusal;
mod c12_wakeups;
mod c13_release;
mod c14_verbatim;
mod c15_dropped;
mod evict;
mod health;
mod list;

use std::time::Duration;

use crate::Backing;
use crate::case::Case;

/// How soon a state forgets its counters if it is opened for a case that needs this (C7).
pub(crate) const FORGET_AFTER: Duration = Duration::from_secs(10);

/// All cases, in the order of the clauses.
pub(crate) fn all<B: Backing>() -> Vec<Case<B>> {
    [
        c01_exchanges::cases(),
        c02_whole::cases(),
        c03_identity::cases(),
        c03b_broken::cases(),
        c04_clock::cases(),
        c05_expired::cases(),
        c06_ended::cases(),
        c07_tokens::cases(),
        c07_mark::cases(),
        c08_swap::cases(),
        c09_shared::cases(),
        c10_lost_replies::cases(),
        c10_retry_after::cases(),
        c11_refusal::cases(),
        c12_wakeups::cases(),
        c13_release::cases(),
        c14_verbatim::cases(),
        c15_dropped::cases(),
        list::cases(),
        evict::cases(),
        health::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
