//! Creates the schema, and says whether it is there.

use std::sync::Arc;

use leasehold_core::{Error, Result};
use leasehold_driver::Deadline;
use leasehold_driver::sql::outliving;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::call::{Call, Statement};
use crate::database::Database;
use crate::error;
use crate::health::{Ask, admit_version, are_old};
use crate::inner::Inner;
use crate::sql::{SAFELY, Sql};

/// The version of the schema that this crate uses.
pub(crate) const VERSION: i32 = 1;

/// Serialises those who prepare the same database.
pub(crate) const LOCK: i64 = 0x4c73_6864;

impl Inner {
    /// Creates the schema unless it is there, or replaces its functions if they are of an earlier version.
    pub(crate) async fn prepare(&self) -> Result<()> {
        let until = self.database.links.deadline();
        if self.is_prepared().await? {
            return Ok(());
        }
        let database = Arc::clone(&self.database);
        outliving(async move { create(&database, until).await }).await
    }

    async fn is_prepared(&self) -> Result<bool> {
        let rows = self
            .database
            .read(&Exists { schema: self.database.sql.schema.as_str().to_owned() })
            .await?;
        let row = rows.first().ok_or_else(|| error::odd(&self.database.links.server, "no row"))?;
        let schema = self.database.sql.schema.as_str();
        if row.get::<_, &str>(3) != "UTF8" {
            return Err(Error::incompatible(format!(
                "the database has the encoding {}; the store needs one with UTF8",
                row.get::<_, &str>(3)
            )));
        }
        match Found::of(row) {
            Found::Nothing => Ok(false),
            Found::Ours => {
                let row = self.ask().await?;
                admit_version(&self.database.links.server, schema, &row)?;
                if are_old(&row) {
                    return Ok(false);
                }
                self.check().await.map(|_| true)
            }
            Found::Others => Err(Error::incompatible(format!(
                "the schema {schema:?} has a table leases or waiters that is not Leasehold's; give another schema"
            ))),
        }
    }
}

/// Creates the schema, or replaces its functions, in one transaction, after others that prepare the same database.
async fn create(database: &Database, until: Deadline) -> Result<()> {
    let Database { links, sql, .. } = database;
    let schema = sql.schema.as_str();
    let first = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; {SAFELY}; SET LOCAL lock_timeout = {}; SELECT \
         pg_catalog.pg_advisory_xact_lock({LOCK})",
        until.earlier().left().as_millis().max(1)
    );
    let created = links.get(until).await?.transaction(&first, async |link| {
        // Another client may have been first.
        let (exists, patience) = (Exists { schema: schema.to_owned() }, None);
        let rows = link.send(&exists.call(sql, &patience)).await?;
        let Some(found) = rows.first() else { return Ok(()) };
        let is_missing = match Found::of(found) {
            Found::Nothing => true,
            Found::Ours => link.send(&Ask.call(sql, &patience)).await?.iter().any(are_old),
            Found::Others => false,
        };
        if !found.get::<_, bool>(0) {
            link.run(&format!("CREATE SCHEMA \"{schema}\"")).await?;
        }
        if is_missing {
            link.run(&sql.create).await?;
        }
        Ok(())
    });
    links.ended(until.bound(created).await, until)
}

#[derive(Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Ours,
    Others,
}

impl Found {
    fn of(row: &Row) -> Self {
        match (row.get(1), row.get(2)) {
            (false, false) => Self::Nothing,
            (true, true) => Self::Ours,
            _ => Self::Others,
        }
    }
}

struct Exists {
    schema: String,
}

impl Statement for Exists {
    fn call<'a>(&'a self, sql: &'a Sql, _: &'a Option<String>) -> Call<'a> {
        Call::new(&sql.exists, [(&self.schema as _, Type::TEXT)])
    }
}
