//! The table of the PHP library in a database of an application.

use std::fmt;
use std::time::Duration;

use leasehold_core::{Effect, Error, Health, Level, Result};
use leasehold_driver::nene::{
    NeneConfig, NeneRows, NeneServer, NeneServerConfig, NeneTable, OVERWRITTEN, Page, Statements,
    Value, lacks_privilege,
};
use leasehold_driver::{Deadline, Halfway, StoreUrl};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error as Failure, Params, Row};

use crate::call::{Call, column, required, text};
use crate::config::{MysqlConfig, NAME};
use crate::error;
use crate::health::Settings;
use crate::pool::{Pool, Unanswered};
use crate::sql::DatabaseName;

/// A store in the table of the PHP library Nene DistributedLock, in a database of MySQL or MariaDB.
pub type MysqlNeneStore = NeneTable<NeneDatabase>;

/// Compares names byte by byte, also by spaces at the end.
const COLLATION: &str = "utf8mb4_0900_bin";
const COLLATION_OF_MARIADB: &str = "utf8mb4_nopad_bin";

/// Which server to use, and how: the table is in the database of a [`MysqlConfig`]. Its URL is
/// `mysql://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE?format=nene`.
pub type MysqlNeneConfig = NeneServerConfig<MysqlConfig>;

impl NeneServer for MysqlConfig {
    const OPTIONS: &'static [&'static str] = Self::OPTIONS;

    type Rows = NeneDatabase;

    fn parse_for_nene(url: &str) -> Result<(Self, StoreUrl)> {
        Self::read(url)
    }

    async fn connect_to_nene(
        self,
        nene: &NeneConfig,
    ) -> Result<(NeneDatabase, Statements, Duration)> {
        let (pool, sql) = self.open_pool(0).await?;
        let collation = if pool.is_mariadb { COLLATION_OF_MARIADB } else { COLLATION };
        let inserted = |text: &str| {
            let text = text
                .replace("{columns}", include_str!("sql/nene/columns.sql").trim_end())
                .replace("{collation}", collation)
                .replace("{database}", sql.database.as_str());
            nene.inserted(&sql.inserted(&text))
        };
        let (table, about) = ("{schema}.`{table}`", include_str!("sql/nene/about.sql"));
        let (table, about) = (inserted(table), inserted(about));
        let statements = leasehold_driver::nene_statements!(nene, inserted);
        let timeout = pool.timeout();
        Ok((NeneDatabase { pool, table, about, database: sql.database }, statements, timeout))
    }
}

/// A database with the table.
pub struct NeneDatabase {
    pool: Pool,
    database: DatabaseName,
    /// The table's name in messages.
    table: String,
    about: String,
}

impl NeneDatabase {
    async fn settings(&self, until: Deadline) -> Result<Settings> {
        let mut rows = self.pool.query_text(until, SETTINGS).await?;
        rows.extend(self.pool.query_text(until, REPLICAS).await?);
        Settings::of(self.pool.server(), &rows)
    }

    /// Whether the columns are as they must be, and how names are compared.
    fn inspect(&self, about: &Row, health: &mut Health) -> Result<()> {
        let (server, table) = (self.pool.server(), &self.table);
        let Some(types) = text(server, about, "o_types")? else {
            health.hazards.push(format!(
                "{server} has no table {table}, or this user may not use it; name the database of the PHP library in the \
                 URL, or create the table with `leasehold init`, or `Locker::prepare`"
            ));
            return Ok(());
        };
        if types != "datetime,datetime" {
            return Err(Error::incompatible(format!(
                "the times of {table} have the types {types}; they must be DATETIME, in whole seconds, for PHP compares them \
                 as text"
            )));
        }
        health.schema = Some(1);
        let collation = text(server, about, "o_collation")?.unwrap_or_default();
        if !["", COLLATION, COLLATION_OF_MARIADB].contains(&collation.as_str()) {
            health.hazards.push(format!(
                "names that the collation {collation} of {table} does not tell apart, such as by case or by spaces at the \
                 end, are one lock"
            ));
        }
        if required::<i64>(server, about, "o_guards")? == 0 {
            health.hazards.push(OVERWRITTEN.to_owned());
        }
        Ok(())
    }

    /// The same error, except that the table needs other privileges than the objects of the server's own store, and that nothing
    /// of ours creates its database.
    fn of_table(&self, error: Error) -> Error {
        let Some(Failure::Server(reported)) =
            error.cause().and_then(|source| source.downcast_ref())
        else {
            return error;
        };
        match reported.code {
            1049 => Error::incompatible(format!(
                "the database {:?} does not exist; name the database of the PHP library in the URL, or create it by \
                 CREATE DATABASE; the server reported: {} (error 1049)",
                self.database.as_str(),
                reported.message
            )),
            code if error::PRIVILEGES.contains(&code) => lacks_privilege(reported),
            _ => error,
        }
    }
}

/// What the level depends on.
const SETTINGS: &str = include_str!("sql/shared/settings.sql");

const REPLICAS: &str = "SHOW GLOBAL STATUS WHERE Variable_name = 'Slaves_connected'";

/// Refuses sessions in which a statement would mean something else, as in a caller's pool.
fn admit(server: &str, first: &Row) -> Result<()> {
    if required::<i64>(server, first, "o_commits")? == 0 {
        return Err(Error::incompatible(
            "the sessions of the pool do not commit each statement; set autocommit = 1 in them",
        ));
    }
    if required::<i64>(server, first, "o_utf8")? == 0 {
        return Err(Error::incompatible(
            "the sessions of the pool have another character set than utf8mb4; run SET NAMES utf8mb4 in them",
        ));
    }
    Ok(())
}

fn bound(values: Vec<Value>) -> Vec<mysql_async::Value> {
    let bound = |value| match value {
        Value::Text(text) => text.into(),
        Value::Integer(integer) => integer.into(),
    };
    values.into_iter().map(bound).collect()
}

impl NeneRows for NeneDatabase {
    const NAME: &'static str = NAME;

    async fn read(&self, until: Deadline, statement: &str, values: Vec<Value>) -> Result<Page> {
        let connection = self.pool.get(until).await?;
        let call = Call::statement(statement, bound(values));
        let server = self.pool.server();
        let (connection, rows) = self.pool.query(connection, until, call).await;
        let failed = |e| self.of_table(self.pool.error(e)).with_effect(Effect::NotApplied);
        let rows = rows.map_err(failed)?;
        let first = rows.first().ok_or_else(|| error::unexpected(server, "no row"))?;
        if required::<i64>(server, first, "o_read_only")? != 0 {
            // Of a connection that is retired it is known.
            if connection.is_some_and(|connection| !connection.is_retired()) {
                self.pool.doubt();
            }
            return Err(error::read_only(server));
        }
        admit(server, first)?;
        Page::of(&rows, |row, name| text(server, row, name), |row, name| column(server, row, name))
    }

    /// What was rolled back because of another transaction has changed no row.
    async fn write(&self, until: Deadline, text: &str, values: Vec<Value>) -> Result<bool> {
        let connection = self.pool.get(until).await?;
        let values = Params::Positional(bound(values));
        let exchange = async |conn: &mut Conn| {
            conn.exec_drop(text, values).await?;
            Ok(conn.affected_rows())
        };
        match self.pool.within(connection, until, exchange).await.1 {
            Ok(changed) => Ok(changed > 0),
            Err(Unanswered::Server(e)) if error::is_conflict(&e) && !error::is_lock_wait(&e) => {
                Ok(false)
            }
            Err(failure) => Err(self.of_table(self.pool.error(failure))),
        }
    }

    async fn check(&self) -> Result<Health> {
        let (server, until) = (self.pool.server(), self.pool.deadline());
        let settings = self.settings(until).await?;
        if settings.is_read_only() {
            self.pool.doubt();
        }
        settings.admit(server, self.pool.is_mariadb)?;
        let (rows, halfway) = Halfway::of(self.pool.query_text(until, &self.about)).await;
        let rows = rows?;
        let about = rows.first().ok_or_else(|| error::unexpected(server, "no row"))?;
        let mut health = settings.health(settings.replicas(server, about)?);
        health.level = Level::BestEffort;
        let place: String = required(server, about, "o_place")?;
        health.identity = Some(format!("{NAME}:{place}:{}", self.table));
        health.clock_difference_us = Some(halfway.ahead(required(server, about, "o_now")?));
        self.inspect(about, &mut health)?;
        Ok(health)
    }

    async fn prepare(&self, create: &[String]) -> Result<()> {
        let until = self.pool.deadline();
        let settings = self.settings(until).await?;
        settings.admit(self.pool.server(), self.pool.is_mariadb)?;
        self.pool.run(until, create).await.map_err(|e| self.of_table(e))
    }

    async fn close(&self) {
        self.pool.close(self.pool.deadline()).await;
    }
}

impl fmt::Debug for NeneDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NeneDatabase({}, {})", self.pool.server(), self.table)
    }
}
