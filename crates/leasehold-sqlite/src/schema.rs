//! Identifies a file and its version, and creates the tables.

use leasehold_core::{Error, Result};
use rusqlite::{Connection, OptionalExtension as _, Row};

use crate::error;
use crate::sql::{Sql, VERSION};

/// `PRAGMA application_id`: "Lshd".
pub(crate) const APPLICATION_ID: i32 = 0x4c73_6864;

/// How many tables and indexes this schema and the last have in common, and how many only the last has.
const COMMON: i64 = 3;
const OLD: i64 = 2;

/// The highest token that an upgrade takes over: what a clock may give, and by how much a raise may exceed it (C7).
const MOST: i64 = (1 << 52) + (1 << 32);

/// The state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schema {
    /// It has no tables yet, or none with this prefix.
    Missing,
    /// It has those of schema version 1.
    Old,
    /// It has all tables.
    Ready {
        /// Programs of schema version 1 may still have leases.
        upgraded: bool,
    },
}

/// Identifies the file and changes nothing.
///
/// # Errors
/// `Incompatible` if it is another program's or of a newer version, `Corrupt` if it is not a database or a part of
/// ours is missing: created again, that part would be empty, and a held key would be granted.
pub(crate) fn inspect(connection: &Connection, sql: &Sql, name: &str) -> Result<Schema> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let pragma = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    let failed = |e| error::sqlite(name, e);
    // The first statement that reads; it fails on a file that is not a database.
    let application = pragma("application_id").map_err(failed)?;
    let version = pragma("user_version").map_err(failed)?;
    if application != APPLICATION_ID {
        let objects = number("SELECT count(*) FROM sqlite_schema").map_err(failed)?;
        if (application, version, objects) == (0, 0, 0) {
            return Ok(Schema::Missing);
        }
        return Err(Error::incompatible(format!(
            "{name} is another program's SQLite database (application id {application:#010x}, {objects} tables and \
             indexes); Leasehold needs its own file (application id {APPLICATION_ID:#010x}): give another path"
        )));
    }
    if version > VERSION {
        return Err(Error::incompatible(format!(
            "{name} has schema version {version}, but this program supports versions up to {VERSION}; update this \
             program, or give another path"
        )));
    }
    if version < 1 {
        return Err(error::value(name, "user_version", "the file header", version));
    }
    let objects = connection.query_row(&sql.objects, [], |row| {
        let count = |at| row.get::<_, i64>(at);
        Ok((count(0)?, count(1)?, count(2)?, count(3)?))
    });
    match objects.map_err(failed)? {
        (0, 0, 0, _) => Ok(Schema::Missing),
        (COMMON, 0, OLD, 0) => Ok(Schema::Old),
        (COMMON, 1, old, _) => Ok(Schema::Ready { upgraded: old == OLD && version < VERSION }),
        (common, mark, ..) => {
            let (found, all) = (common + mark, COMMON + 1);
            Err(error::tables(name, format!("{found} of {all} tables and indexes exist")))
        }
    }
}

/// Creates what is missing, in an immediate transaction, so that of many processes one does.
pub(crate) fn create(connection: &Connection, sql: &Sql, name: &str) -> Result<()> {
    let made = connection.execute_batch(&sql.schema).and_then(|()| {
        let version: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if version != 0 {
            // Tables of other prefixes may be of an earlier version.
            return Ok(());
        }
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        connection.pragma_update(None, "user_version", VERSION)
    });
    made.map_err(|e| error::sqlite(name, e))
}

/// Replaces the counters of schema version 1 by one mark, in an immediate transaction. Programs of that version renew
/// and release what they hold, and grant nothing any more.
///
/// # Errors
/// `Incompatible` if a token of one key is so high that few tokens or none would be left to all.
pub(crate) fn upgrade(connection: &Connection, sql: &Sql, name: &str) -> Result<()> {
    let failed = |e| error::sqlite(name, e);
    let pair = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
    let too_high = connection.query_row(&sql.too_high, [MOST], pair).optional();
    if let Some((key, token)) = too_high.map_err(failed)? {
        return Err(Error::incompatible(format!(
            "{name} has schema version 1, where each key has tokens of its own, and {key:?} has the token {token}: with \
             one mark for all keys few tokens or none would be left; release the key and delete its counter as the \
             manual of the store says, or give another path"
        )));
    }
    connection.execute_batch(&sql.upgrade).map_err(failed)
}

/// Whether programs of schema version 1 may have leases in an upgraded file.
pub(crate) fn has_older_leases(connection: &Connection, sql: &Sql, name: &str) -> Result<bool> {
    connection
        .query_row(&sql.older_leases, [], |row| row.get(0))
        .map_err(|e| error::sqlite(name, e))
}

/// Raises the version of an upgraded file, unless older programs may have leases: with the new version they could not
/// open it again. Returns whether they may.
pub(crate) fn finish_upgrade(connection: &Connection, sql: &Sql, name: &str) -> Result<bool> {
    let older_leases = has_older_leases(connection, sql, name)?;
    if !older_leases {
        let finished = connection
            .execute(&sql.tidy, [])
            .and_then(|_| connection.pragma_update(None, "user_version", VERSION));
        finished.map_err(|e| error::sqlite(name, e))?;
    }
    Ok(older_leases)
}
