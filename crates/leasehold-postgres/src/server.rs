//! Where connections are made to.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr as _;

use leasehold_core::{Error, Result};
use leasehold_driver::{Place, StoreUrl, is_loopback};
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
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
    /// The server of a URL. `drivers` are the options that the driver obeys.
    pub(crate) fn parse(
        url: &StoreUrl,
        drivers: &[(String, String)],
        mode: Option<&str>,
        authority: Option<&str>,
    ) -> Result<Self> {
        // Every part is encoded, so the driver cannot split it in another way. Its message may repeat a part of it.
        let mut config = Config::from_str(&encoded(url, drivers)?).map_err(|_| {
            Error::invalid_input(
                "the postgres URL has an option of the driver with a wrong value; write it as libpq has it, such as port=5432, \
                 connect_timeout=5 or target_session_attrs=read-write",
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
            None => (address, PORT),
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
        self.config.get_user().map(|user| config.user(user));
        self.config.get_password().map(|password| config.password(password));
        self.config.get_dbname().map(|name| config.dbname(name));
        let name = names(&config);
        Ok(Self { config, tls: self.tls.clone(), name })
    }
}

/// Without the login.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// A URL for the driver.
fn encoded(url: &StoreUrl, drivers: &[(String, String)]) -> Result<String> {
    fn part(text: &str) -> PercentEncode<'_> {
        utf8_percent_encode(text, NON_ALPHANUMERIC)
    }
    let login = match (url.user(), url.password()) {
        (None, None) => String::new(),
        (user, None) => format!("{}@", part(user.unwrap_or_default())),
        (user, Some(password)) => {
            format!("{}:{}@", part(user.unwrap_or_default()), part(password))
        }
    };
    let place = |place: &Place| format!("{}:{}", part(&place.host), place.port.unwrap_or(PORT));
    let places: Vec<_> = url.places()?.iter().map(place).collect();
    let database = part(url.path().strip_prefix('/').unwrap_or_default());
    let option = |(name, value): &(String, String)| format!("{}={}", part(name), part(value));
    let options: Vec<_> = drivers.iter().map(option).collect();
    Ok(format!("postgres://{login}{}/{database}?{}", places.join(","), options.join("&")))
}

/// The port of PostgreSQL.
const PORT: u16 = 5432;

/// Whether all its hosts are this machine.
fn is_here(config: &Config) -> bool {
    let is_here = |host: &Host| match host {
        Host::Tcp(host) => is_loopback(host),
        #[cfg(unix)]
        Host::Unix(_) => true,
    };
    config.get_hosts().iter().all(is_here) && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

/// Its servers as messages show them.
fn names(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
    let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| match host {
        Host::Tcp(host) => format!("{host}:{}", port(at)),
        #[cfg(unix)]
        Host::Unix(path) => format!("{}:{}", path.display(), port(at)),
    });
    hosts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_url_reaches_the_driver_as_it_is() {
        for byte in 0..=255 {
            let text = format!("a{}b+", char::from(byte));
            let part: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
            for url in [
                format!("postgres://{part}:{part}@h,[::1]:7/{part}"),
                format!("postgres://h,[::1]:7/?user={part}&password={part}&dbname={part}"),
            ] {
                let mut url = StoreUrl::parse(&url).unwrap();
                let drivers = url.take_these(&["user", "password", "dbname"]);
                let config = Config::from_str(&encoded(&url, &drivers).unwrap()).unwrap();
                assert_eq!(config.get_user(), Some(&*text));
                assert_eq!(config.get_password(), Some(text.as_bytes()));
                assert_eq!(config.get_dbname(), Some(&*text));
                assert_eq!(names(&config), "h:5432, ::1:7");
            }
        }
    }
}
