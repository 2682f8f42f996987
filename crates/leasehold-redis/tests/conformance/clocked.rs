//! Sets of servers that share a clock which the test moves.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_conformance::{
    Network, Observation, Pool, Pooled, Proxy, Reports, Result, ServerClock, WallStep,
};
use leasehold_core::ManualClock;
use leasehold_redis::{RedisConfig, RedisStore};
use leasehold_testkit::redis::Server;
use leasehold_testkit::redis::cluster::{Cluster, ClusterOptions};
use leasehold_testkit::redis::sentinel::Sentinels;
use tempfile::TempDir;

use crate::observe::observe;

/// The relation of the servers of a set.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Layout {
    /// This many independent servers.
    Apart(usize),
    /// The masters of a cluster.
    Cluster,
    /// One server that sentinels watch.
    Watched,
}

/// Sets of servers of one layout, which cases reuse.
#[derive(Clone)]
pub(crate) struct Sets {
    layout: Layout,
    settings: &'static [&'static str],
    pool: Pool<Set>,
}

/// Servers and the clock that they read.
struct Set {
    servers: Vec<Server>,
    sentinels: Option<Sentinels>,
    layout: Layout,
    clock: ManualClock,
    /// The directory of the clock's file.
    _directory: TempDir,
}

/// A set for one case alone, empty at first.
pub(crate) struct Clocked {
    set: Pooled<Set>,
    /// The prefix of its keys.
    prefix: String,
}

impl Sets {
    pub(crate) fn new(layout: Layout, settings: &'static [&'static str]) -> Self {
        Self { layout, settings, pool: Pool::new() }
    }

    pub(crate) async fn take(&self) -> Result<Clocked> {
        let set = self.pool.take(self.start()).await?;
        for server in &set.servers {
            server.ask(&["FLUSHALL"]).await?;
        }
        // The suite's leases have many keys, which must share a slot in a cluster. Each case has its own slot, so
        // that the cases are spread over all masters.
        static CASE: AtomicU64 = AtomicU64::new(0);
        let prefix = match self.layout {
            Layout::Cluster => format!("{{case:{}}}:", CASE.fetch_add(1, Ordering::Relaxed)),
            Layout::Apart(_) | Layout::Watched => String::new(),
        };
        Ok(Clocked { set, prefix })
    }

    async fn start(&self) -> Result<Set> {
        let directory = tempfile::tempdir()?;
        let clock = ServerClock::new(directory.path().join("time"))?;
        let one = || Server::start_on(Some(clock.clone()), self.settings);
        let mut sentinels = None;
        let servers = match self.layout {
            Layout::Apart(count) => {
                let mut servers = Vec::new();
                for _ in 0..count {
                    servers.push(one().await?);
                }
                servers
            }
            Layout::Cluster => {
                Cluster::start(ClusterOptions::stopped(&clock, self.settings)).await?.nodes
            }
            Layout::Watched => {
                let server = one().await?;
                sentinels = Some(Sentinels::watch(&server, 0, 600_000).await?);
                vec![server]
            }
        };
        let (layout, clock) = (self.layout, clock.manual());
        Ok(Set { servers, sentinels, layout, clock, _directory: directory })
    }
}

impl Clocked {
    pub(crate) fn clock(&self) -> &ManualClock {
        &self.set.clock
    }

    /// A store on each of them, or on all together.
    pub(crate) async fn open(&self) -> Result<Vec<RedisStore>> {
        // Longer than anything takes: parts of the suite move the clock while others wait.
        self.open_at(self.urls(), Duration::from_secs(30)).await
    }

    /// A store on each of them, connected through a proxy; or why that is impossible.
    pub(crate) async fn open_behind_proxies(&self) -> Result<Network<Vec<RedisStore>>> {
        let set = &*self.set;
        let own_address = match set.layout {
            Layout::Apart(_) => None,
            Layout::Cluster => Some("the nodes of a cluster tell clients their own addresses"),
            Layout::Watched => Some("sentinels tell clients the own address of the master"),
        };
        if let Some(why) = own_address {
            return Ok(Network::CannotHere(why.to_owned()));
        }
        let (mut proxies, mut urls) = (Vec::new(), Vec::new());
        for server in &set.servers {
            let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into()).await?;
            urls.push(format!("redis://{}/", proxy.address()));
            proxies.push(proxy);
        }
        // Short for a waiting test, long for a busy machine.
        let stores = self.open_at(urls, Duration::from_secs(10)).await?;
        Ok(Network::Proxied(stores, proxies))
    }

    fn urls(&self) -> Vec<String> {
        let set = &*self.set;
        match (set.layout, &set.sentinels) {
            (Layout::Cluster, _) => {
                let hosts: Vec<_> =
                    set.servers.iter().map(|one| format!("127.0.0.1:{}", one.port())).collect();
                vec![format!("redis+cluster://{}/", hosts.join(","))]
            }
            (_, Some(sentinels)) => vec![sentinels.url()],
            (_, None) => set.servers.iter().map(Server::url).collect(),
        }
    }

    async fn open_at(&self, urls: Vec<String>, timeout: Duration) -> Result<Vec<RedisStore>> {
        let mut stores = Vec::new();
        for url in urls {
            let config = RedisConfig::parse(&url)?
                .timeout(timeout)
                .prefix(&self.prefix)
                .max_holders(HOLDERS)
                .durable(self.set.servers.iter().all(Server::is_durable));
            stores.push(config.connect().await?);
        }
        Ok(stores)
    }

    pub(crate) fn advance(&self, by: Duration) -> Result {
        Server::advance(&self.servers(), by)
    }

    pub(crate) fn step_wall(&self, step: WallStep) -> Result {
        Server::step_wall(&self.servers(), step)
    }

    /// The content of each.
    pub(crate) async fn observe(&self) -> Result<Vec<Observation>> {
        let mut seen = Vec::new();
        for server in &self.set.servers {
            seen.push(observe(&server.url(), &self.prefix).await?);
        }
        Ok(seen)
    }

    /// Kills them all and starts them again.
    pub(crate) async fn restart(&self) -> Result {
        self.servers().iter().for_each(|server| server.kill());
        for server in self.servers() {
            server.restart().await?;
        }
        if matches!(self.set.layout, Layout::Cluster) {
            Cluster::until_well(&self.servers(), true).await?;
        }
        Ok(())
    }

    fn servers(&self) -> Vec<&Server> {
        self.set.servers.iter().collect()
    }
}

/// The most holders of a key in the suite, which makes so many one by one.
pub(crate) const HOLDERS: NonZeroU32 = NonZeroU32::new(64).unwrap();

/// What a store on such a server reports.
pub(crate) fn reports() -> Reports {
    let mut reports = Reports::all();
    reports.forgotten = false;
    reports.own_clock = false;
    reports.unit = Duration::from_millis(1);
    reports
}
