use google_cloud_spanner::result::Row;
use leasehold_core::{Cursor, Error, Result};

use crate::rows::{id, name};

/// Where a row of the table is, or where a page begins: at it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// The text of the key, which need not be one that Leasehold has written.
    pub(crate) key: String,
    /// The id of the lease; empty for the counter, which is the first.
    pub(crate) id: Vec<u8>,
}

impl Position {
    /// At the first row of keys that begin with this text.
    pub(crate) fn first(prefix: &str) -> Self {
        Self { key: prefix.to_owned(), id: Vec::new() }
    }

    /// Where this row is.
    pub(crate) fn of(row: &Row) -> Result<Self> {
        Ok(Self { key: name(row)?, id: id(row)?.unwrap_or_default() })
    }

    /// Behind it.
    pub(crate) fn next(mut self) -> Self {
        self.id.push(0);
        self
    }

    /// The length of the id, the id, the key.
    pub(crate) fn cursor(&self) -> Cursor {
        let length = u8::try_from(self.id.len()).unwrap_or(u8::MAX);
        Cursor::new([&[length], self.id.as_slice(), self.key.as_bytes()].concat())
    }

    pub(crate) fn parse(cursor: &Cursor) -> Result<Self> {
        let parts = cursor.as_bytes().split_first();
        let parts = parts.and_then(|(length, rest)| rest.split_at_checked(usize::from(*length)));
        let parsed = parts.and_then(|(id, key)| {
            Some(Self { key: String::from_utf8(key.to_vec()).ok()?, id: id.to_vec() })
        });
        parsed.ok_or_else(|| Error::invalid_input("the cursor does not come from this store"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_the_position_of_any_row() {
        for (key, id) in [("a", &b""[..]), ("a\0b", b"\0\xff"), ("", &[7; 255])] {
            let position = Position { key: key.to_owned(), id: id.to_vec() };
            assert_eq!(Position::parse(&position.cursor()).unwrap(), position);
        }
        for bad in [&b""[..], b"\x05abc", b"\0\xff"] {
            assert!(Position::parse(&Cursor::new(bad.to_vec())).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn nothing_is_between_a_row_and_what_is_behind_it() {
        let at = |key: &str, id: &[u8]| Position { key: key.to_owned(), id: id.to_vec() };
        let behind = at("a", b"x").next();
        assert!(at("a", b"x") < behind && behind <= at("a", b"x\0"));
        assert!(behind < at("a", b"x\0\0") && behind < at("a\0", b""));
        assert!(Position::first("a") <= at("a", b""));
    }
}
