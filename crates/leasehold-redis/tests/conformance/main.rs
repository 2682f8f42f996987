//! The conformance suite on a real Redis server, on a cluster, behind sentinels and on quorums of servers, each
//! case with its own; and in real time on a Valkey server, or on that of `LEASEHOLD_TEST_REDIS_URL` alone, one case after the
//! other (`--test-threads 1`), for all its cases share the mark of tokens.

mod clocked;
mod observe;
mod quorum;

use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clocked::{Clocked, Layout, Sets};
use leasehold_conformance::{
    Backing, Forgets, Network, Observation, Reports, Restarted, Result, Subject, Suite, Time,
    WallStep,
};
use leasehold_core::LeaseId;
use leasehold_redis::{RedisConfig, RedisStore};
use leasehold_testkit::redis::Server;
use tokio::sync::OnceCell;

fn main() -> ExitCode {
    if let Ok(url) = std::env::var("LEASEHOLD_TEST_REDIS_URL") {
        return leasehold_conformance::main(Shared { name: "redis", server: Whose::Users(url) });
    }
    // A killed process loses nothing that it has acknowledged; with `everysec` it would lose what it had not
    // written because its disk was busy. A power cut is not tested here.
    let redis = |name, layout| {
        let sets = Sets::new(layout, &["--appendonly", "yes", "--appendfsync", "no"]);
        let operations = if leasehold_testkit::all() { 20_000 } else { 5_000 };
        Redis { name, sets, operations }
    };
    let few = |redis| Redis { operations: 3_000, ..redis };
    let alone = Suite::new()
        .on(redis("redis", Layout::Apart(1)))
        .on_form(few(redis("redis-cluster", Layout::Cluster)))
        .on_form(few(redis("redis-sentinel", Layout::Watched)))
        .on_form(Shared { name: "valkey", server: Whose::Ours(VALKEY, OnceCell::new()) });
    quorum::add(alone).main()
}

struct Redis {
    name: &'static str,
    sets: Sets,
    /// How many the oracle compares.
    operations: usize,
}

/// Servers for one case alone.
struct State(Clocked);

impl Subject for Redis {
    type Backing = State;

    fn name(&self) -> &'static str {
        self.name
    }

    async fn open(&self) -> Result<State> {
        Ok(State(self.sets.take().await?))
    }

    async fn open_forgetting(&self, _: Duration) -> Result<Forgets<State>> {
        Ok(Forgets::Never)
    }

    fn reports(&self) -> Reports {
        clocked::reports()
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        self.operations
    }
}

impl Backing for State {
    type Store = RedisStore;

    async fn client(&self) -> Result<RedisStore> {
        Ok(self.0.open().await?.remove(0))
    }

    fn time(&self) -> Time {
        Time::Manual(self.0.clock().clone())
    }

    async fn advance(&self, by: Duration) {
        self.0.advance(by).expect("the server runs");
    }

    async fn step_wall(&self, step: WallStep) -> Result<bool> {
        self.0.step_wall(step)?;
        Ok(true)
    }

    async fn observe(&self) -> Result<Observation> {
        let seen = self.0.observe().await?;
        // In a cluster the keys of a case are in one slot, with one mark.
        let mark = seen.iter().filter_map(|one| one.mark).max().unwrap_or_default();
        let rows = seen.into_iter().flat_map(|one| one.rows).collect();
        Ok(Observation::new(rows, []).with_mark(mark))
    }

    async fn restart(&self) -> Result<Restarted> {
        self.0.restart().await?;
        Ok(Restarted::Persisted)
    }

    async fn network(&self) -> Result<Network<RedisStore>> {
        Ok(self.0.open_behind_proxies().await?.map(|mut stores| stores.remove(0)))
    }
}

/// A server for all cases together, in real time.
struct Shared {
    name: &'static str,
    server: Whose,
}

enum Whose {
    /// The user's, at this URL, which others may use.
    Users(String),
    /// Started from this program when it is first needed. It does not start on a clock of the tests.
    Ours(&'static str, OnceCell<Server>),
}

const VALKEY: &str = "valkey-server";

/// A part of it with its own prefix: a database of ours, or the user's.
struct Part {
    url: String,
    prefix: String,
}

impl Shared {
    async fn part(&self) -> Result<Part> {
        static CASE: AtomicU64 = AtomicU64::new(0);
        match &self.server {
            Whose::Users(url) => {
                let prefix = format!("leasehold-test:{}:", LeaseId::mint()?);
                Ok(Part { url: url.clone(), prefix })
            }
            Whose::Ours(program, server) => {
                let start = || Server::start_program(program, None, &["--databases", "10000"]);
                let url = server.get_or_try_init(start).await?.url();
                let case = CASE.fetch_add(1, Ordering::Relaxed);
                // All databases share the channels.
                Ok(Part { url: format!("{url}{case}"), prefix: format!("{case}:") })
            }
        }
    }
}

impl Subject for Shared {
    type Backing = Part;

    fn name(&self) -> &'static str {
        self.name
    }

    async fn open(&self) -> Result<Part> {
        self.part().await
    }

    async fn open_forgetting(&self, _: Duration) -> Result<Forgets<Part>> {
        Ok(Forgets::Never)
    }

    fn unavailable(&self) -> Option<String> {
        let Whose::Ours(program, _) = self.server else { return None };
        let started = Command::new(program).arg("--version").output();
        started.err().map(|error| format!("{program} does not start: {error}"))
    }

    fn reports(&self) -> Reports {
        clocked::reports()
    }
}

impl Backing for Part {
    type Store = RedisStore;

    async fn client(&self) -> Result<RedisStore> {
        let config = RedisConfig::parse(&self.url)?.prefix(&self.prefix);
        Ok(config.max_holders(clocked::HOLDERS).connect().await?)
    }

    fn time(&self) -> Time {
        // Long compared with an operation, short compared with a test.
        Time::Real { tick: Duration::from_millis(200) }
    }

    /// A term is rounded up to whole milliseconds, and does not end before.
    async fn advance(&self, by: Duration) {
        tokio::time::sleep(by + Duration::from_millis(2)).await;
    }

    async fn observe(&self) -> Result<Observation> {
        observe::observe(&self.url, &self.prefix).await
    }

    async fn network(&self) -> Result<Network<RedisStore>> {
        Ok(Network::CannotHere("other cases use the server at the same time".to_owned()))
    }

    async fn restart(&self) -> Result<Restarted> {
        Ok(Restarted::CannotHere("other cases use the server at the same time".to_owned()))
    }
}
