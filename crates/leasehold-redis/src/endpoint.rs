//! The server or servers that a store connects to.

use std::fmt;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use leasehold_core::{Error, Result};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError,
    RedisResult,
};

use crate::credentials::Credentials;
use crate::tls::{self, Certificates};

/// One server, or the one that Sentinel names as the master.
#[derive(Clone)]
pub(crate) enum Endpoint {
    Server(Client),
    Sentinel(Sentinel),
}

/// A master that Sentinel finds.
#[derive(Clone)]
pub(crate) struct Sentinel {
    /// The sentinels to query.
    pub(crate) sentinels: Vec<Client>,
    /// The sentinels' name for the master.
    pub(crate) service: String,
    /// The login at a server; its address is not used.
    pub(crate) server: ConnectionInfo,
}

/// Where the leases are.
#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "one is made for each store")]
pub(crate) enum Endpoints {
    /// On one server.
    One(Endpoint),
    /// In the cluster of these nodes.
    Cluster(Vec<Client>),
}

impl Endpoints {
    /// Installs a provider of cryptography where one is needed and the program has chosen none.
    pub(crate) fn provide_tls(&self) {
        let info = match self {
            Self::One(Endpoint::Server(server)) => Some(server.get_connection_info()),
            Self::One(Endpoint::Sentinel(sentinel)) => Some(&sentinel.server),
            Self::Cluster(nodes) => nodes.first().map(Client::get_connection_info),
        };
        let is_tls = info.is_some_and(|it| matches!(it.addr(), ConnectionAddr::TcpTls { .. }));
        if is_tls {
            tls::provide();
        }
    }
}

/// Without user and password.
impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(endpoint) => write!(f, "{endpoint}"),
            Self::Cluster(nodes) => write!(f, "the cluster of {}", names(nodes)),
        }
    }
}

impl Endpoint {
    /// A client for the present server.
    pub(crate) async fn client(&self, limit: Duration, login: &Credentials) -> RedisResult<Client> {
        match self {
            Self::Server(client) => Ok(client.clone()),
            // Half of the limit, so that a sentinel that hangs does not hide the answers of the others.
            Self::Sentinel(sentinel) => sentinel.master(limit / 2, login).await,
        }
    }

    /// Whether its connections have TLS.
    pub(crate) fn has_tls(&self) -> bool {
        let info = match self {
            Self::Server(client) => client.get_connection_info(),
            Self::Sentinel(sentinel) => &sentinel.server,
        };
        matches!(info.addr(), ConnectionAddr::TcpTls { .. })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(client) => f.write_str(&name(client.get_connection_info().addr())),
            Self::Sentinel(Sentinel { sentinels, service, .. }) => {
                write!(f, "the master {service:?} of the sentinels {}", names(sentinels))
            }
        }
    }
}

impl Sentinel {
    /// Queries all sentinels at once and takes the first server named that reports itself as a master.
    async fn master(&self, limit: Duration, login: &Credentials) -> RedisResult<Client> {
        let queries = self.sentinels.iter().map(|sentinel| self.query(sentinel, limit, login));
        let mut answers: FuturesUnordered<_> = queries.collect();
        let mut failures = Vec::new();
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(client) => return Ok(client),
                Err(error) => failures.push(error),
            }
        }
        // A refused login is more informative than an unreachable sentinel.
        let telling = failures.iter().position(|error| !error.is_io_error());
        let failure = failures.into_iter().nth(telling.unwrap_or_default());
        Err(failure.unwrap_or_else(|| failed("there is no sentinel to ask")))
    }

    async fn query(
        &self,
        sentinel: &Client,
        limit: Duration,
        login: &Credentials,
    ) -> RedisResult<Client> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(Some(limit));
        let mut connection = sentinel.get_multiplexed_async_connection_with_config(&config).await?;
        let mut query = redis::cmd("SENTINEL");
        query.arg("get-master-addr-by-name").arg(&self.service);
        let address: Option<(String, u16)> = query.query_async(&mut connection).await?;
        let (host, port) =
            address.ok_or_else(|| failed("a sentinel does not know a master of this name"))?;
        let client = Client::open(at(&self.server, &host, port))?;
        let config = login.applied(config);
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let role = connection.send_packed_command(&redis::cmd("ROLE")).await?;
        // Right after a fail-over a sentinel may still name the old master.
        match role.extract_error()? {
            redis::Value::Array(parts) if parts.first() == Some(&text("master")) => Ok(client),
            _ => Err(failed("the server that a sentinel named is not a master")),
        }
    }
}

fn text(word: &str) -> redis::Value {
    redis::Value::BulkString(word.as_bytes().to_vec())
}

fn failed(what: &'static str) -> RedisError {
    RedisError::from((ErrorKind::Io, what))
}

/// A connection to this address with the login and the TLS settings of `like`.
pub(crate) fn at(like: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let address = match like.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => ConnectionAddr::TcpTls {
            host: host.to_owned(),
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host.to_owned(), port),
    };
    like.clone().set_addr(address)
}

/// A client that uses RESP3 and sends each request at once: by default the kernel holds a request back until the
/// server has acknowledged the one before, which costs a round trip.
pub(crate) fn opened(info: ConnectionInfo, tls: Option<Certificates>) -> Result<Client> {
    let settings = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
    let client = match tls {
        Some(tls) => tls.client(info),
        None => Client::open(info),
    };
    client.map_err(|e| {
        Error::invalid_input(format!("these settings are not valid for a Redis client ({e})"))
            .with_source(e)
    })
}

/// An address as messages show it.
pub(crate) fn name(address: &ConnectionAddr) -> String {
    match address {
        ConnectionAddr::Unix(path) => path.display().to_string(),
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            format!("{host}:{port}")
        }
        _ => "the server".to_owned(),
    }
}

/// Several servers as messages show them.
pub(crate) fn names(clients: &[Client]) -> String {
    let names: Vec<_> =
        clients.iter().map(|client| name(client.get_connection_info().addr())).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo as _;

    use super::*;

    #[test]
    fn every_connection_sends_without_delay() {
        let info = "redis://h".into_connection_info().unwrap();
        let client = opened(info, None).unwrap();
        let seed = client.get_connection_info();
        for info in [seed, &at(seed, "other", 1)] {
            assert!(info.tcp_settings().nodelay());
        }
    }
}
