use leasehold_core::{Cursor, Error, Result};

use crate::stored::Stored;

/// A row of the table, or where a page begins: after it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Position {
    /// The key.
    pub key: String,
    /// The slot; before the first one, −1.
    pub slot: i32,
}

impl Position {
    /// Before all rows of keys that begin with this text.
    pub(crate) fn before(prefix: &str) -> Self {
        Self { key: prefix.to_owned(), slot: -1 }
    }

    /// Where this row is.
    pub fn of(stored: &Stored) -> Self {
        Self { key: stored.key.clone(), slot: i32::try_from(stored.slot).unwrap_or(i32::MAX) }
    }

    pub(crate) fn cursor(&self) -> Cursor {
        Cursor::new(format!("{}\0{}", self.key, self.slot).into_bytes())
    }

    pub(crate) fn parse(cursor: &Cursor) -> Result<Self> {
        let text = std::str::from_utf8(cursor.as_bytes()).ok();
        let parts = text.and_then(|text| text.split_once('\0'));
        let parsed = parts
            .and_then(|(key, slot)| Some(Self { key: key.to_owned(), slot: slot.parse().ok()? }));
        parsed.ok_or_else(|| Error::invalid_input("the cursor does not come from this store"))
    }
}
