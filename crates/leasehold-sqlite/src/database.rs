//! One connection, set up so that acknowledged commits are durable, and its transactions.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Clock, Error, LostReason, Now, Result};
use rusqlite::config::DbConfig;
use rusqlite::types::FromSql;
use rusqlite::{Connection, OpenFlags};

use crate::boot::Boot;
use crate::config::{Location, SqliteConfig};
use crate::error;
use crate::file::DatabaseFile;
use crate::forgetting::Forgetting;
use crate::limit::Limit;
use crate::rows::{Rows, sql_integer};
use crate::schema::{self, Schema};
use crate::sql::{Sql, VERSION};
use crate::view::View;

/// Room for all prepared statements of the store.
const STATEMENTS: usize = 32;

/// How transactions begin, and end. Prepared once: a lone caller notices the time that parsing takes.
const READ: &str = "BEGIN DEFERRED";
const WRITE: &str = "BEGIN IMMEDIATE";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

/// `PRAGMA page_size`: a lock changes a few rows, and each page that it changes goes to the log whole. A smaller one
/// slows down the commits that many callers share.
const PAGE: i64 = 2_048;

/// `PRAGMA synchronous`: the log is on disk before a commit returns.
const FULL: i64 = 2;

/// The longest wait that SQLite accepts.
const LONGEST_WAIT: Duration = Duration::from_millis(i32::MAX as u64);

/// An open database, used only by its own thread.
pub(crate) struct Database {
    connection: Connection,
    sql: Sql,
    name: String,
    file: Option<DatabaseFile>,
    boot: Boot,
    epoch: i64,
    /// Programs of schema version 1 may have leases, until the version is raised.
    upgraded: bool,
    forgetting: Forgetting,
    clock: Arc<dyn Clock>,
}

impl Database {
    /// Opens the database and ensures that it is ours and complete.
    pub(crate) fn open(config: SqliteConfig, limit: Limit) -> Result<Self> {
        let (connection, file) = match &config.location {
            Location::Memory => (open_memory(), None),
            Location::File(path) => {
                let file = DatabaseFile::locate(path, config.create_parent, config.mode)?;
                (open_file(&file), Some(file))
            }
        };
        let name =
            file.as_ref().map_or_else(|| ":memory:".to_owned(), |f| f.path().display().to_string());
        let boot = match &file {
            None => Boot::private(),
            Some(_) => Boot::current()?,
        };
        let mut database = Self {
            connection: connection.map_err(|e| error::sqlite(&name, e))?,
            sql: Sql::new(&config.prefix),
            name,
            file,
            boot,
            epoch: 0,
            upgraded: false,
            forgetting: Forgetting::default(),
            clock: config.clock,
        };
        protect(&database.connection, &database.name)?;
        // Of a new file.
        let paged = database.connection.pragma_update(None, "page_size", PAGE);
        paged.map_err(|e| database.failed(e))?;
        // Before anything is written, so that another program's file is left unchanged; on one snapshot, because
        // others may be creating the tables.
        database.transaction(READ, limit, || database.inspect())?;
        if database.file.is_some() {
            database.enter_wal(limit)?;
            database.sync_fully()?;
        }
        database.prepare(limit)?;
        Ok(database)
    }

    /// Creates missing tables, upgrades old ones, and begins an epoch if this boot has none. Writes only if there is
    /// something to do; of many processes, one does it.
    pub(crate) fn prepare(&mut self, limit: Limit) -> Result<()> {
        let known = self.transaction(READ, limit, || {
            Ok(match self.inspect()? {
                Schema::Ready { upgraded } if !upgraded || self.has_older_leases()? => {
                    self.known_epoch()?.map(|epoch| (epoch, upgraded))
                }
                Schema::Ready { .. } | Schema::Old | Schema::Missing => None,
            })
        })?;
        (self.epoch, self.upgraded) = match known {
            Some(known) => known,
            None => self.transaction(WRITE, limit, || {
                let upgraded = self.bring_up_to_date()?;
                let epoch = match self.known_epoch()? {
                    Some(epoch) => epoch,
                    None => self.begin_epoch()?,
                };
                Ok((epoch, upgraded))
            })?,
        };
        Ok(())
    }

    /// Returns whether programs of schema version 1 may have leases.
    fn bring_up_to_date(&self) -> Result<bool> {
        let (connection, sql, name) = (&self.connection, &self.sql, &self.name);
        match self.inspect()? {
            Schema::Missing => {
                schema::create(connection, sql, name)?;
                return Ok(false);
            }
            Schema::Old => schema::upgrade(connection, sql, name)?,
            Schema::Ready { upgraded: false } => return Ok(false),
            Schema::Ready { upgraded: true } => {}
        }
        schema::finish_upgrade(connection, sql, name)
    }

    /// Runs one operation as one immediate transaction. Every error rolls back, so its effect is `NotApplied`,
    /// except for a commit with an unknown outcome.
    pub(crate) fn write<T>(
        &self,
        limit: Limit,
        operation: impl FnOnce(&Rows<'_>) -> Result<T>,
    ) -> Result<T> {
        self.transaction(WRITE, limit, || operation(&self.rows()?))
    }

    /// Runs one operation that only reads, on one snapshot. With a write-ahead log it waits for no writer and
    /// delays none.
    pub(crate) fn read<T>(
        &self,
        limit: Limit,
        operation: impl FnOnce(&Rows<'_>) -> Result<T>,
    ) -> Result<T> {
        self.transaction(READ, limit, || operation(&self.rows()?))
    }

    /// What a waiter sees; `None` of a database in memory.
    pub(crate) fn view(&self) -> Result<Option<View>> {
        let Some(file) = &self.file else { return Ok(None) };
        file.verify()?;
        let connection = open_file(file).map_err(|e| self.failed(e))?;
        protect(&connection, &self.name)?;
        Ok(Some(View::new(connection, self.sql.seen.clone(), file.path())))
    }

    /// For messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The file, unless the database is in memory.
    pub(crate) fn file(&self) -> Option<&DatabaseFile> {
        self.file.as_ref()
    }

    /// The result of a `PRAGMA`.
    pub(crate) fn pragma<T: FromSql>(&self, pragma: &str) -> Result<T> {
        self.connection
            .pragma_query_value(None, pragma, |row| row.get(0))
            .map_err(|e| self.failed(e))
    }

    /// The schema version of the file.
    pub(crate) fn version(&self) -> Result<i32> {
        self.pragma("user_version")
    }

    fn transaction<T>(
        &self,
        begin: &str,
        limit: Limit,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if !self.connection.is_autocommit() {
            // The roll-back of the last transaction failed.
            self.run(ROLLBACK).map_err(|e| self.failed(e))?;
        }
        let wait = self.wait_up_to(limit)?;
        self.run(begin).map_err(|e| error::begin(&self.name, wait, e))?;
        let done = work().and_then(|done| match self.run(COMMIT) {
            Ok(()) => Ok(done),
            Err(e) => Err(error::commit(&self.name, e)),
        });
        if done.is_err() && !self.connection.is_autocommit() {
            // If it fails, the next transaction rolls back.
            drop(self.run(ROLLBACK));
        }
        done
    }

    fn run(&self, statement: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(statement)?.execute([]).map(drop)
    }

    /// What an operation works with. An immediate transaction holds the write lock by now and reads the clock
    /// after that (C4); one that only reads, after its snapshot.
    fn rows(&self) -> Result<Rows<'_>> {
        let current: Option<i64> = self
            .connection
            .prepare_cached(&self.sql.epoch)
            .and_then(|mut epoch| epoch.query_row([], |row| row.get(0)))
            .map_err(|e| self.failed(e))?;
        if current != Some(self.epoch) {
            return Err(Error::incompatible(format!(
                "another boot or time namespace has taken {} over (epoch {}; ours is {}), and terms of the two \
                 cannot be compared; open the store again",
                self.name,
                current.map_or_else(|| "none".to_owned(), |epoch| epoch.to_string()),
                self.epoch,
            ))
            .with_lost_reason(LostReason::StoreReplaced));
        }
        if let Some(file) = &self.file {
            file.verify()?;
        }
        Ok(Rows {
            connection: &self.connection,
            sql: &self.sql,
            name: &self.name,
            epoch: self.epoch,
            upgraded: self.upgraded && self.version()? < VERSION,
            forgetting: &self.forgetting,
            now: Now::read(&*self.clock),
        })
    }

    fn has_older_leases(&self) -> Result<bool> {
        schema::has_older_leases(&self.connection, &self.sql, &self.name)
    }

    fn inspect(&self) -> Result<Schema> {
        schema::inspect(&self.connection, &self.sql, &self.name)
    }

    fn known_epoch(&self) -> Result<Option<i64>> {
        self.boot.epoch(&self.connection, &self.sql, &self.name)
    }

    fn begin_epoch(&self) -> Result<i64> {
        let seen = sql_integer(self.clock.wall_micros());
        self.boot.register(&self.connection, &self.sql, &self.name, seen)
    }

    /// Lets SQLite wait for locks until the limit passes.
    fn wait_up_to(&self, limit: Limit) -> Result<Duration> {
        let left =
            limit.left(&*self.clock).ok_or_else(|| error::late(&self.name, limit.total()))?;
        self.connection.busy_timeout(left.min(LONGEST_WAIT)).map_err(|e| self.failed(e))?;
        Ok(left)
    }

    /// Lets readers and the writer work without waiting for each other, and makes a commit one fsync.
    fn enter_wal(&self, limit: Limit) -> Result<()> {
        loop {
            let wait = self.wait_up_to(limit)?;
            let mode =
                self.connection.pragma_update_and_check(None, "journal_mode", "wal", |row| {
                    row.get::<_, String>(0)
                });
            match mode {
                Ok(mode) if mode == "wal" => return Ok(()),
                Ok(mode) => {
                    return Err(Error::incompatible(format!(
                        "{} stays in journal mode {mode:?} and cannot use a write-ahead log; give a path on another \
                         file system",
                        self.name
                    )));
                }
                // If two connections change the mode at once, SQLite reports busy to one without waiting, because
                // waiting could deadlock. Holding the whole file for an instant waits for the other.
                Err(e) if error::is_busy(&e) => self
                    .connection
                    .execute_batch("BEGIN EXCLUSIVE; ROLLBACK")
                    .map_err(|e| error::begin(&self.name, wait, e))?,
                Err(e) => return Err(self.failed(e)),
            }
        }
    }

    /// Makes an acknowledged commit survive a power cut (C7).
    fn sync_fully(&self) -> Result<()> {
        self.connection.pragma_update(None, "synchronous", FULL).map_err(|e| self.failed(e))?;
        match self.pragma::<i64>("synchronous")? {
            FULL => Ok(()),
            other => Err(Error::incompatible(format!(
                "{} keeps PRAGMA synchronous = {other} instead of {FULL} (FULL), so a power cut could undo \
                 grants; build with the bundled SQLite",
                self.name
            ))),
        }
    }

    fn failed(&self, error: rusqlite::Error) -> Error {
        error::sqlite(&self.name, error)
    }
}

/// Disables anything active in a file that we did not write: triggers, views, functions in the schema; and writes no
/// temporary files.
fn protect(connection: &Connection, name: &str) -> Result<()> {
    let failed = |e| error::sqlite(name, e);
    for (option, value) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
    ] {
        let set = connection.set_db_config(option, value).map_err(failed)?;
        if set != value {
            return Err(Error::incompatible(format!(
                "this SQLite ({}) ignores {option:?}; build with the bundled one",
                rusqlite::version()
            )));
        }
    }
    connection
        .pragma_update(None, "temp_store", "memory")
        .and_then(|()| connection.pragma_update(None, "cell_size_check", true))
        .map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(())
}

fn open_memory() -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    Connection::open_in_memory_with_flags(flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
}

/// Opens a file that exists. Without the flag for URIs: a path is a path, whatever it looks like.
fn open_file(file: &DatabaseFile) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    Connection::open_with_flags(file.path(), flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
}
