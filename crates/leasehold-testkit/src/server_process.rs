//! The process of a server, which tests kill, pause and start again.

use std::future::Future;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use leasehold_conformance::{Failure, Process, Result, free_port};
use tempfile::TempDir;

use crate::directory::new_directory;
use crate::waiting::starts;

/// A server with its own directory and port.
pub struct ServerProcess {
    process: Mutex<Option<Process>>,
    directory: TempDir,
    port: u16,
}

/// Starts a server at a port that was free. Between finding the port and listening on it another process may take it.
pub(crate) async fn start_at_a_free_port<S, F: Future<Output = Result<S>>>(
    mut start: impl FnMut(ServerProcess) -> F,
) -> Result<S> {
    let mut why = Failure::new("never tried");
    for _ in 0..5 {
        match start(ServerProcess::new()?).await {
            Ok(server) => return Ok(server),
            Err(error) => why = error,
        }
    }
    Err(why)
}

impl ServerProcess {
    /// One that does not run yet.
    pub(crate) fn new() -> Result<Self> {
        let (directory, port) = (new_directory()?, free_port()?);
        Ok(Self { process: Mutex::new(None), directory, port })
    }

    /// Starts this command, and ends once the server answers.
    pub(crate) async fn run<F: Future<Output = bool>>(
        &self,
        command: &[String],
        answers: impl FnMut() -> F,
    ) -> Result<()> {
        let process = Process::start(&command[0], &command[1..], self.directory.path())?;
        *self.lock() = Some(process);
        if starts(answers).await {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.directory.path().join("server.log"));
        Err(Failure::new(format!(
            "a server, which `cargo xtask servers` installs, does not answer: {}: {}",
            command.join(" "),
            log.unwrap_or_default()
        )))
    }

    /// The process, unless it was killed.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap()
    }

    fn running<T>(&self, act: impl FnOnce(&Process) -> Result<T>) -> T {
        act(self.lock().as_ref().unwrap()).unwrap()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Gives it an empty directory.
    pub fn empty(&mut self) -> Result<()> {
        self.directory = new_directory()?;
        Ok(())
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("server.log")).unwrap()
    }

    /// Kills it, as a crash would.
    pub fn kill(&self) {
        if let Some(process) = self.lock().take() {
            process.kill();
        }
    }

    pub fn pause(&self) {
        self.running(Process::pause);
    }

    pub fn resume(&self) {
        self.running(Process::resume);
    }

    /// How long processors have worked for it.
    pub fn processor_time(&self) -> Duration {
        self.running(Process::processor_time)
    }
}
