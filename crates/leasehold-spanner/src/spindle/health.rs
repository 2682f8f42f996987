//! What the table supports, and how it is created.

use google_cloud_spanner::statement::Statement;
use leasehold_core::{Error, Health, Level, Result};
use leasehold_driver::Halfway;

use super::statements::COLUMNS;
use super::{Inner, of_another_generation};
use crate::columns::column;

/// The generation of the format.
const VERSION: u32 = 2;

/// What a client of spindle can do to us.
const OVERWRITTEN: &str = "a client of spindle that found the lock free just before we took it, or was stopped between its two writes, overwrites our lease: two \
     clients then lead until the next renewal; move all clients to Leasehold, and to its own table";

impl Inner {
    pub(super) async fn check(&self) -> Result<Health> {
        let (read, halfway) = Halfway::of(self.known()).await;
        let (now, is_prepared) = read?;
        let config = &self.config;
        let mut health = Health::new(Level::BestEffort);
        health.schema = is_prepared.then_some(VERSION);
        health.durable = !config.spanner.is_emulated();
        let table = self.statements.table.as_str();
        health.identity = Some(format!("spanner:{}/{table}", config.spanner.path()));
        health.clock_difference_us = Some(halfway.ahead(now));
        if config.spanner.is_emulated() {
            health.hazards.push(crate::health::EMULATED.to_owned());
        }
        health.hazards.push(OVERWRITTEN.to_owned());
        health.hazards.push(format!(
            "the table does not show the duration of a client: one whose duration is below {:?}, the option duration here, takes over \
             locks that are held",
            config.duration
        ));
        if is_prepared {
            self.look_for_hazards(&mut health).await?;
        }
        Ok(health)
    }

    /// Locks beside each other, and claim rows of other clients.
    async fn look_for_hazards(&self, health: &mut Health) -> Result<()> {
        let statement = Statement::builder(&*self.statements.hazards).build();
        let rows = self.client.read(statement, self.client.deadline()).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        if let Some(stranger) = column::<Option<String>>(row, "stranger")? {
            return Err(of_another_generation(&stranger));
        }
        if let Some(neighbours) = column::<Option<String>>(row, "neighbours")? {
            health.hazards.push(format!(
                "of the locks {neighbours} one is the beginning of the other up to a _: while a client of spindle leads the shorter \
                 one, it deletes the row of the longer; rename one of them"
            ));
        }
        Ok(())
    }

    /// Spanner's clock, and whether the table is there.
    async fn known(&self) -> Result<(i64, bool)> {
        let (client, table) = (&self.client, self.statements.table.as_str());
        let statement = Statement::builder(&*self.statements.health).build();
        let rows = client.read(statement, client.deadline()).await?;
        let row = rows
            .first()
            .ok_or_else(|| Error::unexpected(format!("{} sent no row", client.server)))?;
        let number = |name: &str| column::<i64>(row, name);
        if number("tables")? == 0 {
            return Ok((number("now")?, false));
        }
        if usize::try_from(number("known")?) != Ok(COLUMNS.len()) || number("stamped")? == 0 {
            return Err(Error::incompatible(format!(
                "the table {table} is not one of spindle v2: it must have the columns name and writer of STRING(MAX), and heartbeat and \
                 token of TIMESTAMP, token with allow_commit_timestamp; name another by the option table"
            )));
        }
        Ok((number("now")?, true))
    }

    /// Creates the table if it is missing.
    pub(super) async fn prepare(&self) -> Result<()> {
        let is_prepared = || self.is_prepared();
        let create = &self.statements.create;
        crate::schema::prepare(&self.client, &self.config.spanner, create, is_prepared).await
    }

    async fn is_prepared(&self) -> Result<bool> {
        Ok(self.known().await?.1)
    }
}
