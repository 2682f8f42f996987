//! The conformance suite on a SQLite file, each client with a connection of its own.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_conformance::{
    Backing, Failure, Forgets, Observation, Restarted, Result, Row, Subject, Time,
};
use leasehold_core::{Clock, FencingToken, Key, LeaseId, ManualClock, Mode, Note, Owner, table};
use leasehold_sqlite::rusqlite::{self, Connection};
use leasehold_sqlite::{SqliteConfig, SqliteStore};
use tempfile::TempDir;

fn main() -> ExitCode {
    leasehold_conformance::main(Sqlite)
}

struct Sqlite;

/// One file.
struct State {
    directory: TempDir,
    /// The file's name; another after each restart.
    name: Mutex<String>,
    clock: ManualClock,
    forget_after: Duration,
}

impl State {
    fn new(forget_after: Duration) -> Result<Self> {
        let name = Mutex::new("locks.db".to_owned());
        let clock = ManualClock::new();
        Ok(Self { directory: tempfile::tempdir()?, name, clock, forget_after })
    }

    fn name(&self) -> String {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Subject for Sqlite {
    type Backing = State;

    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn open(&self) -> Result<State> {
        State::new(table::FORGET_AFTER)
    }

    async fn open_forgetting(&self, forget_after: Duration) -> Result<Forgets<State>> {
        Ok(Forgets::After(State::new(forget_after)?))
    }
}

impl Backing for State {
    type Store = SqliteStore;

    async fn client(&self) -> Result<SqliteStore> {
        let config = SqliteConfig::file(self.path(&self.name()))
            .clock(Arc::new(self.clock.clone()))
            // Time limits run on this clock too, which some parts of the suite move while others wait.
            .timeout(Duration::from_secs(24 * 60 * 60))
            .forget_after(Some(self.forget_after));
        Ok(config.open().await?)
    }

    fn time(&self) -> Time {
        Time::Manual(self.clock.clone())
    }

    async fn observe(&self) -> Result<Observation> {
        let file = Connection::open(self.path(&self.name()))?;
        // One snapshot of both tables, although others may write meanwhile.
        file.execute_batch("BEGIN")?;
        let now = i64::try_from(self.clock.now().as_micros())?;
        let mut statement = file.prepare(
            "SELECT key, id, mode, token, owner, host, pid, program, comment,
                    state <> 'evicted' AND (expires IS NULL OR (
                        expires > ?1
                        AND epoch = (SELECT max(epoch) FROM leasehold_boots)
                    ))
             FROM leasehold_holders",
        )?;
        let mut stored = statement.query([now])?;
        let mut rows = Vec::new();
        while let Some(row) = stored.next()? {
            rows.push(read(row)?);
        }
        let mut statement = file.prepare("SELECT key, counter FROM leasehold_keys")?;
        let mut stored = statement.query([])?;
        let mut counters = Vec::new();
        while let Some(row) = stored.next()? {
            counters
                .push((Key::new(&row.get::<_, String>(0)?)?, row.get::<_, i64>(1)?.try_into()?));
        }
        Ok(Observation::new(rows, counters))
    }

    /// Takes the files as a power cut would leave them; whoever was connected stays behind with the old ones.
    async fn restart(&self) -> Result<Restarted> {
        let old = self.name();
        let new = format!("after-{old}");
        std::fs::copy(self.path(&old), self.path(&new))?;
        let log = |name: &str| self.path(&format!("{name}-wal"));
        std::fs::copy(log(&old), log(&new))?;
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(Restarted::Persisted)
    }
}

fn read(row: &rusqlite::Row<'_>) -> Result<Row> {
    let mode = match row.get::<_, String>(2)?.as_str() {
        "exclusive" => Mode::Exclusive,
        "shared" => Mode::SHARED,
        other => return Err(Failure::new(format!("a row has the mode {other:?}"))),
    };
    let id = LeaseId::foreign(&row.get::<_, Vec<u8>>(1)?)?;
    let mut read = Row::new(Key::new(&row.get::<_, String>(0)?)?, Some(id), mode, row.get(9)?);
    read.token = Some(FencingToken::new(row.get::<_, i64>(3)?.try_into()?)?);
    let text = |column| row.get::<_, Option<String>>(column);
    read.owner = text(4)?.as_deref().map(Owner::new).transpose()?;
    let mut note = Note::default();
    if let Some(host) = text(5)? {
        note = note.with_host(&host)?;
    }
    if let Some(pid) = row.get(6)? {
        note = note.with_pid(pid);
    }
    if let Some(program) = text(7)? {
        note = note.with_program(&program)?;
    }
    if let Some(comment) = text(8)? {
        note = note.with_comment(&comment)?;
    }
    read.note = note;
    Ok(read)
}
