//! The table of the PHP library: clients in PHP, what they and the stores in the table must do beside each other, and
//! what these stores report to the conformance suite.

pub mod cases;
mod php;
pub mod sides;

use std::future::Future;
use std::time::Duration;

use leasehold_conformance::Reports;
use leasehold_core::Store;
use leasehold_driver::nene::NeneConfig;
use tokio::task::JoinSet;

pub use php::{Acquired, Php, Write};

/// By default: a second, and as much for the clocks.
pub const MARGIN: Duration = Duration::from_secs(2);

/// A database of an application, for its tests alone.
pub trait Database: Sized {
    type Store: Store + Clone + Send + Sync + 'static;

    /// What the error for the row of [`put_unreadable`](Self::put_unreadable) has.
    const UNREADABLE: &'static str;

    fn new() -> impl Future<Output = Self>;

    /// A store in the table, which it creates if it is missing.
    fn open_table(&self, config: NeneConfig) -> impl Future<Output = Self::Store>;

    /// As [`open_table`](Self::open_table), for a store whose writes wait long for other transactions.
    fn open_patient(&self, config: NeneConfig) -> impl Future<Output = Self::Store>;

    /// Puts a row of `r` there that no store can read.
    fn put_unreadable(&self) -> impl Future<Output = ()>;

    /// Starts an operation of such a store, and ends once its write waits.
    fn until_it_waits<T: Send + 'static>(
        &self,
        operation: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = JoinSet<T>>;

    /// A PHP client whose clock is so many seconds ahead.
    fn php_ahead(&self, ahead: i64) -> Php;

    fn php(&self) -> Php {
        self.php_ahead(0)
    }
}

/// What every store in the table reports.
pub fn reports() -> Reports {
    let mut reports = Reports::nothing();
    reports.holder = true;
    reports.withdraws = true;
    reports.own_clock = false;
    reports.shown_longer = MARGIN;
    reports.unit = Duration::from_secs(1);
    // It looks at each lease and then writes it.
    reports.exchanges.each_lease = true;
    reports.exchanges.acquire = 2;
    reports.exchanges.confirmation = 2;
    reports.exchanges.renew = 2;
    reports.exchanges.release = 2;
    reports.exchanges.not_held = 2;
    reports.exchanges.evict = 2;
    reports.exchanges.check = 4;
    reports
}
