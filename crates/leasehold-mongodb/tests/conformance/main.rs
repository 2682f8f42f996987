//! The conformance suite on real MongoDB servers on a clock of the tests: on a replica set of one, and on a server alone, whose
//! collection clients of mongo-lock may share.

mod observe;

use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Duration;

use leasehold_conformance::{
    Backing, Forgets, Network, Observation, Pool, Pooled, Proxy, Reports, Restarted, Result,
    ServerClock, Subject, Suite, Time, WallStep,
};
use leasehold_core::{ManualClock, Store as _, table};
use leasehold_mongodb::mongodb::bson::doc;
use leasehold_mongodb::{MongodbConfig, MongodbStore};
use leasehold_testkit::mongodb::Server;
use leasehold_testkit::mongodb::replica_set::{ReplicaSet, SetOptions};
use tempfile::TempDir;

fn main() -> ExitCode {
    let set = Mongodb {
        name: "mongodb",
        is_replicated: true,
        skew: Duration::ZERO,
        max_holders: const { NonZeroU32::new(100).unwrap() },
        pool: Pool::new(),
    };
    let alone = Mongodb {
        name: "mongodb-alone",
        is_replicated: false,
        skew: Duration::from_millis(100),
        max_holders: MongodbConfig::DEFAULT_MAX_HOLDERS,
        pool: Pool::new(),
    };
    Suite::new().on(set).on_form(alone).main()
}

struct Mongodb {
    name: &'static str,
    is_replicated: bool,
    skew: Duration,
    /// Each holder makes the document longer, and each change writes all of it.
    max_holders: NonZeroU32,
    pool: Pool<Clocked>,
}

/// A server and the clock that it reads.
struct Clocked {
    servers: Servers,
    clock: ManualClock,
    /// The directory of the clock's file.
    _directory: TempDir,
}

enum Servers {
    Alone(Server),
    Set(ReplicaSet),
}

impl Servers {
    fn first(&self) -> &Server {
        match self {
            Self::Alone(server) => server,
            Self::Set(set) => &set.nodes[0],
        }
    }
}

/// A server for one case alone, empty at first.
struct State {
    set: Pooled<Clocked>,
    skew: Duration,
    max_holders: NonZeroU32,
    forget_after: Duration,
}

impl Mongodb {
    async fn take(&self, forget_after: Duration) -> Result<State> {
        let set = self.pool.take(self.start()).await?;
        let state = State { set, skew: self.skew, max_holders: self.max_holders, forget_after };
        let server = state.set.servers.first();
        // A replica set does not drop a database while its clock stands still.
        let everything = doc! { "delete": "locks", "deletes": [{ "q": {}, "limit": 0 }] };
        server.command("test", everything).await?;
        state.client().await?.prepare().await?;
        Ok(state)
    }

    async fn start(&self) -> Result<Clocked> {
        let directory = tempfile::tempdir()?;
        let clock = ServerClock::new(directory.path().join("time"))?;
        let servers = match self.is_replicated {
            true => {
                let clock = Some(clock.clone());
                let options = SetOptions { clock, nodes: 1, ..SetOptions::default() };
                Servers::Set(ReplicaSet::start_with(options).await?)
            }
            false => Servers::Alone(Server::start_on(Some(clock.clone()), &[]).await?),
        };
        Ok(Clocked { servers, clock: clock.manual(), _directory: directory })
    }
}

impl State {
    /// A store behind this address, with a time limit.
    async fn open(&self, place: &str, timeout: Duration) -> Result<MongodbStore> {
        // A command that waits for a change of the topology has no end while the clock stands still. The driver notices only by
        // its own look that a server hangs to which it connects.
        let url = format!(
            "mongodb://{place}/test?directConnection=true&serverMonitoringMode=poll&heartbeatFrequencyMS=1000"
        );
        let config = MongodbConfig::parse(&url)?
            .timeout(timeout)
            .skew(self.skew)
            .max_holders(self.max_holders)
            .forget_after(Some(self.forget_after));
        Ok(config.connect().await?)
    }
}

impl Subject for Mongodb {
    type Backing = State;

    fn name(&self) -> &'static str {
        self.name
    }

    async fn open(&self) -> Result<State> {
        self.take(table::FORGET_AFTER).await
    }

    async fn open_forgetting(&self, forget_after: Duration) -> Result<Forgets<State>> {
        Ok(Forgets::After(self.take(forget_after).await?))
    }

    fn reports(&self) -> Reports {
        let mut reports = Reports::all();
        reports.own_clock = false;
        reports.quiet = false;
        reports.unit = Duration::from_millis(1);
        // A lease is read and written: few are evicted. What the server is takes six commands to learn.
        reports.exchanges.evict = 2;
        // What is not simple is tried again by a pipeline: a lease that is confirmed, or a key with a mark of an eviction.
        reports.exchanges.acquire = 2;
        reports.exchanges.renew = 2;
        reports.exchanges.release = 2;
        reports.exchanges.confirmation = 2;
        reports.exchanges.not_held = 2;
        reports.exchanges.check = 6;
        reports.exchanges.several_keys = 3;
        reports
    }

    fn oracle_operations(&self, _: &Time) -> usize {
        if leasehold_testkit::all() { 20_000 } else { 3_000 }
    }
}

impl Backing for State {
    type Store = MongodbStore;

    async fn client(&self) -> Result<MongodbStore> {
        // Longer than anything takes: parts of the suite move the clock while others wait.
        let place = format!("127.0.0.1:{}", self.set.servers.first().port());
        self.open(&place, Duration::from_secs(30)).await
    }

    fn time(&self) -> Time {
        Time::Manual(self.set.clock.clone())
    }

    async fn advance(&self, by: Duration) {
        Server::advance(&[self.set.servers.first()], by).expect("the server runs");
    }

    async fn step_wall(&self, step: WallStep) -> Result<bool> {
        match &self.set.servers {
            Servers::Alone(server) => Server::step_wall(&[server], step)?,
            Servers::Set(set) => set.step_wall(step).await?,
        }
        Ok(true)
    }

    async fn observe(&self) -> Result<Observation> {
        observe::observe(self.set.servers.first(), self.skew).await
    }

    async fn restart(&self) -> Result<Restarted> {
        match &self.set.servers {
            Servers::Alone(server) => server.restart().await?,
            Servers::Set(set) => {
                set.nodes[0].restart().await?;
                set.until_well().await;
            }
        }
        Ok(Restarted::Persisted)
    }

    async fn network(&self) -> Result<Network<MongodbStore>> {
        let port = self.set.servers.first().port();
        let proxy = Proxy::before(([127, 0, 0, 1], port).into()).await?;
        // Only the driver's own look at the server has it.
        proxy.ignore(|sent| sent.windows(12).any(|part| part == b"backpressure"));
        // Short for a waiting test, long for a busy machine.
        let store = self.open(&proxy.address().to_string(), Duration::from_secs(10)).await?;
        Ok(Network::Proxied(store, vec![proxy]))
    }
}
