//! The server or servers that a URL names.

use std::fmt;

use leasehold_core::{Error, Result};
use leasehold_driver::StoreUrl;
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

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

/// Parses the address of a URL.
pub(crate) fn deployment(
    scheme: &str,
    address: &str,
    options: &mut StoreUrl,
) -> Result<Deployment> {
    let tls = tls::of_url(scheme, options)?;
    let (transport, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
    let open = |address: &str| {
        let info = address.into_connection_info().map_err(|_| no_server(scheme))?;
        opened(info, tls.clone())
    };
    Ok(match kind {
        "cluster" => {
            let (login, hosts, path) = parts(address).ok_or_else(|| no_server(scheme))?;
            if !matches!(path, "" | "0") {
                return Err(Error::invalid_input(format!(
                    "the {scheme} URL names a database; a Redis Cluster has only database 0"
                )));
            }
            let nodes = hosts.map(|host| open(&format!("{transport}://{login}{host}")));
            Deployment::Cluster(nodes.collect::<Result<_>>()?)
        }
        "sentinel" => {
            let (login, hosts, path) = parts(address).ok_or_else(|| no_server(scheme))?;
            let (service, db) = path.split_once('/').unwrap_or((path, ""));
            let service = percent_encoding::percent_decode_str(service).decode_utf8_lossy();
            if service.is_empty() {
                return Err(Error::invalid_input(format!(
                    "the {scheme} URL does not name the master; write {scheme}://HOST:PORT/SERVICE"
                )));
            }
            let server = open(&format!("{transport}://{login}localhost/{db}"))?;
            let [user, pass] = ["sentinel_user", "sentinel_pass"]
                .map(|name| options.take(name).map(|text| masked(&text)));
            let login = match (user, pass) {
                (None, None) => String::new(),
                (user, Some(pass)) => format!("{}:{pass}@", user.unwrap_or_default()),
                (Some(_), None) => {
                    return Err(Error::invalid_input(format!(
                        "the {scheme} URL has sentinel_user without sentinel_pass"
                    )));
                }
            };
            let sentinels = hosts.map(|host| {
                let port = if has_port(host) { "" } else { ":26379" };
                open(&format!("{transport}://{login}{host}{port}"))
            });
            Deployment::One(Endpoint::Sentinel(Sentinel {
                sentinels: sentinels.collect::<Result<_>>()?,
                service: service.into_owned(),
                server: server.get_connection_info().clone(),
            }))
        }
        "unix" => Deployment::One(Endpoint::Server(open(&unix(address, options)?)?)),
        _ => Deployment::One(Endpoint::Server(open(address)?)),
    })
}

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

/// `LOGIN@`, the hosts, and the path of an address with several servers.
fn parts(address: &str) -> Option<(&str, impl Iterator<Item = &str> + Clone, &str)> {
    let (_, rest) = address.split_once("://")?;
    let (servers, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, hosts) = servers.split_at(servers.rfind('@').map_or(0, |at| at + 1));
    let hosts = hosts.split(',');
    if hosts.clone().any(str::is_empty) { None } else { Some((login, hosts, path)) }
}

fn has_port(host: &str) -> bool {
    // An IPv6 address has its colons in brackets.
    host.rsplit_once(']').map_or(host, |(_, port)| port).contains(':')
}

fn masked(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
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

/// Converts to the driver's own scheme and options.
fn unix(address: &str, options: &mut StoreUrl) -> Result<String> {
    let path = address.split_once("://").map_or("", |(_, path)| path);
    if !path.starts_with('/') {
        return Err(Error::invalid_input(
            "the redis+unix URL has no path; write redis+unix:///PATH, for example redis+unix:///run/redis.sock",
        ));
    }
    let own = ["db", "user", "pass"].into_iter().filter_map(|name| {
        let value = options.take(name)?;
        Some(format!("{name}={}", masked(&value)))
    });
    let own: Vec<_> = own.collect();
    Ok(format!("redis+unix://{path}?{}", own.join("&")))
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
