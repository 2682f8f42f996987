use leasehold_core::Result;

/// How a request ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<T> {
    /// The server has replied, or failed.
    Done(Result<T>),
    /// It did not act, and must be sent alone.
    SendAlone,
    /// Another transaction holds a row of its keys.
    RowLocked,
}
