//! The statements with their values, and how their replies are read.

pub(crate) mod acquire;
pub(crate) mod evict;
pub(crate) mod list;
pub(crate) mod release;
pub(crate) mod renew;

use leasehold_core::Result;
use leasehold_sql::Request;
use tokio_postgres::Row;

use crate::call::Statement;
use crate::row_waits::{RowWaits, Turns};

/// The statements of a request, and how their rows are read.
pub(crate) trait Statements: Request {
    /// Whether it may be sent again while nobody knows what became of it: late, it revives nothing (C6) and shortens
    /// nothing.
    const MAY_BE_REPEATED: bool = false;

    /// For an exclusive lease of one key.
    fn one(&self) -> impl Statement;

    /// For several exclusive leases, each of one key.
    fn batch(requests: &[&Self]) -> impl Statement;

    /// For any lease.
    fn any(&self) -> impl Statement;

    /// The turns to wait for a row.
    fn turns(waits: &RowWaits) -> &Turns {
        waits.of_others()
    }

    /// The reply in the row of [`one`](Self::one) or [`any`](Self::any).
    fn reply(&self, server: &str, rows: &[Row]) -> Result<Self::Reply>;

    /// The reply in the row of a member of a batch that was carried out.
    fn member(server: &str, row: &Row) -> Result<Self::Reply>;
}
