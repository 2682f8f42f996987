//! Converts failures of the driver and of Spanner.

use std::time::Duration;

use google_cloud_gax::client_builder::Error as BuildFailure;
use google_cloud_gax::error::rpc::Code;
use google_cloud_spanner::Error as Failure;
use leasehold_core::{Effect, Error, ErrorKind};

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

/// The error of a table that was not created: with its statement, if somebody else must create it.
pub(crate) fn of_creating(error: Error, statement: &str) -> Error {
    match error.kind() {
        ErrorKind::Denied => Error::denied(format!(
            "{error}; the table is missing: let somebody with the role roles/spanner.databaseAdmin create it by this statement:\n{statement}"
        ))
        .with_effect(error.effect())
        .with_source(error),
        _ => error,
    }
}

/// Whether a request got no answer in time, as on a connection that is dead.
pub(crate) fn is_unanswered(failure: &Failure) -> bool {
    let is_late = |code| matches!(code, Code::DeadlineExceeded | Code::Cancelled);
    failure.is_timeout() || failure.status().is_some_and(|status| is_late(status.code))
}

/// Whether the client's session is not there any more.
pub(crate) fn is_session_gone(failure: &Failure) -> bool {
    failure.status().is_some_and(|status| names_session(status.code, &status.message))
}

fn names_session(code: Code, message: &str) -> bool {
    code == Code::NotFound && message.contains("Session not found")
}

/// Whether Spanner replied with this code.
pub(crate) fn has_code(error: &Error, code: Code) -> bool {
    let failure = error.cause().and_then(|source| source.downcast_ref::<Failure>());
    failure.and_then(Failure::status).is_some_and(|status| status.code == code)
}

/// Whether a request that shared a transaction is worth one of its own.
pub(crate) fn is_to_be_sent_again(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable && error.effect() == Effect::NotApplied
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
        Code::NotFound if names_session(code, message) => {
            Error::unavailable(effect, replied)
        }
        Code::NotFound => Error::incompatible(format!("{replied}; does the database exist?")).with_effect(effect),
        Code::InvalidArgument if message.contains("not found") => Error::incompatible(format!(
            "the table is missing or outdated; run `leasehold init`, or `Locker::prepare`; {replied}"
        ))
        .with_effect(effect),
        // The store's statements are the same for every database.
        Code::InvalidArgument if message.to_ascii_lowercase().contains("syntax error") => {
            Error::incompatible(format!(
                "the database is of the PostgreSQL dialect, which the store does not support; create one of the GoogleSQL dialect; \
                 {replied}"
            ))
            .with_effect(effect)
        }
        Code::ResourceExhausted => Error::unavailable(effect, replied),
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Internal
        | Code::Unknown => Error::unavailable(effect, replied),
        _ => Error::unexpected(replied).with_effect(effect),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use google_cloud_gax::error::rpc::Status;

    #[test]
    fn each_reply_of_spanner_has_its_kind_and_effect() {
        use Effect::{NotApplied, Unknown};
        use ErrorKind::{Denied, Incompatible, Unavailable, Unexpected};
        let cases = [
            (Code::Aborted, "", Unavailable, NotApplied),
            (Code::PermissionDenied, "", Denied, Unknown),
            (Code::Unauthenticated, "", Denied, Unknown),
            (Code::NotFound, "Session not found: s", Unavailable, Unknown),
            (Code::NotFound, "Database not found: d", Incompatible, Unknown),
            (Code::InvalidArgument, "Table not found: leasehold", Incompatible, Unknown),
            (Code::InvalidArgument, "[ERROR] syntax error at", Incompatible, Unknown),
            (Code::InvalidArgument, "", Unexpected, Unknown),
            (Code::ResourceExhausted, "", Unavailable, Unknown),
            (Code::Unavailable, "", Unavailable, Unknown),
            (Code::DeadlineExceeded, "", Unavailable, Unknown),
            (Code::FailedPrecondition, "", Unexpected, Unknown),
        ];
        for (code, message, kind, effect) in cases {
            for committing in [true, false] {
                let status = Status::default().set_code(code).set_message(message);
                let error = of("spanner://p/i/d", Failure::service(status), committing);
                let effect = if committing { effect } else { NotApplied };
                assert_eq!((error.kind(), error.effect()), (kind, effect), "{code:?} {message}");
                assert!(error.to_string().contains("spanner://p/i/d"), "{error}");
            }
        }
    }

    #[test]
    fn who_lacks_a_permission_is_told_the_roles_and_the_statement() {
        let status = Status::default().set_code(Code::PermissionDenied);
        let error = of("spanner://p/i/d", Failure::service(status), true);
        assert!(error.to_string().contains("roles"), "{error}");
        let error = of_creating(error, "CREATE TABLE t");
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Denied, Effect::Unknown));
        assert!(error.to_string().ends_with("CREATE TABLE t"), "{error}");
        let other = Error::unavailable(Effect::Unknown, "gone");
        assert_eq!(of_creating(other, "CREATE TABLE t").kind(), ErrorKind::Unavailable);
    }
}
