//! The server or servers that a URL names.

use std::fmt;

use leasehold_core::{Error, Result};
use leasehold_driver::{Place, StoreUrl};
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo};

use crate::endpoint::{self, Endpoint, Sentinel};
use crate::tls::{self, Certificates};

/// Where the leases are.
#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "one is made for each store")]
pub(crate) enum Deployment {
    /// On one server.
    One(Endpoint),
    /// In the cluster of these nodes.
    Cluster(Vec<Client>),
}

impl Deployment {
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
impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(endpoint) => write!(f, "{endpoint}"),
            Self::Cluster(nodes) => write!(f, "the cluster of {}", endpoint::names(nodes)),
        }
    }
}

/// The server or servers of a URL. Takes the options that say how to connect.
pub(crate) fn deployment(url: &mut StoreUrl) -> Result<Deployment> {
    let scheme = url.scheme().to_owned();
    let tls = tls::of_url(&scheme, url)?;
    let is_tls = scheme.starts_with("rediss");
    let kind = scheme.split_once('+').map_or("", |(_, kind)| kind);
    // The options of other kinds are left, and refused.
    let [user, pass, db] = match kind {
        "unix" => ["user", "pass", "db"].map(|name| url.take(name)),
        "sentinel" => [url.take("sentinel_user"), url.take("sentinel_pass"), None],
        _ => [None, None, None],
    };
    let login = login(url.user(), url.password());
    let servers = |default_port: u16, login: &RedisConnectionInfo| {
        let places = url.places()?;
        if places.is_empty() {
            return Err(no_server(&scheme));
        }
        let client = |Place { host, port }: &Place| {
            let (host, port) = (host.clone(), port.unwrap_or(default_port));
            let address = match is_tls {
                true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
                false => ConnectionAddr::Tcp(host, port),
            };
            client(address, login.clone(), tls.clone())
        };
        places.iter().map(client).collect::<Result<Vec<_>>>()
    };
    let path = url.path().trim_matches('/');
    Ok(match kind {
        "cluster" => {
            if !matches!(path, "" | "0") {
                return Err(Error::invalid_input(format!(
                    "the {scheme} URL names a database; a Redis Cluster has only database 0"
                )));
            }
            Deployment::Cluster(servers(PORT, &login)?)
        }
        "sentinel" => {
            let (service, db) = path.split_once('/').unwrap_or((path, ""));
            if service.is_empty() {
                return Err(Error::invalid_input(format!(
                    "the {scheme} URL does not name the master; write {scheme}://HOST:PORT/SERVICE"
                )));
            }
            let (service, login) = (service.to_owned(), login.set_db(database(&scheme, db)?));
            let server = servers(PORT, &login)?.swap_remove(0).get_connection_info().clone();
            let login = match (user, pass) {
                (Some(_), None) => {
                    return Err(Error::invalid_input(format!(
                        "the {scheme} URL has sentinel_user without sentinel_pass"
                    )));
                }
                (user, pass) => self::login(user.as_deref(), pass.as_deref()),
            };
            let sentinels = servers(SENTINEL_PORT, &login)?;
            Deployment::One(Endpoint::Sentinel(Sentinel { sentinels, service, server }))
        }
        "unix" => {
            if url.has_server() || path.is_empty() || !url.path().starts_with('/') {
                return Err(Error::invalid_input(
                    "the redis+unix URL has no path; write redis+unix:///PATH, for example redis+unix:///run/redis.sock",
                ));
            }
            let address = ConnectionAddr::Unix(url.path().into());
            let login = self::login(user.as_deref(), pass.as_deref());
            let login = login.set_db(database(&scheme, db.as_deref().unwrap_or_default())?);
            Deployment::One(Endpoint::Server(client(address, login, None)?))
        }
        _ => {
            if url.places()?.len() > 1 {
                return Err(Error::invalid_input(format!(
                    "the {scheme} URL names several servers; write {scheme}+cluster:// for a Redis Cluster, or \
                     {scheme}+sentinel:// for sentinels"
                )));
            }
            let login = login.set_db(database(&scheme, path)?);
            Deployment::One(Endpoint::Server(servers(PORT, &login)?.swap_remove(0)))
        }
    })
}

/// The port of a server.
const PORT: u16 = 6379;
/// The port of a sentinel.
const SENTINEL_PORT: u16 = 26379;

fn no_server(scheme: &str) -> Error {
    let (example, rest) = match scheme.split_once('+') {
        Some((_, "cluster")) => ("HOST:PORT,HOST:PORT", "password"),
        Some((_, "sentinel")) => ("HOST:PORT,HOST:PORT/SERVICE/DB", "password and database"),
        _ => ("HOST:PORT/DB", "password, port and database"),
    };
    Error::invalid_input(format!(
        "the {scheme} URL names no server; write {scheme}://USER:PASSWORD@{example}; user, {rest} may be left out; \
         percent-encode special characters of the password"
    ))
}

fn database(scheme: &str, number: &str) -> Result<i64> {
    if number.is_empty() {
        return Ok(0);
    }
    number.parse().map_err(|_| {
        Error::invalid_input(format!(
            "the database of the {scheme} URL is not a number; Redis numbers its databases from 0"
        ))
    })
}

fn login(user: Option<&str>, password: Option<&str>) -> RedisConnectionInfo {
    let mut login = RedisConnectionInfo::default();
    if let Some(user) = user {
        login = login.set_username(user);
    }
    match password {
        Some(password) => login.set_password(password),
        None => login,
    }
}

fn client(
    address: ConnectionAddr,
    login: RedisConnectionInfo,
    tls: Option<Certificates>,
) -> Result<Client> {
    let info = address.into_connection_info().map(|info| info.set_redis_settings(login));
    opened(
        info.map_err(|_| Error::invalid_input("the address is not valid for a Redis client"))?,
        tls,
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint;

    #[test]
    fn every_connection_sends_without_delay() {
        let info = "redis://h".into_connection_info().unwrap();
        let client = opened(info, None).unwrap();
        let seed = client.get_connection_info();
        for info in [seed, &endpoint::at(seed, "other", 1)] {
            assert!(info.tcp_settings().nodelay());
        }
    }
}
