use crate::stored::Stored;

/// A row with something to purge.
#[derive(Debug)]
#[non_exhaustive]
pub struct ExpiredRow {
    pub(crate) now: i64,
    pub(crate) stored: Stored,
    pub(crate) over: bool,
    pub(crate) forgettable: bool,
}

impl ExpiredRow {
    /// A row as it was at `now`: its lease is `over`, or its counter may be forgotten once its key has no lease; `None`
    /// if neither.
    pub fn of(now: i64, stored: Stored, over: bool, forgettable: bool) -> Option<Self> {
        (over || forgettable).then_some(Self { now, stored, over, forgettable })
    }
}

/// What one step of a purge is to remove, if it is still as it was.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Purge {
    /// The keys of records.
    pub keys: Vec<String>,
    /// Their lease ids, in bytes.
    pub ids: Vec<Vec<u8>>,
    /// Their tokens.
    pub tokens: Vec<Option<i64>>,
    /// The keys of counters.
    pub counted: Vec<String>,
    /// Their values.
    pub counters: Vec<i64>,
}
