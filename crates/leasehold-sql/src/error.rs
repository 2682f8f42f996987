//! The errors of all SQL servers.

use std::fmt::Display;
use std::time::Duration;

use leasehold_core::{Effect, Error};

/// The error of a request that waited for a row in vain.
pub fn locked(server: &str) -> Error {
    let message = format!("{server}: another transaction holds the row of the key for too long");
    Error::unavailable(Effect::NotApplied, message)
}

/// The error of an operation that got no answer in time.
pub fn unanswered(server: &str, limit: Duration, effect: Effect) -> Error {
    Error::unavailable(effect, format!("{server} did not answer within {limit:?}"))
}

/// The error of a request for which no connection was free, or could be made, for so long.
pub fn no_connection(server: &str, limit: Duration) -> Error {
    let message = format!("no connection to {server} was free or could be made within {limit:?}");
    Error::unavailable(Effect::NotApplied, message)
}

/// The error of a request for which all connections were in use for so long.
pub fn all_in_use(server: &str, most: usize, limit: Duration) -> Error {
    Error::unavailable(
        Effect::NotApplied,
        format!(
            "all {most} connections of the pool to {server} were in use for {limit:?}; raise their number, or give them \
             back sooner"
        ),
    )
}

/// The error of a reply that none of the store's statements and routines has. What was sent may have acted.
pub fn unexpected(server: &str, what: impl Display) -> Error {
    Error::unexpected(format!(
        "{server} sent an unexpected reply ({what}); are the store's objects there of another version?"
    ))
    .with_effect(Effect::Unknown)
}
