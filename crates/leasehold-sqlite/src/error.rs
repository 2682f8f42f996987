//! Converts errors of SQLite and the operating system: one table, tested below.

use std::fmt::Display;
use std::time::Duration;

use leasehold_core::{Effect, Error, LostReason};
use rusqlite::ErrorCode;
use rusqlite::ffi;

use crate::sql::VERSION;

/// Converts a failure inside a transaction, which is then rolled back: its effect is `NotApplied` (C10).
pub(crate) fn sqlite(name: &str, error: rusqlite::Error) -> Error {
    let Some(failure) = error.sqlite_error().copied() else {
        return stored(name, error);
    };
    let none = Effect::NotApplied;
    let mapped = match (failure.extended_code, failure.code) {
        (ffi::SQLITE_READONLY_DBMOVED, _) => replaced(name),
        (ffi::SQLITE_IOERR_SHMSIZE | ffi::SQLITE_IOERR_SHMMAP, _) => Error::unavailable(
            none,
            format!(
                "the shared-memory file of {name} could not be extended; the disk may be full: make room and try \
                 again"
            ),
        ),
        (_, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::unavailable(
            none,
            format!(
                "another process kept {name} locked until the time limit of the operation; find out which one writes to it, \
                 or allow more time with the option timeout"
            ),
        ),
        (_, ErrorCode::FileLockingProtocolFailed) => Error::unavailable(
            none,
            format!("others locked and unlocked {name} too fast to get a turn; try again"),
        ),
        (_, ErrorCode::DiskFull) => Error::unavailable(
            none,
            format!("the disk that holds {name} is full; make room and try again"),
        ),
        (_, ErrorCode::OutOfMemory) => {
            Error::unavailable(none, format!("SQLite got no memory for {name}"))
        }
        (_, ErrorCode::SystemIoFailure) => Error::unavailable(
            none,
            format!(
                "the operating system failed to read or write {name} ({error}, code {}); look at \
                 the disk and the system's log",
                failure.extended_code
            ),
        ),
        (_, ErrorCode::CannotOpen) => Error::unavailable(
            none,
            format!(
                "{name}, or the files -wal and -shm beside it, could not be opened; the process \
                 may have too many open files (ulimit -n)"
            ),
        ),
        (_, ErrorCode::NotADatabase) => Error::corrupt(format!(
            "{name} is not a SQLite database, or its first page is damaged; give another path, or \
             restore the file"
        )),
        (_, ErrorCode::DatabaseCorrupt) => Error::corrupt(format!(
            "{name} is damaged ({error}); stop every program that uses it, then restore it, or remove it with its \
             -wal and -shm, which loses all leases"
        )),
        (
            _,
            ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::AuthorizationForStatementDenied,
        ) => Error::denied(format!(
            "{name} may not be written ({error}); the file, its directory, -wal and -shm must \
                 all be writable, and the file system must not be mounted read-only"
        )),
        _ if is_schema(&error) => tables(name, &error),
        _ => Error::unexpected(format!("SQLite failed on {name}: {error}")),
    };
    mapped.with_source(error)
}

/// Converts a failure to begin: nothing was done (C10).
pub(crate) fn begin(name: &str, waited: Duration, error: rusqlite::Error) -> Error {
    if !is_busy(&error) {
        return sqlite(name, error);
    }
    // Nobody needs to read nanoseconds.
    let waited = waited - Duration::from_nanos(u64::from(waited.subsec_nanos() % 1_000_000));
    Error::unavailable(
        Effect::NotApplied,
        format!(
            "another process held the write lock of {name} for the {waited:?} that were left (database is locked); \
             find out which, or raise the option timeout"
        ),
    )
    .with_source(error)
}

/// Converts a failure to commit.
///
/// Busy means that the commit did not begin. Full means that the committing frame is not in the log (SQLite on
/// Linux writes nothing after that frame). Both were rolled back. After any other failure, such as of fsync, the
/// whole transaction may be in the log and take effect when the log is recovered, so the outcome is unknown (C10).
pub(crate) fn commit(name: &str, error: rusqlite::Error) -> Error {
    let rolled_back = is_busy(&error) || error.sqlite_error_code() == Some(ErrorCode::DiskFull);
    let effect = if rolled_back { Effect::NotApplied } else { Effect::Unknown };
    sqlite(name, error).with_effect(effect)
}

pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Converts a failure of the operating system to do `what` with `path`.
#[cfg(target_os = "linux")]
pub(crate) fn os(what: &str, path: &std::path::Path, error: std::io::Error) -> Error {
    use std::io::ErrorKind as Kind;

    const NAME_TOO_LONG: i32 = nix::errno::Errno::ENAMETOOLONG as i32;
    let path = path.display();
    let mapped = match error.kind() {
        Kind::PermissionDenied => Error::denied(format!(
            "could not {what} {path}: {error}; let this user read, write and, for a directory, \
             enter it"
        )),
        Kind::ReadOnlyFilesystem => Error::denied(format!(
            "could not {what} {path}: {error}; mount the file system for writing, or give a path on another one"
        )),
        Kind::StorageFull => Error::unavailable(
            Effect::NotApplied,
            format!("could not {what} {path}: the disk is full; make room and try again"),
        ),
        kind if matches!(kind, Kind::NotFound | Kind::NotADirectory)
            || error.raw_os_error() == Some(NAME_TOO_LONG) =>
        {
            Error::invalid_input(format!(
                "could not {what} {path}: {error}; give a path that exists"
            ))
        }
        _ => Error::unavailable(Effect::NotApplied, format!("could not {what} {path}: {error}")),
    };
    mapped.with_source(error)
}

/// A value in one of our tables that Leasehold cannot have written.
pub(crate) fn value(name: &str, column: &str, of: impl Display, why: impl Display) -> Error {
    Error::corrupt(format!(
        "in {name}, Leasehold cannot have written the column {column} of {of}: {why}; remove that row, or restore \
         the file"
    ))
}

/// Tables that the schema version promises were dropped or changed.
pub(crate) fn tables(name: &str, what: impl Display) -> Error {
    Error::corrupt(format!(
        "the tables in {name} are not those of schema version {VERSION} ({what}): they were dropped or changed; stop every \
         program that uses it, then restore it, or remove it with its -wal and -shm, which loses all leases"
    ))
}

/// The path no longer names the file that is open.
pub(crate) fn replaced(name: &str) -> Error {
    Error::incompatible(format!(
        "{name} was removed or replaced while it was open; others may lock in the new file, so this store no longer \
         uses the old one: open it again"
    ))
    .with_lost_reason(LostReason::StoreReplaced)
}

/// The limit passed before the operation had its turn: nothing was done.
pub(crate) fn late(name: &str, limit: Duration) -> Error {
    Error::unavailable(
        Effect::NotApplied,
        format!(
            "the operation did not get its turn at {name} within the time limit of {limit:?} and was not begun; send \
             less at once, or allow more time with the option timeout"
        ),
    )
}

/// The limit has passed and the operation is still running.
pub(crate) fn unanswered(name: &str, limit: Duration) -> Error {
    Error::unavailable(
        Effect::Unknown,
        format!(
            "an operation on {name} has begun but did not end within its time limit of {limit:?}; the disk hangs or \
             is very slow, and the operation may still act"
        ),
    )
}

/// The database's thread has ended, which only a panic can cause.
pub(crate) fn gone(name: &str) -> Error {
    Error::unexpected(format!("the thread of the database {name} ended; open the store again"))
        .with_effect(Effect::Unknown)
}

fn is_schema(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::Unknown)
        && ["no such table", "no such column", "no such index", "has no column"]
            .iter()
            .any(|text| error.to_string().contains(text))
}

/// Converts rusqlite's own refusals: a stored value of a type or range that is not ours.
fn stored(name: &str, error: rusqlite::Error) -> Error {
    use rusqlite::Error as E;

    let mapped = match &error {
        E::FromSqlConversionFailure(..)
        | E::InvalidColumnType(..)
        | E::IntegralValueOutOfRange(..)
        | E::Utf8Error(..) => Error::corrupt(format!(
            "{name} has a value that Leasehold cannot have written: {error}; remove that row, or restore the file"
        )),
        _ => Error::unexpected(format!("SQLite failed on {name}: {error}")),
    };
    mapped.with_source(error)
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind::{self, *};

    use super::*;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    fn failure_of(code: i32, text: &str) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some(text.to_owned()))
    }

    #[test]
    fn each_code_has_its_kind_and_names_the_file() {
        for (code, kind, fragment) in [
            (ffi::SQLITE_BUSY, Unavailable, "another process"),
            (ffi::SQLITE_BUSY_RECOVERY, Unavailable, "another process"),
            (ffi::SQLITE_BUSY_SNAPSHOT, Unavailable, "another process"),
            (ffi::SQLITE_LOCKED, Unavailable, "another process"),
            (ffi::SQLITE_PROTOCOL, Unavailable, "try again"),
            (ffi::SQLITE_FULL, Unavailable, "full"),
            (ffi::SQLITE_NOMEM, Unavailable, "memory"),
            (ffi::SQLITE_IOERR, Unavailable, "code 10"),
            (ffi::SQLITE_IOERR_FSYNC, Unavailable, "code 1034"),
            (ffi::SQLITE_IOERR_SHMSIZE, Unavailable, "may be full"),
            (ffi::SQLITE_CANTOPEN, Unavailable, "too many open files"),
            (ffi::SQLITE_CORRUPT, Corrupt, "damaged"),
            (ffi::SQLITE_CORRUPT_INDEX, Corrupt, "damaged"),
            (ffi::SQLITE_NOTADB, Corrupt, "not a SQLite database"),
            (ffi::SQLITE_READONLY, Denied, "may not be written"),
            (ffi::SQLITE_READONLY_DIRECTORY, Denied, "may not be written"),
            (ffi::SQLITE_PERM, Denied, "may not be written"),
            (ffi::SQLITE_AUTH, Denied, "may not be written"),
            (ffi::SQLITE_READONLY_DBMOVED, Incompatible, "removed or replaced"),
            (ffi::SQLITE_CONSTRAINT_CHECK, Unexpected, "failed"),
            (ffi::SQLITE_MISUSE, Unexpected, "failed"),
            (ffi::SQLITE_ERROR, Unexpected, "failed"),
        ] {
            let error = sqlite("x.db", failure(code));
            assert_eq!((error.kind(), error.effect()), (kind, Effect::NotApplied), "{code}");
            let text = error.to_string();
            assert!(text.contains(fragment) && text.contains("x.db"), "{code}: {text}");
        }
    }

    #[test]
    fn a_missing_table_is_distinguished_from_other_mistakes() {
        let error = sqlite("x.db", failure_of(ffi::SQLITE_ERROR, "no such table: leasehold_keys"));
        assert_eq!(error.kind(), Corrupt);
        assert!(error.to_string().contains("leasehold_keys"), "{error}");
    }

    #[test]
    fn values_of_another_type_are_corrupt() {
        for error in [
            rusqlite::Error::InvalidColumnType(1, "id".to_owned(), rusqlite::types::Type::Null),
            rusqlite::Error::IntegralValueOutOfRange(1, -1),
        ] {
            assert_eq!(sqlite("x.db", error).kind(), Corrupt);
        }
        assert_eq!(sqlite("x.db", rusqlite::Error::QueryReturnedNoRows).kind(), Unexpected);
    }

    #[test]
    fn a_commit_is_unknown_unless_it_was_rolled_back() {
        for (code, effect) in [
            (ffi::SQLITE_BUSY, Effect::NotApplied),
            (ffi::SQLITE_FULL, Effect::NotApplied),
            (ffi::SQLITE_IOERR_FSYNC, Effect::Unknown),
            (ffi::SQLITE_IOERR_WRITE, Effect::Unknown),
            (ffi::SQLITE_NOMEM, Effect::Unknown),
        ] {
            assert_eq!(commit("x.db", failure(code)).effect(), effect, "{code}");
            assert_eq!(begin("x.db", Duration::ZERO, failure(code)).effect(), Effect::NotApplied);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn each_failure_of_the_operating_system_has_its_kind() {
        for (errno, kind, fragment) in [
            (13, Denied, "let this user"),
            (30, Denied, "mount the file system for writing"),
            (28, Unavailable, "full"),
            (2, InvalidInput, "that exists"),
            (20, InvalidInput, "that exists"),
            (36, InvalidInput, "that exists"),
            (24, Unavailable, "Too many open files"),
            (5, Unavailable, "could not open"),
        ] {
            let failure = std::io::Error::from_raw_os_error(errno);
            let error = os("open", std::path::Path::new("x.db"), failure);
            assert_eq!((error.kind(), error.effect()), (kind, Effect::NotApplied), "{errno}");
            assert!(error.to_string().contains(fragment), "{error}");
        }
    }

    #[test]
    fn an_operation_that_ran_out_of_time_reports_it() {
        let limit = Duration::from_secs(5);
        let cases: [(Error, Effect); 3] = [
            (late("x.db", limit), Effect::NotApplied),
            (begin("x.db", limit, failure(ffi::SQLITE_BUSY)), Effect::NotApplied),
            (unanswered("x.db", limit), Effect::Unknown),
        ];
        for (error, effect) in cases {
            assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, effect));
            assert!(error.to_string().contains("5s"), "{error}");
        }
    }
}
