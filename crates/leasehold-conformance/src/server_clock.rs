use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_core::{Clock, ManualClock};

use crate::{Process, Result, WallStep};

/// A clock that servers read as their wall clock, and that stands still unless it is moved. Clones are one clock.
///
/// The library libfaketime, loaded into the server, reads it from a file; `cargo xtask servers` installs it. The
/// server's monotonic clock runs on, so its own timers fire.
#[derive(Debug, Clone)]
pub struct ServerClock(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: PathBuf,
    clock: ManualClock,
    moving: Mutex<()>,
}

impl ServerClock {
    /// A clock that servers read from this file, which nobody else writes.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn new(file: impl Into<PathBuf>) -> Result<Self> {
        let (file, clock) = (file.into(), ManualClock::new());
        let this = Self(Arc::new(Inner { file, clock, moving: Mutex::default() }));
        this.write()?;
        Ok(this)
    }

    /// The same time, for the suite.
    pub fn manual(&self) -> ManualClock {
        self.0.clock.clone()
    }

    /// The time, in microseconds since 1970-01-01 UTC.
    pub fn wall_micros(&self) -> u64 {
        self.0.clock.wall_micros()
    }

    /// The command that starts `program` with this clock, without the program's own arguments.
    pub fn command(&self, program: &str) -> Vec<String> {
        let file = self.0.file.display();
        let words = [
            "env",
            // The loader replaces $LIB by the machine's folder of libraries. The C library goes before another
            // allocator, which would ask for the time before libfaketime can answer.
            "LD_PRELOAD=/usr/$LIB/faketime/libfaketimeMT.so.1 libc.so.6",
            &format!("FAKETIME_TIMESTAMP_FILE={file}"),
            "FAKETIME_FMT=%s",
            "FAKETIME_NO_CACHE=1",
            "FAKETIME_DONT_FAKE_MONOTONIC=1",
            program,
        ];
        words.map(str::to_owned).to_vec()
    }

    /// Lets `by` pass. For all these servers and the manual clock that is one instant: meanwhile they stand still.
    ///
    /// # Errors
    /// If a server has ended, or the file cannot be written.
    pub fn advance(&self, by: Duration, servers: &[&Process]) -> Result {
        self.change(servers, |clock| clock.advance(by))
    }

    /// Steps it.
    ///
    /// # Errors
    /// As [`advance`](Self::advance).
    pub fn step(&self, step: WallStep, servers: &[&Process]) -> Result {
        self.change(servers, |clock| clock.set_wall_micros(step.from(clock.wall_micros())))
    }

    fn change(&self, servers: &[&Process], change: impl FnOnce(&ManualClock)) -> Result {
        let _turn = self.0.moving.lock().unwrap_or_else(PoisonError::into_inner);
        servers.iter().try_for_each(|server| server.pause())?;
        change(&self.0.clock);
        let written = self.write();
        servers.iter().try_for_each(|server| server.resume())?;
        written
    }

    /// A reader of the file finds the old time or the new one.
    fn write(&self) -> Result {
        let micros = self.wall_micros();
        // The library truncates below a microsecond what it reads as a binary fraction.
        let time = format!("{}.{:06}5\n", micros / 1_000_000, micros % 1_000_000);
        let next = self.0.file.with_extension("next");
        std::fs::write(&next, time)?;
        std::fs::rename(&next, &self.0.file)?;
        Ok(())
    }
}
