use crate::stored::Stored;

/// A row that was read for a purge.
#[derive(Debug)]
#[expect(clippy::exhaustive_structs, reason = "the statements of purges return exactly this")]
pub struct ScannedRow {
    /// The server's clock when it was read.
    pub now: i64,
    /// The row.
    pub stored: Stored,
    /// It is the last of as many as were asked for.
    pub is_last: bool,
    /// Its lease is over.
    pub is_over: bool,
    /// Its counter may be forgotten once its key has no lease.
    pub is_forgettable: bool,
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
