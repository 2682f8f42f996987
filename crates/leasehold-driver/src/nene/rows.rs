use std::future::Future;
use std::time::Duration;

use leasehold_core::{Health, Result, Unreadable};

use crate::Deadline;

/// A row of the table. Times are seconds since 1970-01-01 UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the format will not change")]
pub struct NeneRow {
    /// The name of the lock.
    pub resource: String,
    /// The holder's name: the id of a lease.
    pub owner: String,
    /// When the lock ends.
    pub expires_at: i64,
    /// When it was acquired.
    pub acquired_at: i64,
}

/// The hazard of a table without a trigger.
pub const OVERWRITTEN: &str = "a PHP client overwrites a row that it has read without another look: if it is stopped between the \
     two for longer than the option settle, or while the row is removed and added again, two clients hold; add a trigger that \
     refuses it, by `leasehold init` with the option guard=1";

/// What a look at one resource found.
#[derive(Debug, Clone)]
#[expect(clippy::exhaustive_structs, reason = "a clock and a row")]
pub struct Seen {
    /// The server's clock, in microseconds since 1970-01-01 UTC.
    pub now: i64,
    /// The row, whose resource differs from the requested one where the collation of the table does not tell the two
    /// apart.
    pub row: Option<NeneRow>,
}

/// The guarded statements, each a transaction of its own, which ends by the deadline of its operation. The outcome states
/// whether a row was changed.
pub trait NeneRows: Send + Sync + 'static {
    /// The store, for messages.
    fn name(&self) -> &'static str;

    /// The time limit of an operation.
    fn timeout(&self) -> Duration;

    /// Reads the row of a resource.
    fn look(&self, until: Deadline, resource: &str) -> impl Future<Output = Result<Seen>> + Send;

    /// Adds a row, unless there is one of its resource.
    fn insert(&self, until: Deadline, row: &NeneRow) -> impl Future<Output = Result<bool>> + Send;

    /// Puts a row in the place of one that is still as it was seen, unless the server's clock has reached `before` by then:
    /// when nobody else can change the row any more.
    fn replace(
        &self,
        until: Deadline,
        seen: &NeneRow,
        by: &NeneRow,
        before: Option<i64>,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Removes a row that is still as it was seen.
    fn delete(&self, until: Deadline, seen: &NeneRow) -> impl Future<Output = Result<bool>> + Send;

    /// At most `most` rows after a resource, in the table's order, and the server's clock; a damaged row as what it is.
    fn page(
        &self,
        until: Deadline,
        after: &str,
        most: usize,
    ) -> impl Future<Output = Result<(i64, Vec<Result<NeneRow, Unreadable>>)>> + Send;

    /// Whether the table is there and as it must be, and what the server's settings support.
    fn check(&self) -> impl Future<Output = Result<Health>> + Send;

    /// Creates the table if it is missing.
    fn prepare(&self) -> impl Future<Output = Result<()>> + Send;

    /// As [`Store::close`](leasehold_core::Store::close); by default at once.
    fn close(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}
