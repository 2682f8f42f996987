use leasehold_core::Result;

use crate::janitor::{JanitorReport, next_round};
use crate::locker::Locker;

/// Purges expired records at an interval, on the `Locker`'s thread; see [`crate::Janitor`].
#[derive(Debug)]
#[must_use = "the janitor stops when it is dropped"]
pub struct Janitor {
    janitor: crate::Janitor,
    locks: Locker,
}

impl Janitor {
    pub(super) fn new(janitor: crate::Janitor, locks: Locker) -> Self {
        Self { janitor, locks }
    }

    /// What it has done so far.
    pub fn report(&self) -> JanitorReport {
        self.janitor.report()
    }

    /// Waits for the end of a round that it has not reported yet; `None` once the janitor has ended.
    ///
    /// # Errors
    /// As [the module](crate::blocking) says.
    pub fn next_round(&mut self) -> Result<Option<JanitorReport>> {
        let mut reports = self.janitor.reports.clone();
        let next = async move {
            let report = next_round(&mut reports).await;
            Ok((reports, report))
        };
        let (reports, report) = self.locks.0.thread()?.run(next)?;
        self.janitor.reports = reports;
        Ok(report)
    }

    /// Stops it, also within a round, and reports the rounds that ended.
    ///
    /// # Errors
    /// As [the module](crate::blocking) says; it stops all the same.
    pub fn stop(self) -> Result<JanitorReport> {
        let Self { janitor, locks } = self;
        locks.0.thread()?.run(async move { Ok(janitor.stop().await) })
    }
}
