//! Real Redis Clusters for tests.

use std::time::Duration;

use leasehold_conformance::{Failure, Proxy, Result, ServerClock, free_port};
use leasehold_redis::redis;

use super::Server;

/// Masters, each with an equal share of the slots, followed by their replicas.
pub struct Cluster {
    pub nodes: Vec<Server>,
}

/// How a cluster is started.
pub struct ClusterOptions {
    /// What its servers read instead of the machine's clock.
    pub clock: Option<ServerClock>,
    pub replicas: usize,
    pub settings: Vec<String>,
}

pub const MASTERS: usize = 3;
pub const SLOTS: u16 = 16_384;

impl Default for ClusterOptions {
    fn default() -> Self {
        let settings = ["--cluster-node-timeout", "2000"].map(str::to_owned).to_vec();
        Self { clock: None, replicas: 0, settings }
    }
}

impl ClusterOptions {
    /// With a clock that stands still unless it is moved, over longer times than a node may otherwise be silent.
    pub fn stopped(clock: &ServerClock, settings: &[&str]) -> Self {
        let mut settings: Vec<_> = settings.iter().map(|&setting| setting.to_owned()).collect();
        settings.extend(["--cluster-node-timeout", "1000000000000"].map(str::to_owned));
        Self { clock: Some(clock.clone()), replicas: 0, settings }
    }
}

impl Cluster {
    pub async fn start(options: ClusterOptions) -> Result<Self> {
        let count = MASTERS * (1 + options.replicas);
        let mut nodes = Vec::new();
        for _ in 0..count {
            // By default it is the port plus 10,000, which may be too high a number.
            let bus = free_port()?.to_string();
            let mut settings = vec!["--cluster-enabled", "yes", "--cluster-port", &bus];
            settings.extend(options.settings.iter().map(String::as_str));
            nodes.push(Server::start_on(options.clock.clone(), &settings).await?);
        }
        let this = Self { nodes };
        for (at, node) in this.nodes[..MASTERS].iter().enumerate() {
            let (first, last) = range(at);
            node.ask(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]).await?;
            node.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]).await?;
        }
        for node in &this.nodes[1..] {
            let bus = node.setting("--cluster-port");
            let port = node.port().to_string();
            this.nodes[0].ask(&["CLUSTER", "MEET", "127.0.0.1", &port, bus]).await?;
        }
        let servers = this.servers();
        let has_clock = options.clock.is_some();
        until(&servers, has_clock, &["CLUSTER", "NODES"], |reply| {
            reply.lines().filter(|line| !line.contains("handshake")).count() == count
        })
        .await?;
        for (at, replica) in this.nodes[MASTERS..].iter().enumerate() {
            let id = this.nodes[at % MASTERS].ask(&["CLUSTER", "MYID"]).await?;
            let id: String = redis::from_redis_value(id)?;
            replica.ask(&["CLUSTER", "REPLICATE", &id]).await?;
        }
        Self::until_well(&servers, has_clock).await?;
        until(&servers, has_clock, &["INFO", "replication"], |reply| {
            reply.contains("role:master") || reply.contains("master_link_status:up")
        })
        .await?;
        Ok(this)
    }

    /// Waits until all nodes report that the cluster serves all slots.
    pub async fn until_well(nodes: &[&Server], has_clock: bool) -> Result {
        let well = ["cluster_state:ok", "cluster_slots_ok:16384", "cluster_size:3"];
        until(nodes, has_clock, &["CLUSTER", "INFO"], |reply| {
            well.iter().all(|part| reply.contains(part))
        })
        .await
    }

    /// Makes every node announce the address of its proxy.
    pub async fn behind_proxies(&self) -> Vec<Proxy> {
        let mut proxies = Vec::new();
        for node in &self.nodes {
            let proxy = Proxy::before(([127, 0, 0, 1], node.port()).into()).await.unwrap();
            let port = proxy.address().port().to_string();
            node.ask(&["CONFIG", "SET", "cluster-announce-port", &port]).await.unwrap();
            proxies.push(proxy);
        }
        let ports: Vec<_> = proxies.iter().map(|proxy| proxy.address().port()).collect();
        until(&self.servers(), false, &["CLUSTER", "NODES"], |reply| {
            ports.iter().all(|port| reply.contains(&format!(":{port}@")))
        })
        .await
        .unwrap();
        proxies
    }

    /// Waits until all nodes know the newest epoch. A new owner of a slot that does not know it claims the slot in an older
    /// one, and loses it with its keys.
    pub async fn agree_on_epoch(&self) {
        let mut newest = 0;
        for node in &self.nodes {
            newest = newest.max(node.epoch().await);
        }
        let newest = format!("cluster_current_epoch:{newest}\r");
        let is_newest = |info: &str| info.contains(&newest);
        until(&self.servers(), false, &["CLUSTER", "INFO"], is_newest).await.unwrap();
    }

    /// Moves a slot with these keys, and shows each state in between, after so many of them.
    pub async fn move_slot(
        &self,
        slot: i64,
        from: usize,
        to: usize,
        keys: &[&str],
        between: impl AsyncFn(usize),
    ) {
        self.agree_on_epoch().await;
        let (from, to) = (&self.nodes[from], &self.nodes[to]);
        let slot = slot.to_string();
        let ids = [from.id().await, to.id().await];
        to.ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[0]]).await.unwrap();
        from.ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &ids[1]]).await.unwrap();
        for (at, key) in keys.iter().enumerate() {
            between(at).await;
            let port = to.port().to_string();
            from.ask(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]).await.unwrap();
        }
        // The mark of the slot's tokens, unless it is named.
        let left = ["CLUSTER", "GETKEYSINSLOT", &slot, "100"];
        let left: Vec<String> = redis::from_redis_value(from.ask(&left).await.unwrap()).unwrap();
        for key in left.iter().filter(|key| key.starts_with("lh:token")) {
            let port = to.port().to_string();
            from.ask(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]).await.unwrap();
        }
        between(keys.len()).await;
        // The old owner tells its clients, and then all must know.
        let mut masters: Vec<_> = self.nodes[..MASTERS].iter().collect();
        masters.sort_by_key(|node| (node.port() != to.port(), node.port() == from.port()));
        for node in masters {
            node.ask(&["CLUSTER", "SETSLOT", &slot, "NODE", &ids[1]]).await.unwrap();
        }
    }

    pub fn servers(&self) -> Vec<&Server> {
        self.nodes.iter().collect()
    }

    pub fn url(&self) -> String {
        format!("redis+cluster://127.0.0.1:{}/", self.nodes[0].port())
    }

    /// Which of the masters owned this slot at the start.
    pub fn first_owner(slot: u16) -> usize {
        (0..MASTERS).find(|at| (range(*at).0..=range(*at).1).contains(&slot)).expect("one has it")
    }
}

impl Server {
    /// Its id in its cluster.
    pub async fn id(&self) -> String {
        self.text(&["CLUSTER", "MYID"]).await.unwrap()
    }

    /// The newest configuration epoch of its cluster that it knows.
    async fn epoch(&self) -> u64 {
        let info = self.text(&["CLUSTER", "INFO"]).await.unwrap();
        let epoch = info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:"));
        epoch.expect("it has one").parse().unwrap()
    }
}

/// Waits for a condition on all nodes, each on its own clock.
async fn until(
    nodes: &[&Server],
    has_clock: bool,
    words: &[&str],
    holds: impl Fn(&str) -> bool,
) -> Result {
    for _ in 0..3_000 {
        let mut all = true;
        for node in nodes {
            let reply = node.ask(words).await.and_then(|reply| Ok(redis::from_redis_value(reply)?));
            all &= reply.is_ok_and(|reply: String| holds(&reply));
        }
        if all {
            return Ok(());
        }
        if has_clock {
            Server::advance(nodes, Duration::from_millis(100))?;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err(Failure::new(format!("no node reported what was awaited: {words:?}")))
}

/// The slots of a master.
fn range(at: usize) -> (u16, u16) {
    let bound = |at: usize| u16::try_from(usize::from(SLOTS) * at / MASTERS).expect("a slot");
    (bound(at), bound(at + 1) - 1)
}
