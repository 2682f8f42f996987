//! The errors of all SQL servers.

use std::error::Error as StdError;
use std::fmt::Display;
use std::time::Duration;

use leasehold_core::{Effect, Error};

/// The error of a request whose row stayed locked.
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

/// What a driver's failure is about: the texts around its innermost cause name only a kind or a step.
pub fn cause(failure: &(dyn StdError + 'static)) -> String {
    std::iter::successors(Some(failure), |&error| error.source())
        .last()
        .unwrap_or(failure)
        .to_string()
}

/// The error of a request whose connection ended before the reply.
pub fn broken(server: &str, why: &str) -> Error {
    let message = format!("the connection to {server} broke before its reply arrived ({why})");
    Error::unavailable(Effect::Unknown, message)
}

/// The error of a server to which no connection can be made.
pub fn unreachable(server: &str, why: &str) -> Error {
    Error::unavailable(Effect::NotApplied, format!("connecting to {server} failed ({why})"))
}

/// The error of a server without TLS, where `without` is the option that connects without.
pub fn no_tls(server: &str, without: &str) -> Error {
    Error::denied(format!(
        "{server} does not use TLS; turn it on there, or connect without it by {without}"
    ))
}

/// The error of certificates that one side does not trust. `authority` is the option that names an authority's.
pub fn untrusted(server: &str, why: &str, authority: &str, without: &str) -> Error {
    Error::denied(format!(
        "{server} and this client do not trust each other's certificates ({why}); the option {authority} names the \
         certificate of a private authority, and {without} connects without TLS"
    ))
}
