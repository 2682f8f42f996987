mod url;

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{Error, Result};
use redis::Client;

use crate::cluster::Cluster;
use crate::connection::{ConnectionOptions, Connections};
use crate::credentials::Credentials;
use crate::durability::Statement;
use crate::endpoint::{Endpoint, Endpoints, Sentinel, opened};
use crate::inner::MAX_HOLDERS;
use crate::names::Names;
use crate::servers::Servers;

/// Which server or cluster to use, and how.
///
/// ```
/// use leasehold_redis::RedisConfig;
/// use std::time::Duration;
///
/// let config = RedisConfig::parse("redis://locker@10.0.0.7:6379/0?prefix=app:&timeout=2s")?
///     .quarantine(Duration::from_secs(60));
/// assert!(RedisConfig::parse("redis://h/?ttl=1").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    endpoints: Endpoints,
    timeout: Duration,
    prefix: String,
    quarantine: Option<Duration>,
    durable: bool,
    max_ttl: Option<Duration>,
    replicas: u64,
    allow_eviction: bool,
    client_name: Option<String>,
    credentials: Credentials,
    max_holders: NonZeroU32,
}

impl RedisConfig {
    /// The default time limit of one exchange: 5 s.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
    /// The default of [`max_ttl`](RedisConfig::max_ttl) without a quarantine: 60 s.
    pub const DEFAULT_MAX_TTL: Duration = Duration::from_secs(60);
    const MAX_PREFIX: usize = 255;

    /// The server of your own client: its address, login, TLS and TCP settings. Connections use RESP3 and `TCP_NODELAY`; the
    /// driver hides a linger time, so only connections with TLS have it.
    ///
    /// # Errors
    /// `InvalidInput` if the driver does not accept its own settings again.
    pub fn client(client: &Client) -> Result<Self> {
        let client = opened(client.get_connection_info().clone(), None)?;
        Ok(Self::new(Endpoints::One(Endpoint::Server(client))))
    }

    /// The cluster of your own clients for one or more of its nodes. The other nodes are discovered, and reached
    /// with the login and the TLS settings of the first.
    ///
    /// # Errors
    /// `InvalidInput` for no client, or if the driver does not accept its own settings again.
    pub fn cluster(nodes: &[Client]) -> Result<Self> {
        if nodes.is_empty() {
            return Err(Error::invalid_input("the cluster has no node; give at least one"));
        }
        let nodes = nodes.iter().map(|node| opened(node.get_connection_info().clone(), None));
        Ok(Self::new(Endpoints::Cluster(nodes.collect::<Result<_>>()?)))
    }

    /// The master that these sentinels know as `service`. `server` has the login there; its address is not
    /// used. Each connection queries all sentinels and takes the first server named that reports itself as a
    /// master.
    ///
    /// # Errors
    /// `InvalidInput` for no sentinel, or if the driver does not accept its own settings again.
    pub fn sentinel(sentinels: &[Client], service: &str, server: &Client) -> Result<Self> {
        if sentinels.is_empty() {
            return Err(Error::invalid_input("there is no sentinel; give at least one"));
        }
        let server = opened(server.get_connection_info().clone(), None)?;
        Ok(Self::new(Endpoints::One(Endpoint::Sentinel(Sentinel {
            sentinels: sentinels.to_vec(),
            service: service.to_owned(),
            server: server.get_connection_info().clone(),
        }))))
    }

    fn new(endpoints: Endpoints) -> Self {
        Self {
            endpoints,
            timeout: Self::DEFAULT_TIMEOUT,
            prefix: String::new(),
            quarantine: None,
            durable: false,
            max_ttl: None,
            replicas: 0,
            allow_eviction: false,
            client_name: None,
            credentials: Credentials::default(),
            max_holders: MAX_HOLDERS,
        }
    }

    /// Sets the time limit of one exchange with the server, connecting included. An operation is one exchange,
    /// except listing and purging, which take several steps.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the prefix of every key, at most 255 bytes without control characters. None by default, so that keys
    /// are those of other Redlock clients.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// States that every server has always written durably: since its data was empty, no process ever granted on it
    /// without `appendonly yes`, `appendfsync always` and `no-appendfsync-on-rewrite no`, and none of the data came from
    /// a replica. Only the operator can know this; no setting shows what an earlier process did. Such a server needs
    /// no quarantine. A server whose settings contradict this is refused: by `check`, and by each acquire if it writes
    /// no append-only file.
    #[must_use]
    pub fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// Sets the longest term that may have been granted before a server's start. Unless
    /// [`durable`](RedisConfig::durable) is stated, the level is L0 for this long after each start, and for longer
    /// terms always. By default it is the quarantine, or else 60 s. It limits no request.
    #[must_use]
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = Some(max_ttl);
        self
    }

    /// Sets how long a server grants nothing after each start of its process, because it may have lost leases; by
    /// default it grants at once. In a quorum this must be the longest term. It does not apply to servers that are
    /// stated to be [`durable`](RedisConfig::durable). A server that was a replica and was promoted by hand grants
    /// nothing either. The server's uptime follows its wall clock.
    #[must_use]
    pub fn quarantine(mut self, quarantine: Duration) -> Self {
        self.quarantine = Some(quarantine);
        self
    }

    /// Sets how many replicas must have a grant or a renewal before it counts; none by default. Replicas make a
    /// loss in a fail-over less likely, but do not prevent it: the level stays L0. Each such request waits for the
    /// replicas (`WAIT`), and so do the requests of all other callers behind it on the connection. If too few
    /// replicas have it within half of the time limit, the request fails as `Unavailable` with an `Unknown`
    /// effect.
    #[must_use]
    pub fn replicas(mut self, replicas: u64) -> Self {
        self.replicas = replicas;
        self
    }

    /// Allows a server whose `maxmemory-policy` may evict locks, so that two clients may hold one key at any time.
    /// By default such a server is refused as `Incompatible`.
    #[must_use]
    pub fn allow_eviction(mut self, allow: bool) -> Self {
        self.allow_eviction = allow;
        self
    }

    /// Names the store's connections, as `CLIENT LIST` shows them: printable ASCII without spaces. Needs the privilege
    /// `client|setname`.
    #[must_use]
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = Some(name.into());
        self
    }

    /// Gets user and password from `provider`, not from the URL or the client: each connection logs in with the latest
    /// ones, and logs in again when they change. For short-lived tokens, as managed services issue them.
    #[cfg(feature = "credentials")]
    #[must_use]
    pub fn credentials(
        mut self,
        provider: impl redis::StreamingCredentialsProvider + 'static,
    ) -> Self {
        self.credentials = Credentials::new(provider);
        self
    }

    /// Sets the most shared holders of a key, for Leasehold's own tests.
    #[doc(hidden)]
    #[must_use]
    pub fn max_holders(mut self, most: NonZeroU32) -> Self {
        self.max_holders = most;
        self
    }

    /// The servers, without a connection, how their keys are named, and how many holders one may have.
    pub(crate) fn servers(self) -> Result<(Servers, Names, NonZeroU32)> {
        self.check()?;
        self.endpoints.provide_tls();
        let in_cluster = matches!(self.endpoints, Endpoints::Cluster(_));
        let quarantine = self.quarantine.unwrap_or_default();
        let options = ConnectionOptions {
            client_name: self.client_name.map(Into::into),
            credentials: self.credentials,
            timeout: self.timeout,
            statement: Statement {
                durable: self.durable,
                quarantine,
                max_ttl: self.max_ttl.unwrap_or(if quarantine.is_zero() {
                    Self::DEFAULT_MAX_TTL
                } else {
                    quarantine
                }),
            },
            replicas: self.replicas,
            allow_eviction: self.allow_eviction,
            in_cluster,
            is_checked: false,
        };
        let servers = match self.endpoints {
            Endpoints::One(endpoint) => Servers::One(Connections::new(endpoint, options, None)),
            Endpoints::Cluster(nodes) => Servers::Cluster(Cluster::new(nodes, options)),
        };
        Ok((servers, Names::new(&self.prefix, in_cluster), self.max_holders))
    }

    fn check(&self) -> Result<()> {
        let millisecond = Duration::from_millis(1);
        if self.timeout < millisecond {
            return Err(Error::invalid_input(format!(
                "the time limit is {:?}; it must be at least 1 ms",
                self.timeout
            )));
        }
        let is_plain =
            |name: &String| !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic());
        if let Some(name) = self.client_name.as_ref().filter(|name| !is_plain(name)) {
            return Err(Error::invalid_input(format!(
                "the client_name is {name:?}; it must be printable ASCII without spaces"
            )));
        }
        if self.prefix.len() > Self::MAX_PREFIX || self.prefix.chars().any(char::is_control) {
            return Err(Error::invalid_input(format!(
                "the prefix has {} bytes; it must have at most {}, without control characters",
                self.prefix.len(),
                Self::MAX_PREFIX
            )));
        }
        Ok(())
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisConfig")
            .field("server", &self.endpoints.to_string())
            .field("timeout", &self.timeout)
            .field("prefix", &self.prefix)
            .field("durable", &self.durable)
            .field("max_ttl", &self.max_ttl)
            .field("quarantine", &self.quarantine)
            .field("replicas", &self.replicas)
            .field("allow_eviction", &self.allow_eviction)
            .field("client_name", &self.client_name)
            .finish()
    }
}
