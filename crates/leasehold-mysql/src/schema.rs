//! Creates the store's objects.

use leasehold_core::{ErrorKind, Result};

use crate::dialect::Mysql;
use crate::error;
use crate::health::admit_version;

/// The version of all objects.
pub(crate) const VERSION: i64 = 1;

impl Mysql {
    /// Creates the objects unless they are there. Each statement can be run again, by several clients at once; the last
    /// one says that all are there.
    pub(crate) async fn create_objects(&self) -> Result<()> {
        let deadline = self.pool.deadline();
        let checked = self.health(deadline).await;
        // The database, an object or the last row may be missing.
        let Err(error) = checked else { return Ok(()) };
        if error.kind() != ErrorKind::Incompatible {
            return Err(error);
        }
        let (server, database) = (&self.pool.server, &self.sql.database);
        let look = format!(
            "SELECT VERSION(), (SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = '{0}'), \
             (SELECT COUNT(*) FROM information_schema.TABLES \
             WHERE TABLE_SCHEMA = '{0}' AND TABLE_NAME = 'leasehold_version')",
            database.as_str()
        );
        let rows = self.pool.query_text(deadline, &look).await?;
        let row = rows.first().ok_or_else(|| error::unexpected(server, "no row"))?;
        let version: String = row.get(0).unwrap_or_default();
        admit_version(server, &version, self.pool.is_mariadb)?;
        let has = |nth: usize| row.get::<i64, _>(nth).is_some_and(|count| count > 0);
        if has(2) {
            let known = format!("SELECT version FROM {}.leasehold_version", database.quoted());
            if !self.pool.query_text(deadline, &known).await?.is_empty() {
                // Of another version, or not to be used; or another client has just finished.
                return self.health(deadline).await.map(drop);
            }
        }
        if !has(1) {
            let create = format!("CREATE DATABASE IF NOT EXISTS {}", database.quoted());
            self.pool.run(deadline, &[create]).await?;
        }
        self.pool.run(deadline, &self.sql.create()).await
    }
}
