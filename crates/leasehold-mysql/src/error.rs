//! Converts failures of the driver and of the server.

use leasehold_core::{Effect, Error};
pub(crate) use leasehold_sql::unexpected;
use leasehold_sql::{broken, cause, no_tls, unreachable, untrusted};
use mysql_async::{DriverError, Error as Failure, IoError, ServerError};

/// The error of a request to `server`.
pub(crate) fn of(server: &str, error: Failure) -> Error {
    let mapped = match &error {
        Failure::Server(answer) => of_server(server, answer),
        other => broken(server, &cause(other)),
    };
    mapped.with_source(error)
}

/// The error of connecting to `server`.
pub(crate) fn of_connecting(server: &str, error: Failure) -> Error {
    let mapped = match &error {
        Failure::Server(answer) => of_server(server, answer).with_effect(Effect::NotApplied),
        Failure::Driver(DriverError::NoClientSslFlagFromServer) => {
            no_tls(server, "ssl-mode=disabled")
        }
        other if is_of_tls(other) => {
            untrusted(server, &cause(other), "ssl-ca", "ssl-mode=disabled")
        }
        other if is_of_another_product(other) => Error::incompatible(format!(
            "{server} is not a MySQL or MariaDB server that this client understands ({})",
            cause(other)
        )),
        other => unreachable(server, &cause(other)),
    };
    mapped.with_source(error)
}

/// The codes by which a server refuses what the user lacks a privilege for.
pub(crate) const PRIVILEGES: [u16; 5] = [1044, 1142, 1143, 1227, 1370];

/// Whether a request was rolled back because of another transaction, and may succeed later.
pub(crate) fn is_conflict(error: &Failure) -> bool {
    let Failure::Server(answer) = error else { return false };
    // A deadlock, a row that has changed, a key that another client has just used for the first time, a lock that is not
    // waited for, a member of Group Replication that has changed the same row.
    is_lock_wait(error) || [1213, 1020, 3572, 1062, 3101].contains(&answer.code)
}

/// Whether the wait for a lock timed out.
pub(crate) fn is_lock_wait(error: &Failure) -> bool {
    matches!(error, Failure::Server(answer) if answer.code == 1205)
}

const READ_ONLY: &str =
    "this server is read-only, as a replica is, and cannot lock; connect to the primary";

/// A server on which nothing is to be written.
pub(crate) fn read_only(server: &str) -> Error {
    Error::unavailable(Effect::NotApplied, format!("{server}: {READ_ONLY}"))
}

/// Whether an answer is that of a server which may no longer be the primary: it is read-only, or ends. Also if there is
/// no answer because the connection has ended.
pub(crate) fn casts_doubt(error: &Failure) -> bool {
    match error {
        Failure::Server(answer) => [1053, 1290, 1792, 1836, 1927, 4152].contains(&answer.code),
        Failure::Io(_) => true,
        Failure::Driver(_) | Failure::Other(_) | Failure::Url(_) => false,
    }
}

/// The error for what the server reported. Our procedures roll back what fails, except that they may be interrupted after their
/// commit.
fn of_server(server: &str, answer: &ServerError) -> Error {
    let reported = format!("{server} reported: {} (error {})", answer.message, answer.code);
    let not_now =
        |what: &str| Error::unavailable(Effect::NotApplied, format!("{what}; {reported}"));
    match answer.code {
        1045 | 1129 | 1130 | 1698 | 1862 => {
            Error::denied(format!("{server} refused the user or its password; {reported}"))
        }
        code if PRIVILEGES.contains(&code) => Error::denied(format!(
            "the user lacks a privilege (https://docs.rs/leasehold-mysql); {reported}"
        )),
        1049 | 1054 | 1146 | 1305 | 1318 => Error::incompatible(format!(
            "the store's objects are missing or outdated; run `leasehold init`, or `Locker::prepare`; {reported}"
        )),
        1290 | 1792 | 1836 | 4152 => not_now(READ_ONLY),
        1665 => Error::incompatible(format!(
            "the server writes its binary log by statements, which cannot record READ COMMITTED; set binlog_format to ROW \
             or MIXED; {reported}"
        )),
        1047 => not_now("the node of the Galera cluster is not ready"),
        1021 | 1041 | 1114 | 1135 => not_now("the server lacks a resource"),
        1040 | 1203 | 1226 => not_now("the server has no connection free"),
        1048 | 1264 | 1366 | 1406 | 1690 => {
            Error::corrupt(format!("a row of the store was changed and cannot be used; {reported}"))
        }
        // Perhaps after the commit, or inside it.
        1180 | 1030 | 1053 | 1080 | 1158..=1161 | 1317 | 1927 | 1969 | 3024 => Error::unavailable(
            Effect::Unknown,
            format!("the statement was interrupted, or the connection ended; {reported}"),
        ),
        _ => Error::unexpected(reported),
    }
}

fn is_of_tls(error: &Failure) -> bool {
    let text = error.to_string().to_lowercase();
    let is_tls = match error {
        #[cfg(feature = "tls")]
        Failure::Io(IoError::Tls(_)) => true,
        Failure::Io(IoError::Io(e)) => e.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    };
    is_tls || text.contains("certificate") || text.contains("ssl")
}

/// Whether the answer was none of MySQL's protocol.
fn is_of_another_product(error: &Failure) -> bool {
    match error {
        Failure::Driver(answer) => !matches!(answer, DriverError::ConnectionClosed),
        Failure::Io(IoError::Io(e)) => e.kind() == std::io::ErrorKind::Other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    fn answer(code: u16) -> ServerError {
        ServerError { code, message: "no".to_owned(), state: "HY000".to_owned() }
    }

    #[test]
    fn each_answer_of_a_server_has_its_kind_and_effect() {
        use Effect::{NotApplied, Unknown};
        use ErrorKind::{Corrupt, Denied, Incompatible, Unavailable, Unexpected};
        for (code, kind, effect) in [
            (1045, Denied, NotApplied),
            (1142, Denied, NotApplied),
            (1370, Denied, NotApplied),
            (1049, Incompatible, NotApplied),
            (1305, Incompatible, NotApplied),
            (1290, Unavailable, NotApplied),
            (1665, Incompatible, NotApplied),
            (1114, Unavailable, NotApplied),
            (1040, Unavailable, NotApplied),
            (1264, Corrupt, NotApplied),
            (1317, Unavailable, Unknown),
            (1969, Unavailable, Unknown),
            (1053, Unavailable, Unknown),
            (1180, Unavailable, Unknown),
            (1064, Unexpected, NotApplied),
        ] {
            let error = of_server("h:1", &answer(code));
            assert_eq!((error.kind(), error.effect()), (kind, effect), "{code}");
            assert!(error.to_string().contains(&code.to_string()), "{error}");
        }
    }

    #[test]
    fn conflicts_are_tried_again() {
        for code in [1205, 1213, 1020, 1062, 3572, 3101] {
            assert!(is_conflict(&Failure::Server(answer(code))), "{code}");
        }
        assert!(!is_conflict(&Failure::Server(answer(1317))));
    }
}
