//! Creates the schema, and states whether it is there.

use std::sync::Arc;

use leasehold_core::{Error, Result};
use leasehold_driver::{Deadline, outliving};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::call::Call;
use crate::dialect::Postgres;
use crate::error;
use crate::health::{admit_version, are_old};
use crate::pool::Pool;
use crate::sql::Sql;

impl Postgres {
    /// Creates the schema unless it is there, or replaces its functions if they are of an earlier version.
    pub(crate) async fn create_schema(&self) -> Result<()> {
        let until = self.pool.deadline();
        if self.is_prepared().await? {
            return Ok(());
        }
        let (pool, sql) = (self.pool.clone(), Arc::clone(&self.sql));
        outliving(async move { create(&pool, &sql, until).await }).await
    }

    async fn is_prepared(&self) -> Result<bool> {
        let schema = self.sql.schema.as_str();
        let rows = self.pool.read(self.pool.deadline(), || exists(&self.sql)).await?;
        let row = rows.first().ok_or_else(|| error::unexpected(self.pool.server(), "no row"))?;
        if row.get::<_, &str>(3) != "UTF8" {
            return Err(Error::incompatible(format!(
                "the database has the encoding {}; the store needs one with UTF8",
                row.get::<_, &str>(3)
            )));
        }
        match tables(row) {
            (false, false) => Ok(false),
            (true, true) => {
                let row = self.query_health().await?;
                admit_version(self.pool.server(), schema, &row)?;
                if are_old(&row) {
                    return Ok(false);
                }
                self.health().await.map(|_| true)
            }
            _ => Err(Error::incompatible(format!(
                "the schema {schema:?} has a table leases or waiters that is not Leasehold's; give another schema"
            ))),
        }
    }
}

/// Creates the schema, or replaces its functions, in one transaction.
async fn create(pool: &Pool, sql: &Sql, until: Deadline) -> Result<()> {
    let schema = sql.schema.as_str();
    pool.create(until, async |connection| {
        // Another client may have been first.
        let rows = connection.send(&exists(sql)).await?;
        let Some(found) = rows.first() else { return Ok(()) };
        let is_missing = match tables(found) {
            (false, false) => true,
            (true, true) => connection.send(&Call::new(&sql.health)).await?.iter().any(are_old),
            _ => false,
        };
        if !found.get::<_, bool>(0) {
            connection.run(&format!("CREATE SCHEMA \"{schema}\"")).await?;
        }
        if is_missing {
            connection.run(&sql.create).await?;
        }
        Ok(())
    })
    .await
}

/// Whether the schema has our table of versions, and any table of leases.
fn tables(row: &Row) -> (bool, bool) {
    (row.get(1), row.get(2))
}

fn exists(sql: &Sql) -> Call<'_> {
    Call::new(&sql.exists).with(Type::TEXT, sql.schema.as_str())
}
