//! Converts failures of the driver and of Spanner.

use std::time::Duration;

use google_cloud_gax::client_builder::Error as BuildFailure;
use google_cloud_gax::error::rpc::Code;
use google_cloud_spanner::Error as Failure;
use leasehold_core::{Effect, Error};

/// The error of a request to `server`, which may have been committed.
pub(crate) fn of(server: &str, failure: Failure, committing: bool) -> Error {
    let effect = if committing { Effect::Unknown } else { Effect::NotApplied };
    let mapped = match failure.status() {
        Some(status) => of_status(server, status.code, &status.message, effect),
        None if failure.is_authentication()
            || matches!(failure.http_status_code(), Some(401 | 403)) =>
        {
            Error::denied(format!("{server}: the credentials cannot be used ({failure})"))
                .with_effect(effect)
        }
        None => Error::unavailable(effect, format!("{server} cannot be reached ({failure})")),
    };
    mapped.with_source(failure)
}

/// The error of a request that got no answer in time, and may have been committed.
pub(crate) fn unanswered(server: &str, limit: Duration, committing: bool) -> Error {
    let effect = if committing { Effect::Unknown } else { Effect::NotApplied };
    Error::unavailable(effect, format!("{server} did not answer within {limit:?}"))
}

/// The error of a client that cannot be made: without credentials, for instance.
pub(crate) fn of_building(server: &str, failure: BuildFailure) -> Error {
    Error::denied(format!("{server} cannot be used ({failure})")).with_source(failure)
}

/// Whether Spanner replied with this code.
pub(crate) fn has_code(error: &Error, code: Code) -> bool {
    let failure = error.cause().and_then(|source| source.downcast_ref::<Failure>());
    failure.and_then(Failure::status).is_some_and(|status| status.code == code)
}

/// Whether a change of the schema was refused because another one is under way.
pub(crate) fn is_of_busy_schema(error: &Error) -> bool {
    error.to_string().contains("concurrent schema change")
}

fn of_status(server: &str, code: Code, message: &str, effect: Effect) -> Error {
    let replied = format!("{server} replied: {message} ({})", code.name());
    match code {
        // It was rolled back.
        Code::Aborted => Error::unavailable(
            Effect::NotApplied,
            format!(
                "{server}: other transactions kept the rows of the keys for too long; {replied}"
            ),
        ),
        Code::PermissionDenied | Code::Unauthenticated => Error::denied(format!(
            "{replied}; https://docs.rs/leasehold-spanner lists the roles that the store needs"
        ))
        .with_effect(effect),
        Code::NotFound => Error::incompatible(format!("{replied}; does the database exist?")).with_effect(effect),
        Code::InvalidArgument if message.contains("not found") => Error::incompatible(format!(
            "the table of the store is missing, or of another version; run `leasehold init` with this store; {replied}"
        ))
        .with_effect(effect),
        Code::ResourceExhausted => Error::unavailable(effect, replied),
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Internal
        | Code::Unknown => Error::unavailable(effect, replied),
        _ => Error::unexpected(replied).with_effect(effect),
    }
}
