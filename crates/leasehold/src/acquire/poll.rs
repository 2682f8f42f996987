use std::time::Duration;

use leasehold_core::{Exponential, Random};

/// How often somebody looks by himself although the store would wake him.
const PUSHED_POLL: Duration = Duration::from_secs(10);

/// The pause of who is woken by the store: long, and not in step with others'.
pub(crate) fn pushed_poll(random: &mut Random) -> Duration {
    let fifth = PUSHED_POLL / 5;
    PUSHED_POLL - fifth / 2 + random.up_to(fifth)
}

/// The pauses of who is not woken, unless the caller gives others.
pub(crate) fn usual_backoff() -> Exponential {
    Exponential::new(Duration::from_millis(10), Duration::from_secs(1))
        .expect("the first pause is the shorter")
}
