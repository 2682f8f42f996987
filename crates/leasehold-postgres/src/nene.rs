//! The table of the PHP library in a database of an application.

use std::fmt;
use std::time::Duration;

use leasehold_core::{Effect, Error, ErrorKind, Health, Level, Result, Unreadable};
use leasehold_driver::nene::{
    NeneConfig, NeneRow, NeneRows, NeneTable, OVERWRITTEN, Seen, Statements,
};
use leasehold_driver::{Deadline, Halfway, outliving};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::PostgresConfig;
use crate::call::{Call, column};
use crate::config::NAME;
use crate::error;
use crate::health::Settings;
use crate::pool::{Pool, Unanswered};
use crate::schema::LOCK;
use crate::session::Session;
use crate::sql::SAFELY;

/// A store in the table of the PHP library Nene DistributedLock, in a database of PostgreSQL.
pub type PostgresNeneStore = NeneTable<NeneDatabase>;

/// Which server to use, and how.
#[derive(Debug, Clone)]
pub struct PostgresNeneConfig {
    server: PostgresConfig,
    nene: NeneConfig,
    now: String,
}

/// The server's clock at that moment, in microseconds since 1970-01-01 UTC.
const NOW: &str =
    "(extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint";

impl PostgresNeneConfig {
    /// The default schema of the table.
    pub const DEFAULT_SCHEMA: &str = "public";

    /// The table `distributed_locks` in the schema of this configuration, `public` by default. Its
    /// [`forget_after`](PostgresConfig::forget_after) and [`wakeups_at`](PostgresConfig::wakeups_at) have no meaning here.
    pub fn new(server: PostgresConfig) -> Self {
        Self { server, nene: NeneConfig::default(), now: NOW.to_owned() }
    }

    /// Parses a URL: `postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE?format=nene`, with the options of
    /// [`PostgresConfig::parse`] except `wakeups`, and of [`NeneConfig::take`].
    ///
    /// # Errors
    /// `InvalidInput` as theirs.
    pub fn parse(url: &str) -> Result<Self> {
        let (server, mut options) = PostgresConfig::read(url)?;
        let nene = NeneConfig::take(&mut options)?;
        options.finish(&[NeneConfig::OPTIONS, PostgresConfig::OPTIONS].concat())?;
        if !server.says_nothing_of_wakeups() {
            return Err(Error::invalid_input(
                "nothing wakes the waiters for the PHP library's table; leave the option wakeups out",
            ));
        }
        Ok(Self::new(server).nene(nene))
    }

    /// Sets the table, and how it is used.
    #[must_use]
    pub fn nene(mut self, nene: NeneConfig) -> Self {
        self.nene = nene;
        self
    }

    /// Sets how statements read the clock, for the tests of this crate.
    #[doc(hidden)]
    #[must_use]
    pub fn now(mut self, expression: impl Into<String>) -> Self {
        self.now = expression.into();
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
    pub async fn connect(self) -> Result<PostgresNeneStore> {
        self.open_parts().await.map_err(|e| e.with_context(NAME, "connect"))
    }

    async fn open_parts(self) -> Result<PostgresNeneStore> {
        self.nene.check()?;
        let (pool, schema, _) = self.server.open_pool(Self::DEFAULT_SCHEMA, 0).await?;
        let statements = Statements::postgres(&self.nene, &schema.quoted(), &self.now);
        let database = NeneDatabase { pool, statements, now: self.now };
        Ok(NeneTable::new(database, self.nene))
    }
}

/// Whether a statement was rolled back because of another transaction.
fn is_of_others(error: &tokio_postgres::Error) -> bool {
    error::is_conflict(error) || error::is_locked(error)
}

/// A database with the table.
pub struct NeneDatabase {
    pool: Pool,
    statements: Statements,
    now: String,
}

impl NeneDatabase {
    /// The rows of a statement that only reads, and asks whether its session is read-only.
    async fn read(&self, until: Deadline, call: &Call<'_>) -> Result<Vec<Row>> {
        let server = self.pool.server();
        loop {
            let connection = self.pool.get(until).await?;
            let (connection, rows) = match self.pool.query(connection, until, call).await {
                (_, Err(Unanswered::Server(e))) if is_of_others(&e) => continue,
                (connection, rows) => (connection, rows),
            };
            let rows = rows.map_err(|e| self.pool.error(e).with_effect(Effect::NotApplied))?;
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

    /// Whether a statement changed a row. What was rolled back because of another transaction has changed none.
    async fn write(&self, until: Deadline, call: &Call<'_>) -> Result<bool> {
        let connection = self.pool.get(until).await?;
        match self.pool.query(connection, until, call).await.1 {
            Ok(rows) => Ok(!rows.is_empty()),
            Err(Unanswered::Server(e)) if is_of_others(&e) => Ok(false),
            Err(failure) => Err(self.pool.error(failure)),
        }
    }

    /// The clock and the row of a reply.
    fn seen(&self, reply: &Row) -> Result<Seen> {
        let server = self.pool.server();
        let now = column(server, reply, "o_now")?;
        let Some(resource) = column::<Option<String>>(server, reply, "o_resource")? else {
            return Ok(Seen { now, row: None });
        };
        let damaged = || Error::corrupt(format!("the row of {resource:?} has no owner or no time"));
        let seconds = |name| column::<Option<i64>>(server, reply, name)?.ok_or_else(damaged);
        let row = NeneRow {
            owner: column::<Option<String>>(server, reply, "o_owner")?.ok_or_else(damaged)?,
            expires_at: seconds("o_expires_at")?,
            acquired_at: seconds("o_acquired_at")?,
            resource,
        };
        Ok(Seen { now, row: Some(row) })
    }

    /// Whether the columns are as they must be.
    fn inspect(&self, about: &Row, health: &mut Health) -> Result<()> {
        let (server, table) = (self.pool.server(), &self.statements.table);
        let Some(types) = column::<Option<Vec<String>>>(server, about, "o_types")? else {
            health.hazards.push(format!(
                "{server} has no table {table}; name its schema by the option schema, or create the table with `leasehold \
                 init`, or in a program with `Locker::connect_unchecked` and `prepare`"
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

impl NeneRows for NeneDatabase {
    fn name(&self) -> &'static str {
        NAME
    }

    fn timeout(&self) -> Duration {
        self.pool.timeout()
    }

    async fn look(&self, until: Deadline, resource: &str) -> Result<Seen> {
        let look = Call::new(&self.statements.look).with(Type::TEXT, resource);
        let rows = self.read(until, &look).await?;
        self.seen(rows.first().ok_or_else(|| error::unexpected(self.pool.server(), "no row"))?)
    }

    async fn insert(&self, until: Deadline, row: &NeneRow) -> Result<bool> {
        let call = Call::new(&self.statements.insert)
            .with(Type::TEXT, &*row.resource)
            .with(Type::TEXT, &*row.owner)
            .with(Type::INT8, row.expires_at)
            .with(Type::INT8, row.acquired_at);
        self.write(until, &call).await
    }

    async fn replace(
        &self,
        until: Deadline,
        seen: &NeneRow,
        by: &NeneRow,
        before: Option<i64>,
    ) -> Result<bool> {
        let before = before.unwrap_or(i64::MAX);
        let call = Call::new(&self.statements.replace)
            .with(Type::TEXT, &*by.owner)
            .with(Type::INT8, by.expires_at)
            .with(Type::INT8, by.acquired_at)
            .with(Type::TEXT, &*seen.resource)
            .with(Type::TEXT, &*seen.owner)
            .with(Type::INT8, seen.expires_at)
            .with(Type::INT8, before);
        self.write(until, &call).await
    }

    async fn delete(&self, until: Deadline, seen: &NeneRow) -> Result<bool> {
        let call = Call::new(&self.statements.delete)
            .with(Type::TEXT, &*seen.resource)
            .with(Type::TEXT, &*seen.owner)
            .with(Type::INT8, seen.expires_at);
        self.write(until, &call).await
    }

    async fn page(
        &self,
        until: Deadline,
        after: &str,
        most: usize,
    ) -> Result<(i64, Vec<Result<NeneRow, Unreadable>>)> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let page = Call::new(&self.statements.page).with(Type::TEXT, after).with(Type::INT8, most);
        let rows = self.read(until, &page).await?;
        let server = self.pool.server();
        let mut page = (0, Vec::new());
        for reply in &rows {
            match self.seen(reply) {
                Ok(Seen { now, row }) => {
                    page.0 = now;
                    page.1.extend(row.map(Ok));
                }
                // One damaged row hides no other.
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    let resource =
                        column::<Option<String>>(server, reply, "o_resource").ok().flatten();
                    page.1.push(Err(Unreadable::new(resource.unwrap_or_default(), error)));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(page)
    }

    async fn check(&self) -> Result<Health> {
        let server = self.pool.server();
        let about = self.about();
        let (rows, halfway) =
            Halfway::of(self.read(self.pool.deadline(), &Call::new(&about))).await;
        let rows = rows?;
        let about = rows.first().ok_or_else(|| error::unexpected(server, "no row"))?;
        let settings = Settings::of(server, about)?;
        settings.admit(server)?;
        let mut health = settings.health();
        health.level = Level::BestEffort;
        let place: String = column(server, about, "o_place")?;
        health.identity = Some(format!("{NAME}:{place}/{}", self.statements.table));
        health.clock_difference_us = Some(halfway.ahead(column(server, about, "o_now")?));
        self.inspect(about, &mut health)?;
        Ok(health)
    }

    async fn prepare(&self) -> Result<()> {
        let (pool, create) = (self.pool.clone(), self.statements.create.join(";"));
        let until = pool.deadline();
        // One transaction, which waits for others that prepare the same database.
        let first = format!(
            "BEGIN; {SAFELY}; SET LOCAL lock_timeout = {}; SELECT pg_catalog.pg_advisory_xact_lock({LOCK})",
            until.earlier().left().as_millis().max(1)
        );
        outliving(async move {
            pool.transaction(until, &first, async |session: &Session| session.run(&create).await)
                .await
        })
        .await
    }
}

impl NeneDatabase {
    /// The statement that asks about the table.
    fn about(&self) -> String {
        format!(
            "SELECT {} AS o_now, ({}) AS o_guards, {},
                 pg_catalog.current_setting('transaction_read_only')::boolean AS o_read_only,
                 (SELECT pg_catalog.concat(system_identifier, '/', oid)
                  FROM pg_catalog.pg_control_system(), pg_catalog.pg_database
                  WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()) AS o_place,
                 (SELECT pg_catalog.array_agg(pg_catalog.format_type(atttypid, atttypmod)) FROM pg_catalog.pg_attribute
                  WHERE attrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('{}')
                      AND attname OPERATOR(pg_catalog.=) ANY ('{{expires_at,acquired_at}}')) AS o_types",
            self.now,
            self.statements.guards,
            Settings::COLUMNS,
            self.statements.table
        )
    }
}

impl fmt::Debug for NeneDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NeneDatabase({}, {})", self.pool.server(), self.statements.table)
    }
}
