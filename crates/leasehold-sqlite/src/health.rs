//! The level that an open database supports.

use leasehold_core::{Error, Health, Level, Result};

use crate::database::Database;
use crate::file::Findings;
use crate::limit::Limit;

pub(crate) fn check(database: &Database, limit: Limit, memory: &str) -> Result<Health> {
    // Also that the file is still there and still ours.
    database.read(limit, |_| Ok(()))?;
    let mut health = Health::new(Level::Fenced);
    health.schema = Some(database.version()?.unsigned_abs());
    health.clock_difference_us = Some(0);
    health.server = Some(format!("SQLite {}", rusqlite::version()));
    let Some(file) = database.file() else {
        // Its leases and its clients end together, so it forgets nothing that a client knows.
        health.durable = true;
        health.identity = Some(memory.to_owned());
        return Ok(health);
    };
    let (mode, synchronous): (String, i64) =
        (database.pragma("journal_mode")?, database.pragma("synchronous")?);
    if mode != "wal" {
        return Err(Error::incompatible(format!(
            "{} was switched from the journal mode wal to {mode} while it was open; switch it back \
             (PRAGMA journal_mode = wal)",
            database.name()
        )));
    }
    let Findings { hazards, volatile } = file.findings()?;
    health.hazards = hazards;
    health.durable = synchronous >= 2 && !volatile;
    if !health.durable {
        health.level = Level::Lease;
    }
    health.identity = Some(file.identity());
    Ok(health)
}
