//! A primary that the others do not reach, and that does not notice.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use leasehold_conformance::{Fault, Proxy, Result, ServerClock};
use leasehold_core::Clock as _;
use leasehold_driver::SystemClock;
use tempfile::TempDir;

use super::super::Server;

/// What stands between a server and the others: the proxy by which they reach it, and a clock that can be stopped, so that it
/// neither asks for them nor misses them.
pub(super) struct CutOff {
    proxy: Proxy,
    clock: PathBuf,
    /// Where the clock was stopped.
    stopped: Mutex<Duration>,
    /// The clock's.
    _directory: TempDir,
}

impl CutOff {
    /// Starts the server.
    pub(super) async fn start(settings: &[&str]) -> Result<(Server, Self)> {
        let directory = tempfile::tempdir()?;
        let clock = directory.path().join("clock");
        let mut server = Server::start_on(Some(ServerClock::new(&clock)?), settings).await?;
        // From now on its clock is the machine's, unless it is stopped.
        server.clock = None;
        let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into()).await?;
        let stopped = Mutex::default();
        let this = Self { proxy, clock, stopped, _directory: directory };
        this.set_clock("+0")?;
        Ok((server, this))
    }

    /// Where the others reach it.
    pub(super) fn address(&self) -> String {
        self.proxy.address().to_string()
    }

    pub(super) fn begin(&self) -> Result {
        *self.stopped.lock().unwrap() = Duration::from_micros(SystemClock::new().wall_micros());
        self.advance(Duration::ZERO)?;
        self.proxy.set(Fault::BlackHole);
        Ok(())
    }

    /// Lets time pass on the clock, which stands still again then.
    pub(super) fn advance(&self, by: Duration) -> Result {
        let mut now = self.stopped.lock().unwrap();
        *now += by;
        self.set_clock(&format!("{}.{:06}", now.as_secs(), now.subsec_micros()))
    }

    pub(super) fn end(&self) -> Result {
        self.set_clock("+0")?;
        self.proxy.set(Fault::None);
        // What was sent meanwhile has no answer.
        self.proxy.cut();
        Ok(())
    }

    /// As libfaketime reads it.
    fn set_clock(&self, time: &str) -> Result {
        let next = self.clock.with_extension("next");
        std::fs::write(&next, format!("{time}\n"))?;
        std::fs::rename(&next, &self.clock)?;
        Ok(())
    }
}
