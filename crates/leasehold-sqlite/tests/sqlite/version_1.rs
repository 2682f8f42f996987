//! A program of schema version 1 that has the file open: its statements, and what it decided about one key.

use leasehold_core::{Clock, ManualClock};
use rusqlite::config::DbConfig;
use rusqlite::types::Null;
use rusqlite::{Connection, Result, params};

use crate::common::Workplace;

const SCHEMA: &str = include_str!("version_1/schema.sql");
const COUNTER: &str = include_str!("version_1/counter.sql");
const HOLDERS: &str = include_str!("version_1/holders.sql");
const SAVE_COUNTER: &str = include_str!("version_1/save_counter.sql");
const SAVE_HOLDER: &str = include_str!("version_1/save_holder.sql");
const DELETE_HOLDER: &str = include_str!("version_1/delete_holder.sql");

/// Its terms, in microseconds.
const TERM: i64 = 30_000_000;

/// Makes the new file one of schema version 1, with these tables' prefix.
pub(crate) fn make(place: &Workplace, prefix: &str) {
    let schema = SCHEMA.replace("{prefix}", prefix);
    place.change(&format!("DROP TABLE {prefix}mark; {schema}; PRAGMA user_version = 1;"));
}

pub(crate) struct Program {
    connection: Connection,
    clock: ManualClock,
}

/// What it read of a key.
struct Entry {
    counter: i64,
    /// The id and token of each holder, and the end of its term.
    holders: Vec<(Vec<u8>, i64, i64)>,
}

impl Program {
    pub(crate) fn open(place: &Workplace) -> Self {
        let connection = place.raw();
        for (option, value) in [
            (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
            (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
            (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        ] {
            connection.set_db_config(option, value).unwrap();
        }
        Self { connection, clock: place.clock.clone() }
    }

    /// Acquires a key and returns the token; `None` if another holds it.
    pub(crate) fn acquire(&self, id: &str, key: &str, mode: &str) -> Result<Option<i64>, String> {
        self.transaction(|| {
            let entry = self.load(key)?;
            let is_live = |(_, _, end): &&(Vec<u8>, i64, i64)| *end > self.now();
            if mode == "exclusive" && entry.holders.iter().any(|holder| is_live(&holder)) {
                return Ok(None);
            }
            let wall = i64::try_from(self.clock.wall_micros()).unwrap();
            let token = wall.max(entry.counter + 1);
            if token > 9_007_199_254_740_991 {
                return Err("the counter has reached its maximum".to_owned());
            }
            self.run(SAVE_COUNTER, params![key, token])?;
            self.save(id, key, mode, token)?;
            Ok(Some(token))
        })
    }

    /// Renews, and raises the token; returns whether the lease is held.
    pub(crate) fn renew(&self, id: &str, key: &str, raise: Option<i64>) -> Result<bool, String> {
        self.transaction(|| {
            let entry = self.load(key)?;
            let Some((_, token, _)) = self.held(&entry, id) else { return Ok(false) };
            let raised = raise.unwrap_or(0);
            if raised > entry.counter {
                self.run(SAVE_COUNTER, params![key, raised])?;
            }
            let mode = "SELECT mode FROM leasehold_holders WHERE key = ?1 AND id = ?2";
            let mode = self
                .connection
                .query_row(mode, params![key, id.as_bytes()], |row| row.get::<_, String>(0));
            self.save(id, key, &mode.unwrap(), raised.max(*token))?;
            Ok(true)
        })
    }

    /// Releases; returns whether the lease was held.
    pub(crate) fn release(&self, id: &str, key: &str) -> Result<bool, String> {
        self.transaction(|| {
            let entry = self.load(key)?;
            self.run(DELETE_HOLDER, params![key, id.as_bytes()])?;
            Ok(self.held(&entry, id).is_some())
        })
    }

    fn held<'e>(&self, entry: &'e Entry, id: &str) -> Option<&'e (Vec<u8>, i64, i64)> {
        entry.holders.iter().find(|(of, _, end)| of == id.as_bytes() && *end > self.now())
    }

    fn transaction<T>(&self, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        self.run("BEGIN IMMEDIATE", [])?;
        let done = work();
        self.run(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }, [])?;
        done
    }

    /// Fails as that version did where a token is above the counter.
    fn load(&self, key: &str) -> Result<Entry, String> {
        let failed = |error: rusqlite::Error| error.to_string();
        let mut statement = self.prepare(COUNTER).map_err(failed)?;
        let mut rows = statement.query([key]).map_err(failed)?;
        let counter: Option<i64> =
            rows.next().map_err(failed)?.map(|row| row.get(0)).transpose().map_err(failed)?;
        let mut statement = self.prepare(HOLDERS).map_err(failed)?;
        let holders = statement.query_map([key], |row| Ok((row.get(1)?, row.get(4)?, row.get(6)?)));
        let holders: Vec<(Vec<u8>, i64, i64)> =
            holders.and_then(Iterator::collect).map_err(failed)?;
        let highest = holders.iter().map(|(_, token, _)| *token).max();
        match (counter, highest) {
            (None, None) => Ok(Entry { counter: 0, holders }),
            (Some(counter), token) if token.is_none_or(|token| token <= counter) => {
                Ok(Entry { counter, holders })
            }
            (counter, token) => Err(format!("corrupt: the counter {counter:?}, a token {token:?}")),
        }
    }

    fn save(&self, id: &str, key: &str, mode: &str, token: i64) -> Result<(), String> {
        let epoch: i64 = self
            .connection
            .query_row("SELECT max(epoch) FROM leasehold_boots", [], |row| row.get(0))
            .unwrap();
        let none = Null;
        self.run(
            SAVE_HOLDER,
            params![
                key,
                id.as_bytes(),
                mode,
                "held",
                token,
                epoch,
                self.now() + TERM,
                0,
                none,
                none,
                none,
                none,
                none,
                none,
                none
            ],
        )
    }

    fn now(&self) -> i64 {
        i64::try_from(self.clock.now().as_micros()).unwrap()
    }

    fn run(&self, statement: &str, parameters: impl rusqlite::Params) -> Result<(), String> {
        let done = self.prepare(statement).and_then(|mut statement| statement.execute(parameters));
        done.map(drop).map_err(|error| error.to_string())
    }

    /// Keeps it prepared, as that version did.
    fn prepare(&self, statement: &str) -> Result<rusqlite::CachedStatement<'_>> {
        self.connection.prepare_cached(&statement.replace("{prefix}", "leasehold_"))
    }
}
