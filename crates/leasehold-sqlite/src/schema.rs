//! Identifies a file and its version, and creates the tables.

use leasehold_core::{Error, Result};
use rusqlite::Connection;

use crate::error;
use crate::sql::{Sql, VERSION};

/// `PRAGMA application_id`: "Lshd".
pub(crate) const APPLICATION_ID: i32 = 0x4c73_6864;

/// How many tables and indexes `schema.sql` creates.
const OBJECTS: i64 = 5;

/// The state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schema {
    /// It has no tables yet, or none with this prefix.
    Missing,
    /// It has all tables.
    Ready,
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
    if version < VERSION {
        return Err(error::value(name, "user_version", "the file header", version));
    }
    match number(&sql.objects).map_err(failed)? {
        0 => Ok(Schema::Missing),
        OBJECTS => Ok(Schema::Ready),
        found => Err(error::tables(name, format!("{found} of {OBJECTS} tables and indexes exist"))),
    }
}

/// Creates what is missing, in an immediate transaction, so that of many processes one does.
pub(crate) fn create(connection: &Connection, sql: &Sql, name: &str) -> Result<()> {
    connection
        .execute_batch(&sql.schema)
        .and_then(|()| connection.pragma_update(None, "application_id", APPLICATION_ID))
        .and_then(|()| connection.pragma_update(None, "user_version", VERSION))
        .map_err(|e| error::sqlite(name, e))
}
