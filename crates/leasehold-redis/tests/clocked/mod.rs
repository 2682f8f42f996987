//! Sets of servers that share a clock which the test moves.

mod observe;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_conformance::{Observation, Result, ServerClock, Tells, WallStep};
use leasehold_core::{Clock as _, ManualClock};
use leasehold_redis::{RedisConfig, RedisStore};
use tempfile::TempDir;

use crate::server::Server;

/// Sets of so many servers, used again and again. Clones are one pool.
#[derive(Clone)]
pub(crate) struct Pool {
    count: usize,
    settings: &'static [&'static str],
    /// Those that no case uses now.
    idle: Arc<Mutex<Vec<Set>>>,
}

/// Servers and the clock that they read.
struct Set {
    servers: Vec<Server>,
    clock: ManualClock,
    /// Where the clock's file is.
    _directory: TempDir,
}

/// A set that one case has for itself, and in which nothing stands at first.
pub(crate) struct Clocked {
    set: Option<Set>,
    idle: Arc<Mutex<Vec<Set>>>,
    forget_after: Duration,
}

impl Pool {
    pub(crate) fn new(count: usize, settings: &'static [&'static str]) -> Self {
        Self { count, settings, idle: Arc::default() }
    }

    pub(crate) async fn take(&self, forget_after: Duration) -> Result<Clocked> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let set = match idle {
            Some(set) => set,
            None => self.start().await?,
        };
        for server in &set.servers {
            server.ask(&["FLUSHALL"]).await?;
        }
        Ok(Clocked { set: Some(set), idle: Arc::clone(&self.idle), forget_after })
    }

    async fn start(&self) -> Result<Set> {
        let directory = tempfile::tempdir()?;
        let clock = ServerClock::new(directory.path().join("time"))?;
        let mut servers = Vec::new();
        for _ in 0..self.count {
            servers.push(Server::start_on(Some(clock.clone()), self.settings).await?);
        }
        Ok(Set { servers, clock: clock.manual(), _directory: directory })
    }
}

impl Clocked {
    fn set(&self) -> &Set {
        self.set.as_ref().expect("it is given back when the case is over")
    }

    pub(crate) fn clock(&self) -> &ManualClock {
        &self.set().clock
    }

    /// A store on each of them.
    pub(crate) async fn open(&self) -> Result<Vec<RedisStore>> {
        let mut stores = Vec::new();
        for server in &self.set().servers {
            let config = RedisConfig::from_url(&server.url())?
                .timeout(Duration::from_secs(30))
                .forget_after(Some(self.forget_after));
            stores.push(config.open().await?);
        }
        Ok(stores)
    }

    pub(crate) fn advance(&self, by: Duration) -> Result {
        Server::advance(&self.servers(), by)
    }

    pub(crate) fn step_wall(&self, step: WallStep) -> Result {
        Server::step_wall(&self.servers(), step)
    }

    /// What stands in each.
    pub(crate) async fn observe(&self) -> Result<Vec<Observation>> {
        let now = self.clock().wall_micros() / 1_000;
        let mut seen = Vec::new();
        for server in &self.set().servers {
            seen.push(observe::observe(server, now).await?);
        }
        Ok(seen)
    }

    /// Kills them all, and starts them again.
    pub(crate) async fn restart(&self) -> Result {
        self.servers().iter().for_each(|server| server.kill());
        for server in self.servers() {
            server.restart().await?;
        }
        Ok(())
    }

    fn servers(&self) -> Vec<&Server> {
        self.set().servers.iter().collect()
    }
}

impl Drop for Clocked {
    fn drop(&mut self) {
        let set = self.set.take();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(set);
    }
}

/// What a store on such a server tells.
pub(crate) fn tells() -> Tells {
    let mut tells = Tells::all();
    tells.forgotten = false;
    tells.own_clock = false;
    tells.unit = Duration::from_millis(1);
    tells
}
