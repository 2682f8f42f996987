//! The table of the PHP library in a database of an application.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use leasehold_core::{Effect, Error, ErrorKind, Health, Level, Result, Unreadable};
use leasehold_driver::nene::{
    NeneConfig, NeneRow, NeneRows, NeneTable, OVERWRITTEN, Seen, Statements,
};
use leasehold_driver::{Deadline, Halfway};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error as Failure, Params, Row, ServerError, Value};

use crate::call::Call;
use crate::config::{MysqlConfig, NAME};
use crate::error;
use crate::health::Settings;
use crate::pool::{Pool, Unanswered};
use crate::rows::{column, required, text};
use crate::sql::{READ_ONLY, SEES_REPLICAS, Sql};

/// A store in the table of the PHP library Nene DistributedLock, in a database of MySQL or MariaDB.
pub type MysqlNeneStore = NeneTable<NeneDatabase>;

/// Which server to use, and how.
#[derive(Debug, Clone)]
pub struct MysqlNeneConfig {
    server: MysqlConfig,
    nene: NeneConfig,
}

impl MysqlNeneConfig {
    /// The table `distributed_locks` in the database of this configuration. Its
    /// [`forget_after`](MysqlConfig::forget_after) has no meaning here.
    pub fn new(server: MysqlConfig) -> Self {
        Self { server, nene: NeneConfig::default() }
    }

    /// Parses a URL: `mysql://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE?format=nene`, with the options of
    /// [`MysqlConfig::parse`] and of [`NeneConfig::take`].
    ///
    /// # Errors
    /// `InvalidInput` as theirs.
    pub fn parse(url: &str) -> Result<Self> {
        let (server, mut options) = MysqlConfig::read(url)?;
        let nene = NeneConfig::take(&mut options)?;
        options.finish(&[NeneConfig::OPTIONS, MysqlConfig::OPTIONS].concat())?;
        Ok(Self { server, nene })
    }

    /// Sets the table, and how it is used.
    #[must_use]
    pub fn nene(mut self, nene: NeneConfig) -> Self {
        self.nene = nene;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong setting; `Unavailable` or `Denied` if the server cannot be reached or refuses the
    /// login.
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect(self) -> Result<MysqlNeneStore> {
        self.open_parts().await.map_err(|e| e.with_context(NAME, "connect"))
    }

    async fn open_parts(self) -> Result<MysqlNeneStore> {
        self.nene.check()?;
        let (pool, sql) = self.server.open_pool(0).await?;
        let statements = statements(&self.nene, &sql, COLLATION);
        let database = NeneDatabase { pool, sql, statements, nene: self.nene.clone() };
        Ok(NeneTable::new(database, self.nene))
    }
}

/// Tells names apart byte by byte, also by spaces at the end.
const COLLATION: &str = "utf8mb4_0900_bin";
const COLLATION_OF_MARIADB: &str = "utf8mb4_nopad_bin";

fn statements(nene: &NeneConfig, sql: &Sql, collation: &str) -> Statements {
    Statements::mysql(nene, &sql.database.quoted(), &sql.now(), READ_ONLY, collation)
}

/// A database with the table.
pub struct NeneDatabase {
    pool: Pool,
    sql: Sql,
    statements: Statements,
    nene: NeneConfig,
}

impl NeneDatabase {
    /// The rows of a look or a page.
    async fn read(
        &self,
        until: Deadline,
        text: &str,
        values: impl Into<Vec<Value>>,
    ) -> Result<Vec<Row>> {
        let connection = self.pool.get(until).await?;
        let call = Call::statement(text, values);
        let server = self.pool.server();
        let (connection, rows) = self.pool.query(connection, until, &self.sql, call).await;
        let rows = rows.map_err(|e| self.pool.error(e).with_effect(Effect::NotApplied))?;
        let first = rows.first().ok_or_else(|| error::unexpected(server, "no row"))?;
        if required::<i64>(server, first, "o_read_only")? != 0 {
            // Of a connection that is retired it is known.
            if connection.is_some_and(|connection| !connection.is_retired()) {
                self.pool.doubt();
            }
            return Err(error::read_only(server));
        }
        Ok(rows)
    }

    /// Whether a statement changed a row. What was rolled back because of another transaction has changed none.
    async fn write(
        &self,
        until: Deadline,
        text: &str,
        values: impl Into<Vec<Value>>,
    ) -> Result<bool> {
        let connection = self.pool.get(until).await?;
        let values = Params::Positional(values.into());
        let exchange = async |conn: &mut Conn| {
            conn.exec_drop(text, values).await?;
            Ok(conn.affected_rows())
        };
        match self.pool.within(connection, until, exchange).await.1 {
            Ok(changed) => Ok(changed > 0),
            Err(Unanswered::Server(e)) if error::is_conflict(&e) && !error::is_lock_wait(&e) => {
                Ok(false)
            }
            Err(failure) => Err(self.pool.error(failure)),
        }
    }

    /// The clock and the row of a reply.
    fn seen(&self, reply: &Row) -> Result<Seen> {
        let server = self.pool.server();
        if required::<i64>(server, reply, "o_commits")? == 0 {
            return Err(Error::incompatible(
                "the sessions of the pool do not commit each statement; set autocommit = 1 in them",
            ));
        }
        if required::<i64>(server, reply, "o_utf8")? == 0 {
            return Err(Error::incompatible(
                "the sessions of the pool have another character set than utf8mb4; run SET NAMES utf8mb4 in them",
            ));
        }
        let now = required(server, reply, "o_now")?;
        let Some(resource) = text(server, reply, "o_resource")? else {
            return Ok(Seen { now, row: None });
        };
        let damaged = || Error::corrupt(format!("the row of {resource:?} has no owner or no time"));
        let seconds = |name| column(server, reply, name)?.ok_or_else(damaged);
        let row = NeneRow {
            owner: text(server, reply, "o_owner")?.ok_or_else(damaged)?,
            expires_at: seconds("o_expires_at")?,
            acquired_at: seconds("o_acquired_at")?,
            resource,
        };
        Ok(Seen { now, row: Some(row) })
    }

    async fn settings(&self, until: Deadline) -> Result<Settings> {
        let mut rows = self.pool.query_text(until, SETTINGS).await?;
        rows.extend(self.pool.query_text(until, REPLICAS).await?);
        Settings::of(self.pool.server(), &rows)
    }

    /// Whether the columns are as they must be, and how names are compared.
    fn inspect(&self, about: &Row, health: &mut Health) -> Result<()> {
        let (server, table) = (self.pool.server(), &self.statements.table);
        let Some(types) = text(server, about, "o_types")? else {
            health.hazards.push(format!(
                "{server} has no table {table}, or this user may not use it; name the database of the PHP library in the \
                 URL, or create the table with `leasehold init`, or in a program with `Locker::connect_unchecked` and `prepare`"
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
}

/// What the level depends on.
const SETTINGS: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'read_only', 'super_read_only', \
     'innodb_read_only', 'innodb_flush_log_at_trx_commit', 'innodb_doublewrite', 'log_bin', 'sync_binlog', 'wsrep_on')";

const REPLICAS: &str = "SHOW GLOBAL STATUS WHERE Variable_name = 'Slaves_connected'";

impl NeneRows for NeneDatabase {
    fn name(&self) -> &'static str {
        NAME
    }

    fn timeout(&self) -> Duration {
        self.pool.timeout()
    }

    async fn look(&self, until: Deadline, resource: &str) -> Result<Seen> {
        let rows = self.read(until, &self.statements.look, [resource.into()]).await?;
        self.seen(rows.first().ok_or_else(|| error::unexpected(self.pool.server(), "no row"))?)
    }

    async fn insert(&self, until: Deadline, row: &NeneRow) -> Result<bool> {
        let NeneRow { resource, owner, expires_at, acquired_at } = row;
        let values = [resource.into(), owner.into(), (*expires_at).into(), (*acquired_at).into()];
        self.write(until, &self.statements.insert, values).await
    }

    async fn replace(
        &self,
        until: Deadline,
        seen: &NeneRow,
        by: &NeneRow,
        before: Option<i64>,
    ) -> Result<bool> {
        let values = [
            (&by.owner).into(),
            by.expires_at.into(),
            by.acquired_at.into(),
            (&seen.resource).into(),
            (&seen.owner).into(),
            seen.expires_at.into(),
            before.unwrap_or(i64::MAX).into(),
        ];
        self.write(until, &self.statements.replace, values).await
    }

    async fn delete(&self, until: Deadline, seen: &NeneRow) -> Result<bool> {
        let values = [(&seen.resource).into(), (&seen.owner).into(), seen.expires_at.into()];
        self.write(until, &self.statements.delete, values).await
    }

    async fn page(
        &self,
        until: Deadline,
        after: &str,
        most: usize,
    ) -> Result<(i64, Vec<Result<NeneRow, Unreadable>>)> {
        let values = [after.into(), u64::try_from(most).unwrap_or(u64::MAX).into()];
        let server = self.pool.server();
        let mut page = (0, Vec::new());
        for reply in &self.read(until, &self.statements.page, values).await? {
            match self.seen(reply) {
                Ok(Seen { now, row }) => {
                    page.0 = now;
                    page.1.extend(row.map(Ok));
                }
                // One damaged row hides no other.
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    let resource = text(server, reply, "o_resource").ok().flatten();
                    page.1.push(Err(Unreadable::new(resource.unwrap_or_default(), error)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(page)
    }

    async fn check(&self) -> Result<Health> {
        let (server, until) = (self.pool.server(), self.pool.deadline());
        let settings = self.settings(until).await?;
        if settings.is_read_only() {
            self.pool.doubt();
        }
        settings.admit(server, self.pool.is_mariadb)?;
        let about = self.about();
        let (rows, halfway) = Halfway::of(self.pool.query_text(until, &about)).await;
        let rows = rows?;
        let about = rows.first().ok_or_else(|| error::unexpected(server, "no row"))?;
        let mut health = settings.health(settings.replicas(server, about)?);
        health.level = Level::BestEffort;
        let place: String = required(server, about, "o_place")?;
        health.identity = Some(format!("{NAME}:{place}:{}", self.statements.table));
        health.clock_difference_us = Some(halfway.ahead(required(server, about, "o_now")?));
        self.inspect(about, &mut health)?;
        Ok(health)
    }

    async fn prepare(&self) -> Result<()> {
        let until = self.pool.deadline();
        let settings = self.settings(until).await?;
        settings.admit(self.pool.server(), self.pool.is_mariadb)?;
        let collation = self.collation(until).await?;
        let create = statements(&self.nene, &self.sql, collation).create;
        let created = self.pool.run(until, &create).await;
        created.map_err(|e| no_database(self.sql.database.as_str(), e))
    }

    async fn close(&self) {
        self.pool.close(self.pool.deadline()).await;
    }
}

impl NeneDatabase {
    /// The collation of a new table: the one that the server has, whatever version it reports.
    async fn collation(&self, until: Deadline) -> Result<&'static str> {
        let ask = format!(
            "SELECT COUNT(*) AS o_found FROM information_schema.COLLATIONS WHERE COLLATION_NAME = '{COLLATION_OF_MARIADB}'"
        );
        let server = self.pool.server();
        let rows = self.pool.query_text(until, &ask).await?;
        let row = rows.first().ok_or_else(|| error::unexpected(server, "no row"))?;
        let found: i64 = required(server, row, "o_found")?;
        Ok(if found > 0 { COLLATION_OF_MARIADB } else { COLLATION })
    }

    /// The statement that asks about the table.
    fn about(&self) -> String {
        let of_table = format!(
            "information_schema.COLUMNS WHERE TABLE_SCHEMA = '{}' AND CONCAT('{}.`', TABLE_NAME, '`') = '{}'",
            self.sql.database.as_str(),
            self.sql.database.quoted(),
            self.statements.table
        );
        format!(
            "SELECT {} AS o_now, ({}) AS o_guards, CONCAT(@@hostname, ':', @@port) AS o_place,
                 (SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%') AS o_replicas,
                 {SEES_REPLICAS} AS o_sees,
                 (SELECT COLLATION_NAME FROM {of_table} AND COLUMN_NAME = 'resource') AS o_collation,
                 (SELECT GROUP_CONCAT(COLUMN_TYPE) FROM {of_table} AND COLUMN_NAME IN ('expires_at', 'acquired_at')) AS o_types",
            self.sql.now(),
            self.statements.guards
        )
    }
}

/// The same error, except that nothing of ours creates the database of the PHP library.
fn no_database(database: &str, error: Error) -> Error {
    match error.source().and_then(|source| source.downcast_ref::<Failure>()) {
        Some(Failure::Server(ServerError { code: 1049, message, .. })) => {
            Error::incompatible(format!(
                "the database {database:?} does not exist; name the database of the PHP library in the URL, or create it \
                 by CREATE DATABASE; the server said: {message} (error 1049)"
            ))
        }
        _ => error,
    }
}

impl fmt::Debug for NeneDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NeneDatabase({}, {})", self.pool.server(), self.statements.table)
    }
}
