//! What a waiter sees of a file, on a connection of its own, for which all commits are those of others.

use std::path::{Path, PathBuf};

use leasehold_core::Key;
use rusqlite::Connection;

pub(crate) struct View {
    connection: Connection,
    /// Reads the holders of a key.
    statement: String,
    log: PathBuf,
}

/// Who holds a key, as far as a waiter needs it: any change may have made room, unless somebody holds it alone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Holders {
    is_exclusive: bool,
    /// The mark of all tokens, unless somebody holds the key alone: of a lease that came and went between two looks, it is
    /// all that is left.
    mark: Option<i64>,
    ids: Option<String>,
}

impl View {
    pub(crate) fn new(connection: Connection, statement: String, file: &Path) -> Self {
        let mut log = file.as_os_str().to_owned();
        log.push("-wal");
        Self { connection, statement, log: log.into() }
    }

    /// The write-ahead log.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// A number that changes with every commit.
    pub(crate) fn version(&self) -> rusqlite::Result<i64> {
        self.connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
    }

    pub(crate) fn holders(&self, key: &Key) -> rusqlite::Result<Holders> {
        self.connection.prepare_cached(&self.statement)?.query_row([key.as_str()], |row| {
            Ok(Holders { is_exclusive: row.get(0)?, mark: row.get(1)?, ids: row.get(2)? })
        })
    }
}

impl Holders {
    pub(crate) fn may_admit(&self) -> bool {
        !self.is_exclusive
    }
}
