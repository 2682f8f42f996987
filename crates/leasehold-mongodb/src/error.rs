//! Converts failures of the driver and of the server.

use leasehold_core::{Effect, Error};
use mongodb::bson::Document;
use mongodb::error::{CommandError, Error as DriverError, ErrorKind, WriteFailure};

/// The error of a document that is not of the store's form.
pub(crate) fn damaged(what: &'static str) -> Error {
    Error::corrupt(what)
}

/// Why a write was not carried out, although another try can be.
pub(crate) const DUPLICATE_KEY: i32 = 11_000;
pub(crate) const WRITE_CONFLICT: i32 = 112;

/// The server gave the command up when its `maxTimeMS` were over.
pub(crate) const OUT_OF_TIME: i32 = 50;

/// The code of the failure that the server reported.
pub(crate) fn code(error: &DriverError) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(CommandError { code, .. }) => Some(*code),
        ErrorKind::Write(WriteFailure::WriteError(error)) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => Some(error.code),
        _ => None,
    }
}

/// The error of a command to `server`.
pub(crate) fn of(server: &str, error: DriverError) -> Error {
    let mapped = match &*error.kind {
        // The driver's own text adds the bytes of the reply.
        ErrorKind::Command(command) => return of_command(server, command),
        ErrorKind::Authentication { message, .. } => refused_login(server, message),
        ErrorKind::ServerSelection { message, .. } if is_distrusted(message) => {
            distrusted(server, message)
        }
        ErrorKind::ServerSelection { message, .. } => unreachable(server, message),
        ErrorKind::DnsResolve { message, .. } => unreachable(server, message),
        ErrorKind::ConnectionPoolCleared { message, .. } => unreachable(server, message),
        ErrorKind::InvalidArgument { message, .. }
        | ErrorKind::InvalidTlsConfig { message, .. } => {
            Error::invalid_input(format!("{server} cannot be used: {message}"))
        }
        ErrorKind::SessionsNotSupported | ErrorKind::IncompatibleServer { .. } => {
            Error::incompatible(format!("{server} lacks what the store needs ({})", error.kind))
        }
        ErrorKind::InvalidResponse { message, .. } => unexpected(server, message),
        kind => Error::unavailable(
            Effect::Unknown,
            format!("the connection to {server} broke before its reply arrived ({kind})"),
        ),
    };
    mapped.with_source(error)
}

fn of_command(server: &str, error: &CommandError) -> Error {
    let CommandError { code, code_name, message, .. } = error;
    of_code(server, *code, message, format!("{server} replied: {message} ({code_name})"))
}

/// The error of an update that failed, of several in a command: others may have been carried out.
pub(crate) fn of_update(server: &str, code: i32, why: &str) -> Error {
    perhaps_applied(of_code(server, code, why, format!("{server} refuses an update: {why}")))
}

fn of_code(server: &str, code: i32, message: &str, replied: String) -> Error {
    match code {
        // Unauthorized.
        13 => Error::denied(format!(
            "{replied}; the page of the store lists the privileges that its user needs"
        )),
        // AuthenticationFailed, UserNotFound.
        18 | 11 => refused_login(server, message),
        code if is_missing_index(code, message) => no_index(server),
        // BadValue.
        2 if message.contains("does not have journaling enabled") => Error::incompatible(format!(
            "{replied}; the store needs a server with a journal, without which it would forget leases when it ends"
        )),
        // NotWritablePrimary, NotPrimaryNoSecondaryOk, and the older code: it did not begin.
        10_107 | 13_435 | 10_058 | WRITE_CONFLICT => {
            Error::unavailable(Effect::NotApplied, replied)
        }
        // MaxTimeMSExpired, Interrupted…, ShutdownInProgress, PrimarySteppedDown, NotYetInitialized and what networks cause.
        OUT_OF_TIME | 11_600 | 11_601 | 11_602 | 13_436 | 91 | 189 | 94 | 6 | 7 | 89 | 9_001
        | 134 | 262 => Error::unavailable(Effect::Unknown, replied),
        // CommandNotSupportedOnView.
        166 => {
            Error::incompatible(format!("{replied}; give another name by the option collection"))
        }
        // FailedToParse, TypeMismatch, CommandNotFound and an unknown stage or operator: no pipelines in updates.
        9 | 14 | 59 | 40_324 | 168 => {
            Error::incompatible(format!("{replied}; the store needs MongoDB 4.4 or newer"))
        }
        _ => Error::unexpected(replied).with_effect(Effect::Unknown),
    }
}

/// Whether there is no index that fits the hint, which each write carries.
pub(crate) fn is_missing_index(code: i32, message: &str) -> bool {
    // BadValue.
    code == 2 && message.contains("hint provided does not correspond")
}

/// The failure in a reply that reports none: a write that too few servers have (yet).
pub(crate) fn of_write_concern(server: &str, reply: &Document) -> Result<(), Error> {
    let Ok(failure) = reply.get_document("writeConcernError") else { return Ok(()) };
    let why = failure.get_str("errmsg").unwrap_or("no reason");
    Err(Error::unavailable(
        Effect::Unknown,
        format!("{server} wrote, but not on a majority of the replica set in time ({why})"),
    ))
}

pub(crate) fn no_index(server: &str) -> Error {
    Error::incompatible(format!(
        "the collection on {server} has no index resource_1, without which two clients could hold one key; run `leasehold \
         init`, or mongo-lock's CreateIndexes"
    ))
}

pub(crate) fn unanswered(server: &str, limit: std::time::Duration, effect: Effect) -> Error {
    Error::unavailable(effect, format!("{server} did not answer within {limit:?}"))
}

/// The failure of a request of which a part, or an earlier try, may have had its effect.
pub(crate) fn perhaps_applied(error: Error) -> Error {
    match error.kind() {
        leasehold_core::ErrorKind::Unavailable => error.with_effect(Effect::Unknown),
        _ => error,
    }
}

pub(crate) fn unexpected(server: &str, what: &str) -> Error {
    Error::unexpected(format!("{server} sent an unexpected reply ({what})"))
        .with_effect(Effect::Unknown)
}

fn refused_login(server: &str, why: &str) -> Error {
    Error::denied(format!("{server} refuses the login ({why})"))
}

/// Whether the certificate of each server that was tried is refused. Where one only cannot be reached, it may come back.
fn is_distrusted(message: &str) -> bool {
    let times = |part| message.matches(part).count();
    times("invalid peer certificate") >= times("Address: ").max(1)
}

fn distrusted(server: &str, why: &str) -> Error {
    Error::denied(format!(
        "the certificate of {server} is not trusted; the option tlsCAFile names the certificate of a private authority ({why})"
    ))
}

pub(crate) fn unreachable(server: &str, why: &str) -> Error {
    Error::unavailable(Effect::NotApplied, format!("no server of {server} can be used ({why})"))
}

/// An error about the document of a key.
pub(crate) fn of_key(error: Error, key: &leasehold_core::Key) -> Error {
    let message = format!("the document of {key:?} is damaged: {error}");
    Error::corrupt(message).with_effect(error.effect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_try_that_finds_no_server_has_an_unknown_effect() {
        let error = perhaps_applied(unreachable("a.test", "connection refused"));
        assert_eq!(error.effect(), Effect::Unknown);
        assert!(error.to_string().contains("connection refused"), "{error}");
        let damaged = perhaps_applied(damaged("counter is no token"));
        assert_eq!(damaged.effect(), Effect::NotApplied);
    }

    /// A primary may step down between the updates of one command.
    #[test]
    fn an_update_fails_as_a_command_does_and_others_may_be_done() {
        use leasehold_core::ErrorKind::{Incompatible, Unavailable, Unexpected};
        for (code, why, kind) in [
            (10_107, "Not primary while writing to test.locks", Unavailable),
            (189, "operation was interrupted", Unavailable),
            (2, "hint provided does not correspond to an existing index", Incompatible),
            (14, "Cannot apply $push to a value", Incompatible),
            (17_419, "Resulting document is too large", Unexpected),
        ] {
            let error = of_update("a.test", code, why);
            assert_eq!(error.kind(), kind, "{error}");
            if kind == Unavailable {
                assert_eq!(error.effect(), Effect::Unknown, "{error}");
            }
        }
    }
}
