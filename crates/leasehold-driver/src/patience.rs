use std::time::Duration;

/// A server that is only busy may take so long.
const LEAST: Duration = Duration::from_millis(100);

/// How long a request may wait on a connection before it counts as stalled, where an operation may take `timeout`: short
/// enough that a lease of this term is renewed in time all the same.
pub fn patience(term: Option<Duration>, timeout: Duration) -> Duration {
    let part = timeout / 10;
    term.map_or(part, |term| (term / 6).max(LEAST).min(part))
}
