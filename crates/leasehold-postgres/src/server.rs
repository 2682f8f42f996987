//! Where connections are made to.

use std::net::IpAddr;
use std::str::FromStr as _;

use leasehold_core::{Error, Result};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use crate::tls::{self, Tls};

/// A server, or several of which one is used.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) config: Config,
    pub(crate) tls: Tls,
    /// Without the login.
    pub(crate) name: String,
}

impl Server {
    pub(crate) fn parse(url: &str, mode: Option<&str>, authority: Option<&str>) -> Result<Self> {
        // The driver's message may repeat a part of the URL.
        let mut config = Config::from_str(url).map_err(|_| {
            Error::invalid_input(
                "the postgres URL cannot be parsed; write postgres://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE, \
                 with what is special in a URL percent-encoded (@ is %40)",
            )
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(Error::invalid_input(
                "the postgres URL has no host; write postgres://HOST/DATABASE, or host=/DIRECTORY of a socket",
            ));
        }
        config.ssl_mode(match mode {
            Some("disable") => SslMode::Disable,
            Some("prefer") => SslMode::Prefer,
            Some("require" | "verify-ca" | "verify-full") => SslMode::Require,
            None if is_here(&config) => SslMode::Prefer,
            None => SslMode::Require,
            Some(other) => {
                return Err(Error::invalid_input(format!(
                    "the option sslmode is {other:?}; it must be verify-full, require, prefer or disable"
                )));
            }
        });
        if cfg!(not(feature = "tls")) && config.get_ssl_mode() == SslMode::Require {
            return Err(Error::unsupported(
                "this program was built without TLS; build it with the feature tls of leasehold-postgres, or add \
                 sslmode=disable for an unencrypted connection",
            ));
        }
        let name = names(&config);
        Ok(Self { config, tls: tls::of_authority(authority)?, name })
    }

    /// The same login at another address.
    pub(crate) fn at(&self, address: &str) -> Result<Self> {
        let (host, port) = match address.rsplit_once(':') {
            None => (address, 5432),
            Some((host, port)) => {
                let port = port.parse().map_err(|_| {
                    Error::invalid_input(format!(
                        "the option wakeups is {address:?}; it must be HOST, HOST:PORT or 0"
                    ))
                })?;
                (host, port)
            }
        };
        let mut config = Config::new();
        config.host(host).port(port).ssl_mode(self.config.get_ssl_mode());
        if let Some(user) = self.config.get_user() {
            config.user(user);
        }
        if let Some(password) = self.config.get_password() {
            config.password(password);
        }
        if let Some(database) = self.config.get_dbname() {
            config.dbname(database);
        }
        let name = names(&config);
        Ok(Self { config, tls: self.tls.clone(), name })
    }
}

/// Whether all its hosts are this machine.
fn is_here(config: &Config) -> bool {
    let is_loopback = |host: &Host| match host {
        Host::Tcp(host) => {
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    };
    config.get_hosts().iter().all(is_loopback)
        && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

/// Its servers as messages show them.
fn names(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
    let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| match host {
        Host::Tcp(host) => format!("{host}:{}", port(at)),
        #[cfg(unix)]
        Host::Unix(path) => format!("{}:{}", path.display(), port(at)),
    });
    hosts.collect::<Vec<_>>().join(", ")
}
