//! The table of the PHP library: clients in PHP, what they and the stores in the table must do beside each other, and
//! what these stores report to the conformance suite.

pub mod cases;
mod php;
pub mod sides;

use std::time::Duration;

use leasehold_conformance::Reports;

pub use php::{Acquired, Php};

/// What every store in the table reports.
pub fn reports() -> Reports {
    let mut reports = Reports::nothing();
    reports.holder = true;
    reports.winner = true;
    reports.own_clock = false;
    reports.unit = Duration::from_secs(1);
    reports.each_alone = true;
    reports.acquire_exchanges = 2;
    reports.evict_exchanges = 2;
    reports
}
