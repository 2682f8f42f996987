//! The conformance suite on a SQLite file; each client has its own connection.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_conformance::{
    Backing, Forgets, Observation, Reports, Restarted, Result, Subject, Suite, Time,
};
use leasehold_core::{Clock, ManualClock};
use leasehold_sqlite::{NeneConfig, SqliteConfig, SqliteNeneConfig, SqliteNeneStore, SqliteStore};
use leasehold_testkit::sqlite;
use tempfile::TempDir;

fn main() -> ExitCode {
    Suite::new().on(Sqlite).on(Nene).main()
}

struct Sqlite;

/// One file.
struct State {
    directory: TempDir,
    /// The file's name, which each restart changes.
    name: Mutex<String>,
    clock: ManualClock,
}

impl State {
    fn new() -> Result<Self> {
        let name = Mutex::new("locks.db".to_owned());
        let clock = ManualClock::new();
        Ok(Self { directory: tempfile::tempdir()?, name, clock })
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

    fn reports(&self) -> Reports {
        let mut reports = Reports::all();
        reports.quiet = false;
        reports
    }

    async fn open(&self) -> Result<State> {
        State::new()
    }

    async fn open_forgetting(&self, _: Duration) -> Result<Forgets<State>> {
        Ok(Forgets::Never)
    }
}

impl Backing for State {
    type Store = SqliteStore;

    async fn client(&self) -> Result<SqliteStore> {
        let config = SqliteConfig::file(self.path(&self.name()))
            .clock(Arc::new(self.clock.clone()))
            // Time limits run on this clock too, which some parts of the suite move while others wait.
            .timeout(Duration::from_secs(24 * 60 * 60));
        Ok(config.connect().await?)
    }

    fn time(&self) -> Time {
        Time::Manual(self.clock.clone())
    }

    async fn observe(&self) -> Result<Observation> {
        sqlite::observe(&self.path(&self.name()), self.clock.now())
    }

    async fn restart(&self) -> Result<Restarted> {
        let old = self.name();
        let new = format!("after-{old}");
        sqlite::cut_power(&self.path(&old), &self.path(&new))?;
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(Restarted::Persisted)
    }
}

/// The table of the PHP library in a file.
struct Nene;

struct NeneState {
    directory: TempDir,
    clock: ManualClock,
}

impl NeneState {
    fn path(&self) -> PathBuf {
        self.directory.path().join("app.db")
    }
}

impl Subject for Nene {
    type Backing = NeneState;

    fn name(&self) -> &'static str {
        "sqlite-nene"
    }

    fn reports(&self) -> Reports {
        leasehold_testkit::nene::reports()
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        20_000
    }

    async fn open(&self) -> Result<NeneState> {
        Ok(NeneState { directory: tempfile::tempdir()?, clock: ManualClock::new() })
    }

    async fn open_forgetting(&self, _: Duration) -> Result<Forgets<NeneState>> {
        Ok(Forgets::Never)
    }
}

impl Backing for NeneState {
    type Store = SqliteNeneStore;

    async fn client(&self) -> Result<SqliteNeneStore> {
        // Nobody overwrites what he has read before.
        let nene = NeneConfig::default().clock(Arc::new(self.clock.clone())).settle(Duration::ZERO);
        // Connections do not take turns at the file: on a slow disk some wait longer than the default limit.
        let config = SqliteNeneConfig::file(self.path()).timeout(Duration::from_secs(60));
        Ok(config.nene(nene).connect().await?)
    }

    fn time(&self) -> Time {
        Time::Manual(self.clock.clone())
    }

    async fn observe(&self) -> Result<Observation> {
        // By default a row is taken over two seconds after its end.
        sqlite::observe_nene(&self.path(), self.clock.wall_micros() - 2_000_000)
    }

    async fn restart(&self) -> Result<Restarted> {
        Ok(Restarted::Persisted)
    }
}
