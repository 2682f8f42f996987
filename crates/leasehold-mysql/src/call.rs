//! One call: a procedure or a statement, and its values.

use std::borrow::Cow;
use std::fmt::Write as _;

use leasehold_core::LeaseId;
use mysql_async::Value;

use crate::sql::Sql;

/// A call of one of our procedures, or a statement, with all values bound (C14).
#[derive(Debug)]
pub(crate) struct Call<'a> {
    text: Text<'a>,
    pub(crate) values: Vec<Value>,
}

#[derive(Debug)]
enum Text<'a> {
    Procedure(&'static str),
    Statement(&'a str),
}

impl<'a> Call<'a> {
    pub(crate) fn procedure(name: &'static str, values: impl Into<Vec<Value>>) -> Self {
        Self { text: Text::Procedure(name), values: values.into() }
    }

    pub(crate) fn statement(text: &'a str, values: impl Into<Vec<Value>>) -> Self {
        Self { text: Text::Statement(text), values: values.into() }
    }

    pub(crate) fn text(&self, sql: &Sql) -> Cow<'a, str> {
        match self.text {
            Text::Statement(text) => text.into(),
            Text::Procedure(name) => {
                let marks = vec!["?"; self.values.len()].join(",");
                format!("CALL {}.leasehold_{name}({marks})", sql.database.quoted()).into()
            }
        }
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
