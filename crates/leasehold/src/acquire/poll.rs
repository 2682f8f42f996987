use std::time::Duration;

use leasehold_core::{Backoff as _, Exponential, Random, Uniform};

/// How often a waiter tries although the store would wake it.
const PUSHED_POLL: Duration = Duration::from_secs(10);

/// The longest pause of a waiter while the store fails, and of an observer that the store does not wake.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a waiter that the store does not wake tries often.
const EAGER: Duration = Duration::from_secs(10);

/// The longest pause of one that tries often.
const EAGER_PAUSE: Duration = Duration::from_millis(500);

/// The pause of a waiter that the store does not wake. One that has come lately gets a free key soon; ten that have waited for
/// long cost the server five tries a second.
pub(crate) fn pause(retry: u32, waited: Duration) -> Option<Duration> {
    match waited < EAGER {
        true => usual_backoff(EAGER_PAUSE).next(retry),
        false => Uniform::new(Duration::from_millis(1_750), Duration::from_millis(750)).next(retry),
    }
}

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
