//! The conformance suite on a real Redis server, on a cluster, behind sentinels and on quorums of servers, each
//! case with its own; and in real time on a Valkey server, or on that of `LEASEHOLD_TEST_REDIS_URL` alone.

mod clocked;
mod observe;
mod quorum;

use std::process::{Command, ExitCode};
use std::time::Duration;

use clocked::{Clocked, Layout, Sets};
use leasehold_conformance::{
    Backing, Forgets, Network, Observation, Reports, Restarted, Result, Subject, Suite, Time,
    WallStep,
};
use leasehold_core::{LeaseId, table};
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
        .on(few(redis("redis-cluster", Layout::Cluster)))
        .on(few(redis("redis-sentinel", Layout::Watched)))
        .on(Shared { name: "valkey", server: Whose::Ours(VALKEY, OnceCell::new()) });
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
        Ok(State(self.sets.take(table::FORGET_AFTER).await?))
    }

    async fn open_forgetting(&self, forget_after: Duration) -> Result<Forgets<State>> {
        Ok(Forgets::After(State(self.sets.take(forget_after).await?)))
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
        let (rows, counters): (Vec<_>, Vec<_>) =
            seen.into_iter().map(|one| (one.rows, one.counters)).unzip();
        Ok(Observation::new(rows.concat(), counters.into_iter().flatten()))
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

/// A part of it with its own prefix, which is soon forgotten.
struct Part {
    url: String,
    prefix: String,
    forget_after: Duration,
}

impl Shared {
    async fn part(&self, forget_after: Duration) -> Result<Part> {
        let prefix = format!("leasehold-test:{}:", LeaseId::mint()?);
        let url = match &self.server {
            Whose::Users(url) => url.clone(),
            Whose::Ours(program, server) => {
                let start = || Server::start_program(program, None, &[]);
                server.get_or_try_init(start).await?.url()
            }
        };
        Ok(Part { url, prefix, forget_after })
    }
}

impl Subject for Shared {
    type Backing = Part;

    fn name(&self) -> &'static str {
        self.name
    }

    async fn open(&self) -> Result<Part> {
        // Longer than a case takes.
        self.part(Duration::from_secs(600)).await
    }

    async fn open_forgetting(&self, forget_after: Duration) -> Result<Forgets<Part>> {
        Ok(Forgets::After(self.part(forget_after).await?))
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
        Ok(config.forget_after(Some(self.forget_after)).connect().await?)
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
