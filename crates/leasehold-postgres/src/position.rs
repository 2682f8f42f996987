//! Where a page, or a step of a purge, begins.

use leasehold_core::{Cursor, Error, Result};
use leasehold_driver::Stored;

/// A row of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) key: String,
    pub(crate) slot: i32,
}

impl Position {
    pub(crate) fn of(stored: &Stored) -> Self {
        Self { key: stored.key.clone(), slot: i32::try_from(stored.slot).unwrap_or(i32::MAX) }
    }

    pub(crate) fn cursor(&self) -> Cursor {
        Cursor::new(format!("{}\0{}", self.key, self.slot).into_bytes())
    }
}

pub(crate) fn position(cursor: &Cursor) -> Result<Position> {
    let text = std::str::from_utf8(cursor.as_bytes()).ok();
    let parts = text.and_then(|text| text.split_once('\0'));
    let parsed = parts
        .and_then(|(key, slot)| Some(Position { key: key.to_owned(), slot: slot.parse().ok()? }));
    parsed.ok_or_else(|| Error::invalid_input("the cursor does not come from this store"))
}
