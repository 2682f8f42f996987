//! The table of the PHP library: what its stores report to the conformance suite.

use std::time::Duration;

use leasehold_conformance::Reports;

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
