//! Reads rows.

use std::fmt::Display;

use leasehold_core::{Claims, Error, Key, Result};
use leasehold_sql::{ReplyRow, Stored};
use mysql_async::prelude::FromValue;
use mysql_async::{Row, Value};

use crate::error;

/// The value of a column; `None` if it is null.
pub(crate) fn column<T: FromValue>(server: &str, row: &Row, name: &str) -> Result<Option<T>> {
    match row.get_opt::<Option<T>, _>(name) {
        Some(Ok(value)) => Ok(value),
        Some(Err(e)) => Err(error::unexpected(server, format_args!("{name}: {e}"))),
        None => Err(error::unexpected(server, format_args!("no {name}"))),
    }
}

/// The value of a column that is not null.
pub(crate) fn required<T: FromValue>(server: &str, row: &Row, name: &str) -> Result<T> {
    column(server, row, name)?.ok_or_else(|| error::unexpected(server, format_args!("no {name}")))
}

/// A row of a reply of this server.
pub(crate) struct Reply<'r>(pub(crate) &'r str, pub(crate) &'r Row);

impl ReplyRow for Reply<'_> {
    fn integer(&self, name: &str) -> Result<Option<i64>> {
        column(self.0, self.1, name)
    }

    fn text(&self, name: &str) -> Result<Option<String>> {
        column(self.0, self.1, name)
    }

    fn holder(&self) -> Result<Stored> {
        Ok(stored(self.0, self.1))
    }

    fn key<'c>(&self, claims: &'c Claims) -> Result<&'c Key> {
        let nth: i64 = required(self.0, self.1, "o_nth")?;
        let found = usize::try_from(nth - 1).ok().and_then(|nth| claims.keys().nth(nth));
        found.ok_or_else(|| self.unexpected(format_args!("the key number {nth}")))
    }

    fn is_late(&self) -> Result<bool> {
        required(self.0, self.1, "o_late").map(|is_late: i64| is_late != 0)
    }

    fn unexpected(&self, what: impl Display) -> Error {
        error::unexpected(self.0, what)
    }
}

/// The text of a column of bytes.
pub(crate) fn text(server: &str, row: &Row, name: &str) -> Result<Option<String>> {
    let Some(bytes) = column::<Vec<u8>>(server, row, name)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|e| {
        Error::corrupt(format!("the column {name} of a row has no text in UTF-8")).with_source(e)
    })
}

/// What a row of the table states.
pub(crate) fn stored(server: &str, row: &Row) -> Stored {
    read(server, row).unwrap_or_else(|error| {
        let key = match row.get::<Value, _>("key") {
            Some(Value::Bytes(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            _ => String::new(),
        };
        let slot = column(server, row, "slot").ok().flatten().unwrap_or_default();
        Stored::damaged(key, slot, error)
    })
}

fn read(server: &str, row: &Row) -> Result<Stored> {
    let text = |name: &str| text(server, row, name);
    let mut stored = Stored::default();
    stored.key = text("key")?.unwrap_or_default();
    stored.slot = required(server, row, "slot")?;
    stored.counter = required(server, row, "counter")?;
    stored.id = column::<Vec<u8>>(server, row, "id")?.map(|id| hex(&id));
    stored.shared = column::<i64>(server, row, "shared")?.map(|shared| shared != 0);
    stored.state = text("state")?;
    stored.token = column(server, row, "token")?;
    stored.expires = column(server, row, "expires")?;
    stored.granted_at = column(server, row, "granted_at")?;
    stored.renewed_at = column(server, row, "renewed_at")?;
    stored.group_name = text("group_name")?;
    stored.host = text("host")?;
    stored.pid = column(server, row, "pid")?;
    stored.program = text("program")?;
    stored.comment = text("comment")?;
    stored.reason = text("reason")?;
    if stored.id.is_none() && stored.state.as_deref() != Some("f") {
        return Err(Error::corrupt(format!("the row of the key {:?} has no id", stored.key)));
    }
    Ok(stored)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
