//! The table of the PHP library in a database of an application.

use std::fmt;
use std::time::Duration;

use leasehold_core::{Effect, Error, Health, Level, Result};
use leasehold_driver::nene::{
    NeneConfig, NeneRows, NeneServer, NeneServerConfig, NeneTable, OVERWRITTEN, Page, Statements,
    Value, lacks_privilege,
};
use leasehold_driver::{Deadline, Halfway, StoreUrl, outliving};
use leasehold_sql::{Session as _, Unanswered};
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use crate::call::{Call, column};
use crate::config::{NAME, PostgresConfig, Wakers};
use crate::error;
use crate::health::Settings;
use crate::pool::Pool;
use crate::session::Session;

/// A store in the table of the PHP library Nene DistributedLock, in a database of PostgreSQL.
pub type PostgresNeneStore = NeneTable<NeneDatabase>;

/// Which server to use, and how: the table is in the schema of a [`PostgresConfig`], `public` by default. Its URL is
/// `postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE?format=nene`.
pub type PostgresNeneConfig = NeneServerConfig<PostgresConfig>;

impl NeneServer for PostgresConfig {
    const OPTIONS: &'static [&'static str] = Self::OPTIONS;

    type Rows = NeneDatabase;

    fn parse_for_nene(url: &str) -> Result<(Self, StoreUrl)> {
        let (config, options) = Self::read(url)?;
        if !matches!(config.wakeups, Wakers::Same) {
            return Err(Error::invalid_input(
                "nothing wakes the waiters for the PHP library's table; leave the option wakeups out",
            ));
        }
        Ok((config, options))
    }

    async fn connect_to_nene(
        self,
        nene: &NeneConfig,
    ) -> Result<(NeneDatabase, Statements, Duration)> {
        let now = self.settings.clock.unwrap_or(NOW);
        let (pool, schema, _) = self.open_pool("public", 0).await?;
        let inserted = |text: &str| {
            let text = text
                .replace("{columns}", include_str!("sql/nene/columns.sql").trim_end())
                .replace("{durably}", include_str!("sql/nene/durably.sql").trim_end())
                .replace("{now}", now);
            nene.inserted(&schema.inserted(&text))
        };
        let (table, about) = ("{schema}.\"{table}\"", include_str!("sql/nene/about.sql"));
        let statements = leasehold_driver::nene_statements!(nene, inserted);
        let timeout = pool.timeout();
        Ok((
            NeneDatabase { pool, table: inserted(table), about: inserted(about) },
            statements,
            timeout,
        ))
    }
}

/// The server's clock at that moment, in microseconds since 1970-01-01 UTC.
const NOW: &str =
    "(extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint";

/// A database with the table.
pub struct NeneDatabase {
    pool: Pool,
    /// The table's name in messages.
    table: String,
    about: String,
}

impl NeneDatabase {
    /// The rows of a statement that only reads, and asks whether its session is read-only.
    async fn rows(&self, until: Deadline, call: &Call<'_>) -> Result<Vec<Row>> {
        let server = self.pool.server();
        loop {
            let connection = self.pool.get(until).await?;
            let exchange = async |session: &mut Session| session.rows(call).await;
            let (connection, rows) = match self.pool.exchange(connection, until, exchange).await {
                (_, Err(Unanswered::Server(e))) if Session::is_conflict(&e) => continue,
                (connection, rows) => (connection, rows),
            };
            let rows =
                rows.map_err(|e| of_table(self.pool.error(e)).with_effect(Effect::NotApplied))?;
            let first = rows.first().ok_or_else(|| error::unexpected(server, "no row"))?;
            if !column::<bool>(server, first, "o_read_only")? {
                return Ok(rows);
            }
            // Of a session that is retired it is known.
            if connection.is_some_and(|connection| !connection.is_retired()) {
                self.pool.doubt();
            }
            return Err(error::read_only(server, column(server, first, "o_standby")?));
        }
    }

    /// Whether the columns are as they must be.
    fn inspect(&self, about: &Row, health: &mut Health) -> Result<()> {
        let (server, table) = (self.pool.server(), &self.table);
        let Some(types) = column::<Option<Vec<String>>>(server, about, "o_types")? else {
            health.hazards.push(format!(
                "{server} has no table {table}; name its schema by the option schema, or create the table with `leasehold \
                 init`, or `Locker::prepare`"
            ));
            return Ok(());
        };
        if types.len() != 2 || !types.iter().all(|kind| kind.ends_with("without time zone")) {
            return Err(Error::incompatible(format!(
                "the times of {table} have the types {}; they must be timestamp(0) without time zone",
                types.join(", ")
            )));
        }
        health.schema = Some(1);
        if column::<i64>(server, about, "o_guards")? == 0 {
            health.hazards.push(OVERWRITTEN.to_owned());
        }
        Ok(())
    }
}

/// A statement with its values.
fn call(text: &str, values: Vec<Value>) -> Call<'_> {
    values.into_iter().fold(Call::new(text), |call, value| match value {
        Value::Text(text) => call.with(Type::TEXT, text),
        Value::Integer(integer) => call.with(Type::INT8, integer),
    })
}

/// The same error, except that the table needs other privileges than the objects of the server's own store.
fn of_table(error: Error) -> Error {
    let failed = error.cause().and_then(|source| source.downcast_ref::<tokio_postgres::Error>());
    match failed.and_then(tokio_postgres::Error::as_db_error) {
        Some(reported) if *reported.code() == SqlState::INSUFFICIENT_PRIVILEGE => {
            lacks_privilege(reported)
        }
        _ => error,
    }
}

impl NeneRows for NeneDatabase {
    const NAME: &'static str = NAME;

    async fn read(&self, until: Deadline, text: &str, values: Vec<Value>) -> Result<Page> {
        let rows = self.rows(until, &call(text, values)).await?;
        let server = self.pool.server();
        Page::of(
            &rows,
            |row, name| column(server, row, name),
            |row, name| column(server, row, name),
        )
    }

    /// What was rolled back because of another transaction has changed no row.
    async fn write(&self, until: Deadline, text: &str, values: Vec<Value>) -> Result<bool> {
        let connection = self.pool.get(until).await?;
        match self.pool.query(connection, until, call(text, values)).await.1 {
            Ok(rows) => Ok(!rows.is_empty()),
            Err(Unanswered::Server(e)) if Session::is_conflict(&e) => Ok(false),
            Err(failure) => Err(of_table(self.pool.error(failure))),
        }
    }

    async fn check(&self) -> Result<Health> {
        let server = self.pool.server();
        let about = Call::new(&self.about);
        let (rows, halfway) = Halfway::of(self.rows(self.pool.deadline(), &about)).await;
        let rows = rows?;
        let about = rows.first().ok_or_else(|| error::unexpected(server, "no row"))?;
        let settings = Settings::of(server, about)?;
        settings.admit(server)?;
        let mut health = settings.health();
        health.level = Level::BestEffort;
        let place: String = column(server, about, "o_place")?;
        health.identity = Some(format!("{NAME}:{place}/{}", self.table));
        health.clock_difference_us = Some(halfway.ahead(column(server, about, "o_now")?));
        self.inspect(about, &mut health)?;
        Ok(health)
    }

    async fn prepare(&self, create: &[String]) -> Result<()> {
        let (pool, create) = (self.pool.clone(), create.concat());
        outliving(async move {
            let until = pool.deadline();
            pool.create(until, async |session| session.run(&create).await).await.map_err(of_table)
        })
        .await
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
