//! What the database supports.

use google_cloud_spanner::statement::Statement;
use leasehold_core::{Error, Health, Level, Result};
use leasehold_driver::{Deadline, Halfway};

use crate::error;
use crate::store::Inner;
use crate::table::COLUMNS;

/// The version of the table.
const VERSION: u32 = 1;

impl Inner {
    pub(crate) async fn check(&self) -> Result<Health> {
        let (known, halfway) = Halfway::of(self.known(self.client.deadline())).await;
        let (now, is_prepared) = known?;
        let is_emulated = self.config.is_emulated();
        let table = self.client.sql.table.as_str();
        let mut health = Health::new(if is_emulated { Level::BestEffort } else { Level::Fenced });
        health.schema = is_prepared.then_some(VERSION);
        health.durable = !is_emulated;
        health.identity = Some(format!("spanner:{}/{table}", self.config.path()));
        health.clock_difference_us = Some(halfway.ahead(now));
        if is_emulated {
            health.hazards.push(
                "the emulator keeps nothing when it ends: it is for tests; use a database of Cloud Spanner".to_owned(),
            );
        }
        Ok(health)
    }

    /// Whether the table is there.
    pub(crate) async fn is_prepared(&self, until: Deadline) -> Result<bool> {
        Ok(self.known(until).await?.1)
    }

    /// Spanner's clock, and whether the table is there.
    async fn known(&self, until: Deadline) -> Result<(i64, bool)> {
        let client = &self.client;
        let rows = client.read(Statement::builder(&*client.sql.health).build(), until).await?;
        let row = rows
            .first()
            .ok_or_else(|| Error::unexpected(format!("{} sent no row", client.server)))?;
        let number =
            |name: &str| row.get::<i64>(name).map_err(|e| error::of(&client.server, e, false));
        let (now, known) = (number("now")?, usize::try_from(number("known")?).unwrap_or_default());
        if known > 0 && known < COLUMNS.len() {
            return Err(Error::incompatible(format!(
                "the table {} has {known} of the {} columns of the store; give another name by the option table",
                client.sql.table.as_str(),
                COLUMNS.len()
            )));
        }
        Ok((now, known > 0))
    }
}
