//! Converts failures of the driver and of the server.

use std::error::Error as StdError;
use std::io;

use leasehold_core::{Effect, Error};
pub(crate) use leasehold_sql::unexpected;
use leasehold_sql::{broken, cause, no_tls, unreachable, untrusted};
use tokio_postgres::error::SqlState;

/// The code by which our functions refuse another isolation than READ COMMITTED.
pub(crate) const ISOLATION: &str = "LH001";
/// The code of a statement that writes on a server, or in a session, that is read-only.
const READ_ONLY: &str = "25006";
/// The code by which a standby refuses an unlogged table; we need no feature that a server lacks.
const IN_RECOVERY: &str = "0A000";

/// What to do about a read-only server.
const TO_THE_PRIMARY: &str = "use the primary (target_session_attrs=read-write)";

/// The error of a request to `server`.
pub(crate) fn of(server: &str, error: tokio_postgres::Error) -> Error {
    let mapped = match error.as_db_error() {
        Some(answer) => of_code(server, answer.code(), answer.message()),
        None => broken(server, &cause(&error)),
    };
    mapped.with_source(error)
}

/// The error of connecting to `server`.
pub(crate) fn of_connecting(server: &str, error: tokio_postgres::Error) -> Error {
    if let Some(answer) = error.as_db_error() {
        return of_code(server, answer.code(), answer.message())
            .with_effect(Effect::NotApplied)
            .with_source(error);
    }
    let why = cause(&error);
    let mapped = if why == NO_PASSWORD {
        Error::denied(format!("{server} asks for a password, and none is given; add it to the URL"))
    } else if why == NO_TLS {
        no_tls(server, "sslmode=disable")
    } else if is_of_tls(&error) {
        untrusted(server, &why, "sslrootcert", "sslmode=disable")
    } else if is_of_another_product(&error) {
        Error::incompatible(format!("{server} is not a PostgreSQL server ({why})"))
    } else {
        unreachable(server, &why)
    };
    mapped.with_source(error)
}

/// What the driver states, which gives these no code, if the server asks for a password and has none.
const NO_PASSWORD: &str = "password missing";
/// What the driver reports of a server that refuses TLS.
const NO_TLS: &str = "server does not support TLS";

/// Whether the answer was none of PostgreSQL's protocol.
fn is_of_another_product(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    text.starts_with("unexpected message from server")
        || text.starts_with("error parsing response from server")
        || io.is_some_and(|e| e.kind() == io::ErrorKind::InvalidInput)
        // The connection ended inside what would be a message.
        || io.is_some_and(|e| e.to_string() == "bytes remaining on stream")
}

/// Whether the session had prepared a call of a function that was replaced since, with other columns.
fn is_replaced(error: &tokio_postgres::Error) -> bool {
    let answer = error.as_db_error();
    answer.is_some_and(|answer| answer.routine() == Some("RevalidateCachedQuery"))
}

/// Whether the same request may succeed at once: it was rolled back because of another transaction, or because a function
/// was replaced.
pub(crate) fn is_conflict(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED
    }) || is_replaced(error)
}

/// Whether the request was rolled back because somebody else holds the row.
pub(crate) fn is_locked(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE)
}

/// Whether the server gave the statement up, and rolled it back.
pub(crate) fn is_cancelled(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::QUERY_CANCELED)
}

/// Whether our functions refused the isolation of the transaction.
pub(crate) fn is_isolation(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| code.code() == ISOLATION)
}

/// Whether the session that gave this answer may be used again. Class 25 comes from one that is in a transaction or can
/// only read; after 08 and 57P it ends. One that prepared what was replaced since would report it for ever.
pub(crate) fn leaves_the_session(error: &tokio_postgres::Error) -> bool {
    let ends =
        |code: &SqlState| ["25", "08", "57P"].iter().any(|class| code.code().starts_with(class));
    error.code().is_some_and(|code| !ends(code)) && !is_replaced(error)
}

/// Whether an answer is that of a server which may no longer be the primary: it is read-only, or ends.
pub(crate) fn casts_doubt(error: &tokio_postgres::Error) -> bool {
    !is_replaced(error)
        && error.code().is_some_and(|code| {
            let code = code.code();
            [READ_ONLY, IN_RECOVERY].contains(&code)
                || code.starts_with("57P")
                || code.starts_with("08")
        })
}

/// A server on which nothing can be written.
pub(crate) fn read_only(server: &str, is_standby: bool) -> Error {
    let why =
        if is_standby { "is a standby" } else { "is read-only by default_transaction_read_only" };
    Error::unavailable(
        Effect::NotApplied,
        format!("{server} {why}, and cannot lock; {TO_THE_PRIMARY}"),
    )
}

/// The error for what the server reported. A statement that it refuses is rolled back.
fn of_code(server: &str, code: &SqlState, message: &str) -> Error {
    let reported = format!("{server} reported: {message} (SQLSTATE {})", code.code());
    let not_now =
        |what: &str| Error::unavailable(Effect::NotApplied, format!("{what}; {reported}"));
    match code.code() {
        "28000" | "28P01" => {
            Error::denied(format!("{server} refused the user or its password; {reported}"))
        }
        "42501" => Error::denied(format!(
            "the user lacks a privilege (https://docs.rs/leasehold-postgres); {reported}"
        )),
        "3D000" => Error::incompatible(format!("the database does not exist; {reported}")),
        "42883" | "42P01" | "42703" | "3F000" => Error::incompatible(format!(
            "the store's schema is missing or outdated; run `leasehold init`, or `Locker::prepare`, as its owner; {reported}"
        )),
        READ_ONLY | IN_RECOVERY => Error::unavailable(
            Effect::NotApplied,
            format!(
                "{server} is a standby, or read-only: {message} ({}); {TO_THE_PRIMARY}",
                code.code()
            ),
        ),
        "2D000" | "25P02" => not_now(
            "the pool handed out a connection inside a transaction that somebody left open; it is closed now. End each \
             transaction before its connection goes back to the pool",
        ),
        ISOLATION => Error::incompatible(format!(
            "the session's transactions are not READ COMMITTED; {reported}"
        )),
        "55P03" => not_now("another transaction holds the key's row"),
        "40001" | "40P01" => not_now("another transaction was changing the same keys"),
        "57014" => {
            not_now("the statement was cancelled, or ran into the session's statement_timeout")
        }
        "57P03" => not_now("the server is starting or stopping"),
        "53300" => not_now("the server has no connection free"),
        "54000" => not_now("a limit of the server was reached, such as its queue of notifications"),
        code if code.starts_with("53") => not_now("the server lacks a resource"),
        "22P05" | "22021" => Error::incompatible(format!(
            "the database cannot store this text; it must have the encoding UTF8; {reported}"
        )),
        "23514" | "22003" | "23502" | "22004" => {
            Error::corrupt(format!("a row of the store was changed and cannot be used; {reported}"))
        }
        "XX001" | "XX002" => Error::corrupt(format!("the server's files are damaged; {reported}")),
        // The connection ends, perhaps after the commit.
        code if code.starts_with("57P") || code.starts_with("08") || code == "40003" => {
            Error::unavailable(Effect::Unknown, format!("the connection ended; {reported}"))
        }
        _ => Error::unexpected(reported),
    }
}

fn is_of_tls(error: &tokio_postgres::Error) -> bool {
    let is_invalid = std::iter::successors(error.source(), |&cause| cause.source())
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|io| io.kind() == io::ErrorKind::InvalidData);
    // The driver states this of a server that refuses TLS.
    is_invalid || error.to_string().starts_with("error performing TLS handshake")
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    #[test]
    fn each_answer_of_a_server_has_its_kind_and_effect() {
        use Effect::{NotApplied, Unknown};
        use ErrorKind::{Corrupt, Denied, Incompatible, Unavailable, Unexpected};
        for (code, kind, effect) in [
            ("28P01", Denied, NotApplied),
            ("42501", Denied, NotApplied),
            ("3D000", Incompatible, NotApplied),
            ("42883", Incompatible, NotApplied),
            ("3F000", Incompatible, NotApplied),
            ("25006", Unavailable, NotApplied),
            ("2D000", Unavailable, NotApplied),
            ("25P02", Unavailable, NotApplied),
            ("0A000", Unavailable, NotApplied),
            ("LH001", Incompatible, NotApplied),
            ("55P03", Unavailable, NotApplied),
            ("40001", Unavailable, NotApplied),
            ("40003", Unavailable, Unknown),
            ("57014", Unavailable, NotApplied),
            ("57P01", Unavailable, Unknown),
            ("57P03", Unavailable, NotApplied),
            ("53100", Unavailable, NotApplied),
            ("53300", Unavailable, NotApplied),
            ("54000", Unavailable, NotApplied),
            ("08006", Unavailable, Unknown),
            ("22P05", Incompatible, NotApplied),
            ("23514", Corrupt, NotApplied),
            ("XX001", Corrupt, NotApplied),
            ("42601", Unexpected, NotApplied),
        ] {
            let error = of_code("h:1", &SqlState::from_code(code), "no");
            assert_eq!((error.kind(), error.effect()), (kind, effect), "{code}");
            assert!(error.to_string().contains(code), "{error}");
        }
    }
}
