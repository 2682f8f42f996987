//! The table of the PHP library in a file of an application: over a connection of its own, which changes no setting of the
//! file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Clock, Effect, Error, ErrorKind, Health, Level, Result, Unreadable};
use leasehold_driver::nene::{
    NeneConfig, NeneRow, NeneRows, NeneTable, OVERWRITTEN, Page, Statements, Value,
};
use leasehold_driver::{Deadline, StoreUrl};
use rusqlite::{
    Connection, ErrorCode, OpenFlags, Row, Transaction, TransactionBehavior, params_from_iter,
    types,
};

use crate::config::{NAME, SqliteConfig};
use crate::error;

/// A store in the table of the PHP library Nene DistributedLock, in a SQLite file.
pub type SqliteNeneStore = NeneTable<NeneFile>;

/// Which file to use, and how.
#[derive(Debug, Clone)]
pub struct SqliteNeneConfig {
    path: PathBuf,
    timeout: Duration,
    nene: NeneConfig,
}

impl SqliteNeneConfig {
    /// The table `distributed_locks` in this file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            timeout: SqliteConfig::DEFAULT_TIMEOUT,
            nene: NeneConfig::default(),
        }
    }

    /// Parses a URL: `sqlite:PATH?format=nene`, with the option `timeout` and those of [`NeneConfig::take`].
    ///
    /// # Errors
    /// `InvalidInput` for another scheme or format, no path, an unknown option or a wrong value.
    pub fn parse(url: &str) -> Result<Self> {
        let mut url = StoreUrl::parse(url)?;
        if url.scheme() != NAME {
            return Err(Error::invalid_input(format!("the URL of this store begins with {NAME}:")));
        }
        let path = SqliteConfig::path_of(&url)?.ok_or_else(|| {
            Error::invalid_input(
                "the PHP library's table in memory would be nobody else's; write sqlite:PATH?format=nene",
            )
        })?;
        let mut config = Self::file(path).nene(NeneConfig::take(&mut url)?);
        config.timeout = url.take_duration("timeout")?.unwrap_or(config.timeout);
        url.finish(&[NeneConfig::OPTIONS, &["timeout"]].concat())?;
        Ok(config)
    }

    /// Sets the table, and how it is used.
    #[must_use]
    pub fn nene(mut self, nene: NeneConfig) -> Self {
        self.nene = nene;
        self
    }

    /// Sets the time limit of an operation, by default 5 s: how long it may wait for the database's write lock.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The store. The file is opened when it is first used.
    ///
    /// # Errors
    /// `InvalidInput` if the table's name is not an identifier.
    pub async fn connect(self) -> Result<SqliteNeneStore> {
        self.nene.check().map_err(|e| e.with_context(NAME, "connect"))?;
        let (sql, statements) = Sql::new(&self.nene);
        let file = NeneFile {
            name: self.path.display().to_string(),
            path: self.path,
            sql: Arc::new(sql),
            timeout: self.timeout,
            clock: Arc::clone(self.nene.get_clock()),
            opened: Arc::default(),
        };
        Ok(NeneTable::new(file, statements, self.timeout, self.nene))
    }
}

/// The statements, each in its own file, with the table's name inserted.
struct Sql {
    table: String,
    guards: String,
    /// Reads a page.
    page: String,
}

impl Sql {
    fn new(nene: &NeneConfig) -> (Self, Statements) {
        let inserted = |text| nene.inserted(text);
        let statements = leasehold_driver::nene_statements!(nene, inserted);
        let guards = inserted(include_str!("sql/nene/guards.sql"));
        (Self { table: inserted("{table}"), guards, page: statements.page.clone() }, statements)
    }
}

/// A SQLite file with the table.
pub struct NeneFile {
    path: PathBuf,
    name: String,
    sql: Arc<Sql>,
    timeout: Duration,
    clock: Arc<dyn Clock>,
    opened: Arc<Mutex<Option<Opened>>>,
}

impl NeneFile {
    /// Does this on the connection, which it opens first if need be. A failure of what only reads has no effect.
    async fn on<T: Send + 'static>(
        &self,
        until: Deadline,
        flags: OpenFlags,
        failed: fn(&str, rusqlite::Error) -> Error,
        act: impl FnOnce(&Connection, &Sql) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let (opened_before, sql) = (Arc::clone(&self.opened), Arc::clone(&self.sql));
        let path = self.path.clone();
        let acted = tokio::task::spawn_blocking(move || {
            let mut connection = opened_before.lock().unwrap_or_else(PoisonError::into_inner);
            let file = identity(&path);
            // Another file may be there by now, such as one from a backup.
            let known = connection.take().filter(|opened| opened.file == file);
            let connection = match known {
                Some(known) => connection.insert(known),
                None => connection.insert(opened(&path, flags)?),
            };
            // How long the write lock is waited for.
            connection.connection.busy_timeout(until.left())?;
            act(&connection.connection, &sql)
        });
        match acted.await {
            Ok(Err(e)) if self.is_missing(&e) => Err(Error::incompatible(format!(
                "{} has no table {}; give the path of the PHP library's database, or run `leasehold init`, or `Locker::prepare`",
                self.name, self.sql.table
            ))
            .with_source(e)),
            Ok(acted) => acted.map_err(|e| failed(&self.name, e)),
            Err(e) => {
                let message = format!("an operation on {} ended with its runtime", self.name);
                Err(Error::unavailable(Effect::Unknown, message).with_source(e))
            }
        }
    }

    /// Whether the file or the table is not there.
    fn is_missing(&self, error: &rusqlite::Error) -> bool {
        let cannot_open = error.sqlite_error_code() == Some(ErrorCode::CannotOpen);
        cannot_open && !self.path.exists() || error.to_string().contains("no such table")
    }
}

fn micros(clock: &dyn Clock) -> i64 {
    i64::try_from(clock.wall_micros()).unwrap_or(i64::MAX)
}

const EXISTING: OpenFlags = OpenFlags::SQLITE_OPEN_READ_WRITE
    .union(OpenFlags::SQLITE_OPEN_NOFOLLOW)
    .union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// A connection, and what distinguishes its file from another at the same path.
struct Opened {
    connection: Connection,
    file: Option<(u64, u64)>,
}

/// Opens a connection whose commits are on the disk when they return.
fn opened(path: &Path, flags: OpenFlags) -> rusqlite::Result<Opened> {
    // Before: a file that takes its place meanwhile is then noticed.
    let file = identity(path);
    let connection = Connection::open_with_flags(path, flags)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(Opened { connection, file })
}

/// Device and number of the file, where the system has them.
fn identity(path: &Path) -> Option<(u64, u64)> {
    #[cfg(unix)]
    if let Ok(found) = std::fs::metadata(path) {
        use std::os::unix::fs::MetadataExt as _;
        return Some((found.dev(), found.ino()));
    }
    #[cfg(not(unix))]
    let _ = path;
    None
}

impl NeneRows for NeneFile {
    const NAME: &'static str = NAME;

    async fn read(&self, until: Deadline, text: &str, values: Vec<Value>) -> Result<Page> {
        let (text, clock) = (text.to_owned(), Arc::clone(&self.clock));
        let (now, rows) = self
            .on(until, EXISTING, error::sqlite, move |connection, _| {
                // Before the rows: they may be a little older than they were.
                let now = micros(&*clock);
                let mut statement = connection.prepare_cached(&text)?;
                let rows = statement.query_map(params_from_iter(bound(values)), |row| {
                    let resource = row.get_ref(0)?.as_bytes().unwrap_or_default();
                    Ok(read(row).map_err(|e| (String::from_utf8_lossy(resource).into_owned(), e)))
                })?;
                Ok((now, rows.collect::<rusqlite::Result<Vec<_>>>()?))
            })
            .await?;
        // One damaged row hides no other.
        let damaged = |(resource, e)| Unreadable::new(resource, error::sqlite(&self.name, e));
        Ok(Page { now, rows: rows.into_iter().map(|row| row.map_err(damaged)).collect() })
    }

    async fn write(&self, until: Deadline, text: &str, values: Vec<Value>) -> Result<bool> {
        let (text, clock, mut values) = (text.to_owned(), Arc::clone(&self.clock), bound(values));
        self.on(until, EXISTING, error::commit, move |connection, _| {
            let transaction =
                Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
            let mut statement = transaction.prepare_cached(&text)?;
            // The clock, once the lock is waited for.
            if statement.parameter_count() > values.len() {
                values.push(micros(&*clock).into());
            }
            let changed = statement.execute(params_from_iter(values))? > 0;
            drop(statement);
            transaction.commit()?;
            Ok(changed)
        })
        .await
    }

    async fn check(&self) -> Result<Health> {
        let mut health = Health::new(Level::BestEffort);
        health.identity = Some(format!("{NAME}:{}:{}", self.name, self.sql.table));
        let until = Deadline::after(self.timeout);
        let page = vec![Value::Text(String::new()), Value::Integer(1)];
        match self.read(until, &self.sql.page, page).await {
            Ok(_) => {}
            // Not prepared yet.
            Err(e) if e.kind() == ErrorKind::Incompatible => {
                health.hazards.push(e.to_string());
                return Ok(health);
            }
            Err(e) => return Err(e),
        }
        health.schema = Some(1);
        health.durable = true;
        let guards = self.on(until, EXISTING, error::sqlite, |connection, sql| {
            connection.query_row(&sql.guards, [], |row| row.get::<_, i64>(0))
        });
        if guards.await? == 0 {
            health.hazards.push(OVERWRITTEN.to_owned());
        }
        Ok(health)
    }

    async fn prepare(&self, create: &[String]) -> Result<()> {
        let (creating, create) = (EXISTING.union(OpenFlags::SQLITE_OPEN_CREATE), create.concat());
        self.on(Deadline::after(self.timeout), creating, error::commit, move |connection, _| {
            connection.execute_batch(&create)
        })
        .await
    }
}

fn bound(values: Vec<Value>) -> Vec<types::Value> {
    let bound = |value| match value {
        Value::Text(text) => text.into(),
        Value::Integer(integer) => integer.into(),
    };
    values.into_iter().map(bound).collect()
}

fn read(row: &Row<'_>) -> rusqlite::Result<NeneRow> {
    Ok(NeneRow {
        resource: row.get(0)?,
        owner: row.get(1)?,
        expires_at: row.get(2)?,
        acquired_at: row.get(3)?,
    })
}

impl fmt::Debug for NeneFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NeneFile({}, {})", self.name, self.sql.table)
    }
}
