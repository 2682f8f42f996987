//! Reads what every row has.

use std::time::Duration;

use google_cloud_spanner::result::Row;
use google_cloud_spanner::value::FromValue;
use leasehold_core::{Error, Now, Result};

pub(crate) fn column<T: FromValue>(row: &Row, name: &str) -> Result<T> {
    row.get(name).map_err(|e| Error::corrupt(format!("the column {name}: {e}")).with_source(e))
}

/// Spanner's clock, in each row.
pub(crate) fn now(row: &Row) -> Result<i64> {
    column(row, "now")
}

/// The clock as the rules read it.
pub(crate) fn instant(now: i64) -> Now {
    let micros = u64::try_from(now).unwrap_or_default();
    Now { boot: Duration::from_micros(micros), wall_micros: micros }
}
