use std::time::Duration;

use leasehold_core::Result;

use crate::janitor::{self, JanitorReport, next_round};
use crate::locker::Locker;

/// Purges expired records at an interval, on the `Locker`'s thread; see [`crate::Janitor`].
#[derive(Debug)]
#[must_use = "the janitor stops when it is dropped"]
pub struct Janitor {
    janitor: crate::Janitor,
    locks: Locker,
}

/// Sets the options of a [`Janitor`]; see [`crate::JanitorBuilder`].
#[derive(Debug)]
#[must_use = "the janitor begins when it is spawned"]
pub struct JanitorBuilder {
    builder: janitor::JanitorBuilder,
    locks: Locker,
}

impl JanitorBuilder {
    pub(super) fn new(locks: &Locker) -> Self {
        Self { builder: locks.janitor(), locks: locks.clone() }
    }

    /// Sets the interval between two rounds, as [`crate::JanitorBuilder::every`].
    pub fn every(mut self, every: Duration) -> Self {
        self.builder = self.builder.every(every);
        self
    }

    /// Sets how many records and counters one request removes at most, as [`crate::JanitorBuilder::batch`].
    pub fn batch(mut self, batch: usize) -> Self {
        self.builder = self.builder.batch(batch);
        self
    }

    /// Starts the janitor, on the `Locker`'s thread.
    ///
    /// # Errors
    /// As [`crate::JanitorBuilder::spawn`].
    pub fn spawn(self) -> Result<Janitor> {
        let Self { builder, locks } = self;
        let janitor = locks.0.thread()?.run(async move { builder.spawn() })?;
        Ok(Janitor { janitor, locks })
    }
}

impl Janitor {
    /// What it has done so far.
    pub fn report(&self) -> JanitorReport {
        self.janitor.report()
    }

    /// Waits for the end of a round that it has not reported yet; `None` once the janitor has ended.
    ///
    /// # Errors
    /// As [the module](crate::blocking) states.
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
    /// As [the module](crate::blocking) states; it stops all the same.
    pub fn stop(self) -> Result<JanitorReport> {
        let Self { janitor, locks } = self;
        locks.0.thread()?.run(async move { Ok(janitor.stop().await) })
    }
}
