//! Real Redis servers: one alone, or several as the nodes of a quorum.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::backoff::Backoff;
use leasehold::{Claims, Guard, Key, Lease, LeaseId, Locker, ManualClock, Mode, QuorumConfig, Ttl};
use leasehold_conformance::{Proxy, ServerClock};
use leasehold_testkit::redis::{DURABLE, Server};
use leasehold_testkit::{LONG, until};
use tempfile::TempDir;

pub(crate) fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Servers with durable writes, so that none is in quarantine after its start.
pub(crate) struct Fleet {
    pub(crate) servers: Vec<Server>,
    is_quorum: bool,
    clock: Option<(ManualClock, TempDir)>,
}

impl Fleet {
    /// One server, used alone.
    pub(crate) async fn one() -> Self {
        Self { servers: vec![Server::start(DURABLE).await.unwrap()], is_quorum: false, clock: None }
    }

    /// The nodes of a quorum.
    pub(crate) async fn nodes(count: usize) -> Self {
        let servers = join_all((0..count).map(|_| Server::start(DURABLE))).await;
        let servers = servers.into_iter().map(Result::unwrap).collect();
        Self { servers, is_quorum: true, clock: None }
    }

    /// This many servers on one clock, which stands still unless a test moves it; several are a quorum.
    pub(crate) async fn on_a_clock(count: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = ServerClock::new(directory.path().join("time")).unwrap();
        let starts = (0..count).map(|_| Server::start_on(Some(clock.clone()), DURABLE));
        let servers = join_all(starts).await.into_iter().map(Result::unwrap).collect();
        Self { servers, is_quorum: count > 1, clock: Some((clock.manual(), directory)) }
    }

    /// The URL for `Locker::connect`. A quorum waits for a node as long as a busy machine may need.
    pub(crate) fn url(&self) -> String {
        self.url_with("node_timeout=5s")
    }

    /// The same with these options for a quorum.
    pub(crate) fn url_with(&self, options: &str) -> String {
        if !self.is_quorum {
            return self.servers[0].store_url();
        }
        quorum_url(self.servers.iter().map(Server::store_url), options)
    }

    /// Another process each time.
    pub(crate) async fn locks(&self) -> Locker {
        let Some((clock, _)) = &self.clock else {
            return Locker::connect(&self.url()).await.unwrap();
        };
        let clock = Arc::new(clock.clone());
        if !self.is_quorum {
            return Locker::builder(self.servers[0].store().await).clock(clock).build();
        }
        let mut config = QuorumConfig::new().clock(clock.clone());
        for server in &self.servers {
            config = config.node(server.url(), server.store().await);
        }
        Locker::builder(config.build().unwrap()).clock(clock).build()
    }

    /// Lets time pass, for the servers and for every `Locker`.
    pub(crate) fn advance(&self, by: Duration) {
        Server::advance(&self.servers.iter().collect::<Vec<_>>(), by).unwrap();
    }

    /// The value of `key` on each server.
    pub(crate) async fn values(&self, key: &str) -> Vec<Option<String>> {
        join_all(self.servers.iter().map(async |server| server.text(&["GET", key]).await)).await
    }

    /// On how many servers `guard` holds `key`.
    pub(crate) async fn copies(&self, key: &str, guard: &Guard) -> usize {
        let id = Some(guard.lease().id.to_string());
        self.values(key).await.into_iter().filter(|value| *value == id).count()
    }

    /// Waits for the nodes that an answer did not wait for.
    pub(crate) async fn until_everywhere(&self, key: &str, guard: &Guard) {
        until(async || self.copies(key, guard).await == self.servers.len()).await;
    }

    /// Waits until no server has `key`.
    pub(crate) async fn until_nowhere(&self, key: &str) {
        until(async || self.values(key).await.iter().all(Option::is_none)).await;
    }

    /// The remaining milliseconds of the lease of `key`, on each server, which keeps a key through the last one.
    pub(crate) async fn rests(&self, key: &str) -> Vec<i64> {
        let rest = async |server: &Server| server.number(&["PTTL", key]).await + 1;
        join_all(self.servers.iter().map(rest)).await
    }
}

pub(crate) fn quorum_url(nodes: impl IntoIterator<Item = String>, options: &str) -> String {
    let mut url = format!("quorum:?{options}");
    for node in nodes {
        url.push_str("&node=");
        url.push_str(&node.replace(':', "%3A").replace('/', "%2F").replace('&', "%26"));
    }
    url
}

/// A server, a proxy before it, and a `Locker` that uses the proxy.
pub(crate) async fn behind_a_proxy() -> (Server, Proxy, Locker) {
    let server = Server::start(DURABLE).await.unwrap();
    let proxy = Proxy::before(([127, 0, 0, 1], server.port()).into()).await.unwrap();
    // What is late on a busy machine would be sent again after a tenth of the time limit.
    let url = format!("redis://{}/?durable=1&timeout=30s", proxy.address());
    let locks = Locker::connect(&url).await.unwrap();
    (server, proxy, locks)
}

/// Another client's lock on `key`, with this value.
pub(crate) async fn foreign(server: &Server, key: &str, token: &str) {
    let ms = LONG.as_millis() * 10;
    let set = server.text(&["SET", key, token, "PX", &ms.to_string(), "NX"]).await;
    assert_eq!(set.as_deref(), Some("OK"));
}

/// The lease of a lock with this key and value.
pub(crate) fn lease(key: &str, token: &str, ttl: Duration) -> Lease {
    let claims = Claims::one(Key::new(key).unwrap(), Mode::Exclusive);
    Lease::new(LeaseId::foreign(token.as_bytes()).unwrap(), claims, Ttl::new(ttl).unwrap())
}

/// The pauses of a back-off.
pub(crate) type Pauses = Arc<Mutex<Vec<Duration>>>;

/// Records the pauses of `backoff`.
pub(crate) fn recorded(mut backoff: impl Backoff) -> (Pauses, impl Backoff) {
    let pauses = Pauses::default();
    let log = Arc::clone(&pauses);
    let recording = move |retry| {
        let pause = backoff.next(retry)?;
        log.lock().unwrap().push(pause);
        Some(pause)
    };
    (pauses, recording)
}
