//! Creates the store's objects.

use leasehold_core::{Error, ErrorKind, Result};

use crate::dialect::Mysql;
use crate::error;

impl Mysql {
    /// Creates the objects unless they are there. Each statement can be run again, by several clients at once; the last
    /// one reports that all are there.
    pub(crate) async fn create_objects(&self) -> Result<()> {
        let deadline = self.pool.deadline();
        let checked = self.health(deadline).await;
        // The database, an object or the last row may be missing.
        let Err(error) = checked else { return Ok(()) };
        if error.kind() != ErrorKind::Incompatible {
            return Err(error);
        }
        let (server, database) = (self.pool.server(), &self.sql.database);
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

/// Refuses a server that is too old. What MariaDB reports of its version counts only if it cannot do what 10.6 can.
pub(crate) fn admit_version(server: &str, version: &str, is_mariadb: bool) -> Result<()> {
    let reports_mariadb = version.to_ascii_lowercase().contains("mariadb");
    let is_old = reports_mariadb || numbers(version).is_some_and(|found| found < (8, 0, 29));
    if is_mariadb || !is_old {
        return Ok(());
    }
    Err(Error::incompatible(format!(
        "{server} is {version}; the store needs MySQL 8.0.29 or MariaDB 10.6, or newer"
    )))
}

/// The numbers at the beginning of a version.
fn numbers(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.split(['.', '-']).map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_lack_something_are_refused() {
        for (version, is_mariadb, is_good) in [
            ("10.5.28-MariaDB-log", false, false),
            ("10.6.0-MariaDB", true, true),
            ("11.4.2-MariaDB", true, true),
            // What a proxy states in its place.
            ("5.7.44-log", true, true),
            ("8.0.28", false, false),
            ("8.0.29-0ubuntu0", false, true),
            ("8.4.0", false, true),
            ("5.7.44-log", false, false),
        ] {
            let admitted = admit_version("h:1", version, is_mariadb);
            assert_eq!(admitted.is_ok(), is_good, "{version}: {admitted:?}");
        }
    }
}
