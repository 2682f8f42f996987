//! One call: a procedure or a statement, and its values; and how its rows are read.

use std::borrow::Cow;

use leasehold_core::{Error, LeaseId, Result};
use leasehold_sql::Stored;
use mysql_async::prelude::FromValue;
use mysql_async::{Row, Value};
use serde::{Serialize, Serializer};

use crate::error;
use crate::sql::Sql;

/// A call of one of our procedures, or a statement, with all values bound (C14).
#[derive(Debug)]
pub struct Call<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) values: Vec<Value>,
}

impl<'a> Call<'a> {
    pub(crate) fn procedure(sql: &Sql, name: &str, values: impl Into<Vec<Value>>) -> Self {
        let values = values.into();
        let marks = vec!["?"; values.len()].join(",");
        let text = format!("CALL {}{name}({marks})", sql.routines);
        Self { text: text.into(), values }
    }

    #[cfg(feature = "nene")]
    pub(crate) fn statement(text: &'a str, values: impl Into<Vec<Value>>) -> Self {
        Self { text: text.into(), values: values.into() }
    }
}

pub(crate) fn id(id: &LeaseId) -> Value {
    Value::Bytes(id.to_bytes().into_owned())
}

/// An array for `JSON_TABLE`.
pub(crate) fn json(rows: impl IntoIterator<Item = impl Serialize>) -> Value {
    let mut written = Vec::new();
    let done = serde_json::Serializer::new(&mut written).collect_seq(rows);
    done.expect("a vector takes all, and the rows have no maps");
    Value::Bytes(written)
}

/// Bytes in [`json`], in hexadecimal digits, which no character set changes.
pub(crate) struct Hex<B>(pub(crate) B);

impl<B: AsRef<[u8]>> Serialize for Hex<B> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(&self.0))
    }
}

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

/// The text of a column of bytes.
pub(crate) fn text(server: &str, row: &Row, name: &str) -> Result<Option<String>> {
    let Some(bytes) = column::<Vec<u8>>(server, row, name)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|e| {
        Error::corrupt(format!("the column {name} of a row has no text in UTF-8")).with_source(e)
    })
}

/// What a row of the table states; one that cannot be read is damaged.
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
    stored.id = column::<Vec<u8>>(server, row, "id")?.map(hex::encode);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_written_as_the_procedures_read_them() {
        assert_eq!(json([0; 0]), Value::from("[]"));
        let rows = [(Hex(&b"a\xff"[..]), Some(-1), None), (Hex(b"\""), None, Some(Hex("")))];
        assert_eq!(json(rows), Value::from(r#"[["61ff",-1,null],["22",null,""]]"#));
    }
}
