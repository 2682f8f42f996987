//! Values as the statements of every server take them.

use std::time::Duration;

use leasehold_core::{FencingToken, Mode, RenewEntry, term};

/// Microseconds; the longest term is 10 years.
pub fn micros(duration: Duration) -> i64 {
    i64::try_from(term::micros_up(duration)).unwrap_or(i64::MAX)
}

/// Tokens are below 2^53.
pub fn integer(token: FencingToken) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}

/// The limit of a claim: -1 for exclusive, 0 for shared, n for shared by at most n.
pub fn limit(mode: Mode) -> i32 {
    match mode {
        Mode::Exclusive => -1,
        Mode::Shared { max } => max.map_or(0, |max| i32::try_from(max.get()).unwrap_or(i32::MAX)),
    }
}

/// What a renewal asks for: the new term, the token, and the least token after it.
pub fn terms(lease: &RenewEntry) -> [Option<i64>; 3] {
    [lease.term().duration().map(micros), lease.token().map(integer), lease.raise().map(integer)]
}
