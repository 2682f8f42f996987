//! One call: a procedure or a statement, and its values; and how its rows are read.

use std::borrow::Cow;
use std::fmt::Write as _;

use leasehold_core::{Error, LeaseId, Result};
use leasehold_sql::Stored;
use mysql_async::prelude::FromValue;
use mysql_async::{Row, Value};

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

    pub(crate) fn statement(text: &'a str, values: impl Into<Vec<Value>>) -> Self {
        Self { text: text.into(), values: values.into() }
    }
}

/// Microseconds as the server's integers; the longest term is 10 years.
pub(crate) fn micros(duration: std::time::Duration) -> i64 {
    i64::try_from(leasehold_core::term::micros_up(duration)).unwrap_or(i64::MAX)
}

pub(crate) fn id(id: &LeaseId) -> Value {
    Value::Bytes(id.to_bytes().into_owned())
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// An array for `JSON_TABLE`. Bytes are written in hexadecimal digits, which no character set changes.
#[derive(Debug, Default)]
pub(crate) struct Json(String);

impl Json {
    /// Adds an array of these elements.
    pub(crate) fn push<'a>(&mut self, elements: impl IntoIterator<Item = Element<'a>>) {
        self.0.push(if self.0.is_empty() { '[' } else { ',' });
        for (nth, element) in elements.into_iter().enumerate() {
            self.0.push(if nth == 0 { '[' } else { ',' });
            match element {
                Element::Bytes(bytes) => self.push_bytes(bytes),
                Element::Id(id) => self.push_bytes(&id.to_bytes()),
                Element::Integer(integer) => {
                    let _: std::fmt::Result = write!(self.0, "{integer}");
                }
                Element::Null => self.0.push_str("null"),
            }
        }
        self.0.push(']');
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        let digit = |value: u8| char::from(DIGITS[usize::from(value)]);
        self.0.push('"');
        self.0.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
        self.0.push('"');
    }

    pub(crate) fn value(mut self) -> Value {
        if self.0.is_empty() {
            self.0.push('[');
        }
        self.0.push(']');
        Value::Bytes(self.0.into_bytes())
    }
}

/// An element of an array in [`Json`].
#[derive(Debug)]
pub(crate) enum Element<'a> {
    Bytes(&'a [u8]),
    Id(&'a LeaseId),
    Integer(i64),
    Null,
}

impl<'a> Element<'a> {
    pub(crate) fn text(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, |text| Self::Bytes(text.as_bytes()))
    }

    pub(crate) fn integer(integer: Option<i64>) -> Self {
        integer.map_or(Self::Null, Self::Integer)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_written_as_the_procedures_read_them() {
        assert_eq!(Json::default().value(), Value::from("[]"));
        let mut json = Json::default();
        json.push([Element::Bytes(b"a\xff"), Element::Integer(-1), Element::Null]);
        json.push([Element::text(Some("\"")), Element::integer(None)]);
        assert_eq!(json.value(), Value::from(r#"[["61ff",-1,null],["22",null]]"#));
    }
}
