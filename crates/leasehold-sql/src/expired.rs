use crate::position::Position;
use crate::stored::Stored;

/// A row that was read for a purge.
#[derive(Debug)]
pub(crate) struct ScannedRow {
    /// The server's clock when it was read.
    pub(crate) now: i64,
    /// The row.
    pub(crate) stored: Stored,
    /// It is the last of as many as were asked for.
    pub(crate) is_last: bool,
    /// Its lease is over.
    pub(crate) is_over: bool,
}

/// The next rows that a purge looks at.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Scan<'s> {
    /// Of these keys, or of all.
    pub keys: Option<&'s [String]>,
    /// Those after this one.
    pub after: &'s Position,
    /// At most so many.
    pub most: usize,
}

/// What one step of a purge is to remove, if it is still as it was.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Purge {
    /// Records: key, lease id in bytes, token.
    pub over: Vec<(String, Vec<u8>, Option<i64>)>,
}
