use std::time::Duration;

use leasehold_core::{Exponential, Random};

/// How often a waiter tries although the store would wake it.
const PUSHED_POLL: Duration = Duration::from_secs(10);

/// The longest pause of a waiter that the store does not wake.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The pause of a waiter that the store wakes: long, and with jitter.
pub(crate) fn pushed_poll(random: &mut Random) -> Duration {
    let fifth = PUSHED_POLL / 5;
    PUSHED_POLL - fifth / 2 + random.up_to(fifth)
}

/// The pauses of a waiter that the store does not wake, unless the caller sets others.
pub(crate) fn usual_backoff(longest: Duration) -> Exponential {
    let first = Duration::from_millis(10);
    Exponential::new(first, longest.max(first)).expect("the first pause is the shorter")
}
