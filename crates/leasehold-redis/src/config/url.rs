//! The configuration of a URL.

use leasehold_core::{Error, Result};
use leasehold_driver::{Place, StoreUrl};
use redis::{Client, ConnectionAddr, IntoConnectionInfo as _, RedisConnectionInfo};

use super::RedisConfig;
use crate::endpoint::{Endpoint, Endpoints, Sentinel, opened};
use crate::tls::{self, Certificates};

impl RedisConfig {
    /// The schemes of its URLs.
    pub const SCHEMES: &[&str] = &[
        "redis",
        "rediss",
        "redis+unix",
        "redis+cluster",
        "rediss+cluster",
        "redis+sentinel",
        "rediss+sentinel",
    ];

    const OPTIONS: &[&str] = &[
        "timeout",
        "prefix",
        "durable",
        "max_ttl",
        "quarantine",
        "replicas",
        "allow_eviction",
        "client_name",
        "ca",
        "cert",
        "key",
    ];
    /// Parses a URL:
    ///
    /// - `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]`, `rediss://…` with TLS, or `redis+unix:///PATH`: one server;
    /// - `redis+cluster://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]…]`: one or more nodes of a cluster;
    /// - `redis+sentinel://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]…]/SERVICE[/DB]`: the sentinels (port 26379)
    ///   and the login at the servers.
    ///
    /// The last two have TLS as `rediss+cluster` and `rediss+sentinel`. The options:
    ///
    /// - `timeout`: the limit of one exchange, such as `5s`; `prefix`: put before every key;
    /// - `durable=1`: see [`durable`](RedisConfig::durable);
    /// - `max_ttl`: a duration; see [`max_ttl`](RedisConfig::max_ttl);
    /// - `quarantine`: a duration; see [`quarantine`](RedisConfig::quarantine);
    /// - `replicas`: a number; see [`replicas`](RedisConfig::replicas);
    /// - `client_name`: see [`client_name`](RedisConfig::client_name);
    /// - `allow_eviction=1`: see [`allow_eviction`](RedisConfig::allow_eviction);
    /// - with TLS, `ca`: the path of a private authority's certificate in PEM; `cert` and `key`: those of the
    ///   client's own certificate;
    /// - with `redis+unix`, also `db`, `user` and `pass`;
    /// - with Sentinel, also `sentinel_user` and `sentinel_pass`: the login at the sentinels.
    ///
    /// # Errors
    /// `InvalidInput` for another scheme, no server, an unknown option or a wrong value, or a file that cannot be
    /// read. No message repeats the URL, which may contain a password.
    pub fn parse(url: &str) -> Result<Self> {
        let mut options = StoreUrl::parse(url)?;
        if !Self::SCHEMES.contains(&options.scheme()) {
            return Err(Error::invalid_input(format!(
                "the URL of a Redis store begins with one of {}://",
                Self::SCHEMES.join("://, ")
            )));
        }
        let mut config = Self::new(endpoints(&mut options)?);
        if let Some(timeout) = options.take_duration("timeout")? {
            config.timeout = timeout;
        }
        if let Some(prefix) = options.take("prefix") {
            config.prefix = prefix;
        }
        if let Some(quarantine) = options.take_duration("quarantine")? {
            config.quarantine = Some(quarantine);
        }
        let number = |text: &str| text.parse().ok();
        if let Some(replicas) = options.take_parsed("replicas", "a number", number)? {
            config.replicas = replicas;
        }
        if let Some(max_ttl) = options.take_duration("max_ttl")? {
            config.max_ttl = Some(max_ttl);
        }
        config.client_name = options.take("client_name");
        config.durable = options.take_flag("durable")?;
        config.allow_eviction = options.take_flag("allow_eviction")?;
        options.finish(Self::OPTIONS)?;
        config.check()?;
        Ok(config)
    }
}

/// The server or servers of a URL. Takes the options for the connection.
fn endpoints(url: &mut StoreUrl) -> Result<Endpoints> {
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
            Endpoints::Cluster(servers(PORT, &login)?)
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
            Endpoints::One(Endpoint::Sentinel(Sentinel { sentinels, service, server }))
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
            Endpoints::One(Endpoint::Server(client(address, login, None)?))
        }
        _ => {
            if url.places()?.len() > 1 {
                return Err(Error::invalid_input(format!(
                    "the {scheme} URL names several servers; write {scheme}+cluster:// for a Redis Cluster, or \
                     {scheme}+sentinel:// for sentinels"
                )));
            }
            let login = login.set_db(database(&scheme, path)?);
            Endpoints::One(Endpoint::Server(servers(PORT, &login)?.swap_remove(0)))
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

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use std::time::Duration;

    use super::*;

    #[test]
    fn urls_are_parsed() {
        let config = RedisConfig::parse(
            "redis://u:hunter2@h:7000/3?timeout=250ms&prefix=a%3A&quarantine=60s&allow_eviction=1",
        )
        .unwrap();
        assert_eq!(config.timeout, Duration::from_millis(250));
        assert_eq!((config.prefix.as_str(), config.allow_eviction), ("a:", true));
        assert_eq!(config.quarantine, Some(Duration::from_secs(60)));
        assert_eq!(config.endpoints.to_string(), "h:7000");
        let settings = login(&config);
        assert_eq!((settings.db(), settings.password()), (3, Some("hunter2")));
        assert!(!format!("{config:?}").contains("hunter2"));
        let config = RedisConfig::parse("redis+unix:///run/r.sock?db=2&pass=p%26w").unwrap();
        assert_eq!(config.endpoints.to_string(), "/run/r.sock");
        let settings = login(&config);
        assert_eq!((settings.db(), settings.password()), (2, Some("p&w")));
        assert_eq!(RedisConfig::parse("rediss://h").unwrap().endpoints.to_string(), "h:6379");
    }

    #[test]
    fn urls_of_many_servers_are_parsed() {
        let config = RedisConfig::parse("redis+cluster://u:hunter2@h1:7000,h2/?replicas=1");
        let config = config.unwrap();
        assert_eq!(config.endpoints.to_string(), "the cluster of h1:7000, h2:6379");
        assert_eq!((config.replicas, login(&config).password()), (1, Some("hunter2")));
        let config = RedisConfig::parse(
            "redis+sentinel://:hunter2@h1,[::1]:7000/my%20job/2?sentinel_user=s&sentinel_pass=p%40w",
        )
        .unwrap();
        let named = "the master \"my job\" of the sentinels h1:26379, ::1:7000";
        assert_eq!(config.endpoints.to_string(), named);
        let Endpoints::One(Endpoint::Sentinel(sentinel)) = &config.endpoints else {
            panic!("{config:?}")
        };
        let server = sentinel.server.redis_settings();
        assert_eq!((server.db(), server.password()), (2, Some("hunter2")));
        let login = sentinel.sentinels[1].get_connection_info().redis_settings();
        assert_eq!((login.username(), login.password()), (Some("s"), Some("p@w")));
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    /// The login at the first server.
    fn login(config: &RedisConfig) -> redis::RedisConnectionInfo {
        let client = match &config.endpoints {
            Endpoints::One(Endpoint::Server(client)) => client,
            Endpoints::Cluster(nodes) => &nodes[0],
            Endpoints::One(Endpoint::Sentinel(_)) => panic!("{config:?}"),
        };
        client.get_connection_info().redis_settings().clone()
    }

    #[test]
    fn errors_name_the_mistake_and_no_secret() {
        for (url, fragment) in [
            ("postgres://h", "begins with one of"),
            ("redis:h", "cannot be parsed"),
            ("redis://h1,h2", "several servers"),
            ("redis://h/x", "not a number"),
            ("redis://u:hunter2@:x", "cannot be parsed"),
            ("redis://u:hunter2@", "names no server"),
            ("redis://:hunter2@h/?ttl=1", "unknown option \"ttl\""),
            ("redis://:hunter2@h/?allow_eviction=yes", "0 or 1"),
            ("redis://:hunter2@h/?timeout=5", "must be a duration"),
            ("redis://:hunter2@h/?timeout=1us", "at least 1 ms"),
            ("redis://:hunter2@h/?ca=/x", "cannot be read"),
            ("rediss://:hunter2@h/?cert=/dev/null", "only one of cert and key"),
            ("redis://:hunter2@h/?ca=/dev/null", "not use TLS"),
            ("redis+unix://sock", "has no path"),
            ("redis://h/?prefix=%0a", "control characters"),
            ("redis://h/?replicas=all", "must be a number"),
            ("redis://h/?client_name=a%20b", "without spaces"),
            ("redis+cluster://:hunter2@", "names no server"),
            ("redis+cluster://:hunter2@a,,b", "cannot be parsed"),
            ("redis+cluster://:hunter2@a/1", "only database 0"),
            ("redis+sentinel://:hunter2@a", "the master"),
            ("redis+sentinel://:hunter2@a/m?sentinel_user=u", "without sentinel_pass"),
        ] {
            let error = RedisConfig::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            let text = format!("{error} {error:?}");
            assert!(text.contains(fragment) && !text.contains("hunter2"), "{url}: {text}");
        }
    }
}
