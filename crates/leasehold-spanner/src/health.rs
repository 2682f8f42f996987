//! What the database supports.

use google_cloud_spanner::statement::Statement;
use leasehold_core::{Error, Health, Level, Result};
use leasehold_driver::{Deadline, Halfway};

use crate::error;
use crate::store::Inner;
use crate::table::COLUMNS;

/// The version of the table.
const VERSION: u32 = 1;

/// The hazard of the emulator.
pub(crate) const EMULATED: &str =
    "the emulator keeps nothing when it ends: it is for tests; use a database of Cloud Spanner";

impl Inner {
    /// Creates the table if it is missing.
    pub(crate) async fn prepare(&self) -> Result<()> {
        let (client, config) = (&self.client, &self.config);
        let is_prepared = || self.is_prepared();
        crate::schema::prepare(client, config, &self.sql.create, is_prepared).await
    }

    async fn is_prepared(&self) -> Result<bool> {
        Ok(self.known(self.client.deadline()).await?.1)
    }

    pub(crate) async fn check(&self) -> Result<Health> {
        let (known, halfway) = Halfway::of(self.known(self.client.deadline())).await;
        let (now, is_prepared) = known?;
        let is_emulated = self.config.is_emulated();
        let table = self.sql.table.as_str();
        let mut health = Health::new(if is_emulated { Level::BestEffort } else { Level::Fenced });
        health.schema = is_prepared.then_some(VERSION);
        health.durable = !is_emulated;
        health.identity = Some(format!("spanner:{}/{table}", self.config.path()));
        health.clock_difference_us = Some(halfway.ahead(now));
        if is_emulated {
            health.hazards.push(EMULATED.to_owned());
        }
        Ok(health)
    }

    /// Spanner's clock, and whether the table is there.
    async fn known(&self, until: Deadline) -> Result<(i64, bool)> {
        let client = &self.client;
        let rows = client.read(Statement::builder(&*self.sql.health).build(), until).await?;
        let row = rows
            .first()
            .ok_or_else(|| Error::unexpected(format!("{} sent no row", client.server)))?;
        let number =
            |name: &str| row.get::<i64>(name).map_err(|e| error::of(&client.server, e, false));
        let (now, known) = (number("now")?, usize::try_from(number("known")?).unwrap_or_default());
        if known > 0 && known < COLUMNS.len() {
            return Err(Error::incompatible(format!(
                "the table {} has {known} of the {} columns of the store; give another name by the option table",
                self.sql.table.as_str(),
                COLUMNS.len()
            )));
        }
        Ok((now, known > 0))
    }
}
