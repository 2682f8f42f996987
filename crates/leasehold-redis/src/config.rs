use std::fmt;
use std::path::Path;
use std::time::Duration;

use leasehold_core::{Error, Result, table};
use leasehold_driver::StoreUrl;
use redis::{ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};

use crate::RedisStore;
use crate::connection::Connections;
use crate::names::Names;
use crate::store::NAME;

/// Which server, and how it is used.
///
/// ```
/// use leasehold_redis::RedisConfig;
/// use std::time::Duration;
///
/// let config = RedisConfig::from_url("redis://locker@10.0.0.7:6379/0?prefix=app:&timeout=2s")?
///     .quarantine(Duration::from_secs(60));
/// assert!(RedisConfig::from_url("redis://h/?ttl=1").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone)]
pub struct RedisConfig {
    client: redis::Client,
    timeout: Duration,
    prefix: String,
    forget_after: Option<Duration>,
    quarantine: Option<Duration>,
    allow_eviction: bool,
}

impl RedisConfig {
    /// The time limit of one exchange, unless said otherwise: 5 s.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
    /// The schemes of its URLs.
    pub const SCHEMES: &[&str] = &["redis", "rediss", "redis+unix"];

    const OPTIONS: &[&str] =
        &["timeout", "prefix", "quarantine", "allow_eviction", "ca", "cert", "key"];
    const MAX_PREFIX: usize = 255;

    /// A client of your own: its address, login and TLS settings. Connections are made from it, with RESP3.
    ///
    /// # Errors
    /// `InvalidInput` if the driver does not take its own settings again.
    pub fn client(client: &redis::Client) -> Result<Self> {
        Self::new(client.get_connection_info().clone(), None)
    }

    fn new(info: ConnectionInfo, tls: Option<TlsCertificates>) -> Result<Self> {
        let settings = info.redis_settings().clone().set_protocol(redis::ProtocolVersion::RESP3);
        let info = info.set_redis_settings(settings);
        let client = match tls {
            Some(tls) => redis::Client::build_with_tls(info, tls),
            None => redis::Client::open(info),
        };
        let client = client.map_err(|e| {
            Error::invalid_input(format!("these settings make no client of Redis ({e})"))
                .with_source(e)
        })?;
        Ok(Self {
            client,
            timeout: Self::DEFAULT_TIMEOUT,
            prefix: String::new(),
            forget_after: Some(table::FORGET_AFTER),
            quarantine: None,
            allow_eviction: false,
        })
    }

    /// What a URL says: `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]`, `rediss://…` with TLS, or
    /// `redis+unix:///PATH`, with the options
    ///
    /// - `timeout`, of one exchange, such as `5s`; `prefix`, before every key;
    /// - `quarantine`, a duration: see [`quarantine`](RedisConfig::quarantine);
    /// - `allow_eviction=1`: see [`allow_eviction`](RedisConfig::allow_eviction);
    /// - of TLS `ca`, the path of a private authority's certificate in PEM, and `cert` and `key`, the client's own;
    /// - of `redis+unix` also `db`, `user` and `pass`.
    ///
    /// # Errors
    /// `InvalidInput` for another scheme, no server, an unknown option or a wrong value, or a file that cannot be read.
    /// No message repeats the URL, which may hold a password.
    pub fn from_url(url: &str) -> Result<Self> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let scheme = address.split_once(':').map_or("", |(scheme, _)| scheme).to_ascii_lowercase();
        if !Self::SCHEMES.contains(&scheme.as_str()) {
            return Err(Error::invalid_input(format!(
                "the URL of a Redis store begins with one of {}://",
                Self::SCHEMES.join("://, ")
            )));
        }
        let mut options = StoreUrl::parse(&format!("{scheme}:?{query}"))?;
        let address = match scheme.as_str() {
            "redis+unix" => unix(address, &mut options)?,
            _ => address.to_owned(),
        };
        let info = address.as_str().into_connection_info().map_err(|_| {
            Error::invalid_input(format!(
                "the {scheme} URL names no server; write {scheme}://USER:PASSWORD@HOST:PORT/DB, where user, password, \
                 port and database may be left out, and mask special characters of the password with %"
            ))
        })?;
        let tls = tls(&scheme, &mut options)?;
        let mut config = Self::new(info, tls)?;
        if let Some(timeout) = options.take_duration("timeout")? {
            config.timeout = timeout;
        }
        if let Some(prefix) = options.take("prefix") {
            config.prefix = prefix;
        }
        if let Some(quarantine) = options.take_duration("quarantine")? {
            config.quarantine = Some(quarantine);
        }
        match options.take("allow_eviction").as_deref() {
            None | Some("0") => {}
            Some("1") => config.allow_eviction = true,
            Some(other) => {
                return Err(Error::invalid_input(format!(
                    "the option allow_eviction of the {scheme} URL is {other:?}; it must be 0 or 1"
                )));
            }
        }
        options.finish(Self::OPTIONS)?;
        config.check()?;
        Ok(config)
    }

    /// Sets the time limit of one exchange with the server, connecting included. An operation has one exchange, but
    /// for listing and purging, which go step by step.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets what stands before every key, at most 255 bytes without control characters; nothing by default, so that
    /// keys are those of other Redlock clients.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets when the token counter of a key that nobody holds is forgotten (C7); by default after 30 days, `None` is
    /// never.
    #[must_use]
    pub fn forget_after(mut self, forget_after: Option<Duration>) -> Self {
        self.forget_after = forget_after;
        self
    }

    /// Sets for how long a server that has just started grants nothing, because it may have forgotten leases; not at
    /// all by default. In a quorum it must be the longest term. A server that writes durably needs none and ignores
    /// it. Its uptime follows its wall clock.
    #[must_use]
    pub fn quarantine(mut self, quarantine: Duration) -> Self {
        self.quarantine = Some(quarantine);
        self
    }

    /// Sets the quarantine unless it has been set, also to zero.
    #[must_use]
    pub fn or_quarantine(mut self, quarantine: Duration) -> Self {
        self.quarantine.get_or_insert(quarantine);
        self
    }

    /// Allows a server whose `maxmemory-policy` may evict locks: then two may hold one key at any time. Else it is
    /// refused as `Incompatible`.
    #[must_use]
    pub fn allow_eviction(mut self, allow: bool) -> Self {
        self.allow_eviction = allow;
        self
    }

    /// Connects. Whether the server is fit, [`check`](leasehold_core::Store::check) says.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong setting; `Unavailable` or `Denied` if the server cannot be reached or does not let
    /// us in; `Incompatible` if it does not know RESP3.
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn open(self) -> Result<RedisStore> {
        self.check().map_err(|e| e.with_context(NAME, "open"))?;
        let quarantine = self.quarantine.unwrap_or_default();
        let connections = Connections::new(self.client, self.timeout, quarantine);
        RedisStore::start(
            connections,
            Names::new(&self.prefix),
            self.forget_after,
            self.allow_eviction,
        )
        .await
    }

    fn check(&self) -> Result<()> {
        let millisecond = Duration::from_millis(1);
        if self.timeout < millisecond {
            return Err(Error::invalid_input(format!(
                "the time limit is {:?}; it must be at least 1 ms",
                self.timeout
            )));
        }
        if self.forget_after.is_some_and(|after| after < millisecond) {
            return Err(Error::invalid_input(
                "counters are to be forgotten at once; give forget_after at least 1 ms",
            ));
        }
        if self.prefix.len() > Self::MAX_PREFIX || self.prefix.chars().any(char::is_control) {
            return Err(Error::invalid_input(format!(
                "the prefix has {} bytes; at most {} without control characters are allowed",
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
            .field("server", &server_name(&self.client))
            .field("timeout", &self.timeout)
            .field("prefix", &self.prefix)
            .field("forget_after", &self.forget_after)
            .field("quarantine", &self.quarantine)
            .field("allow_eviction", &self.allow_eviction)
            .finish()
    }
}

/// The server as it is named in messages: without user and password.
pub(crate) fn server_name(client: &redis::Client) -> String {
    match client.get_connection_info().addr() {
        ConnectionAddr::Unix(path) => path.display().to_string(),
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            format!("{host}:{port}")
        }
        _ => "the server".to_owned(),
    }
}

/// The driver writes this scheme otherwise, and takes options of its own.
fn unix(address: &str, options: &mut StoreUrl) -> Result<String> {
    let path = address.split_once("://").map_or("", |(_, path)| path);
    if !path.starts_with('/') {
        return Err(Error::invalid_input(
            "the redis+unix URL has no path; write redis+unix:///PATH, for example redis+unix:///run/redis.sock",
        ));
    }
    let encode = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let own = ["db", "user", "pass"].into_iter().filter_map(|name| {
        let value = options.take(name)?;
        Some(format!("{name}={}", encode(&value)))
    });
    let own: Vec<_> = own.collect();
    Ok(format!("redis+unix://{path}?{}", own.join("&")))
}

/// Certificates, and the one provider of cryptography that we bring, where the program has chosen none.
fn tls(scheme: &str, options: &mut StoreUrl) -> Result<Option<TlsCertificates>> {
    let mut file = |name: &str| -> Result<Option<Vec<u8>>> {
        let Some(path) = options.take(name) else { return Ok(None) };
        let read = std::fs::read(Path::new(&path)).map_err(|e| {
            Error::invalid_input(format!(
                "the file {path} of the option {name} cannot be read ({e})"
            ))
            .with_source(e)
        })?;
        Ok(Some(read))
    };
    let (ca, cert, key) = (file("ca")?, file("cert")?, file("key")?);
    if scheme != "rediss" {
        return if ca.is_some() || cert.is_some() || key.is_some() {
            Err(Error::invalid_input(format!(
                "the {scheme} URL has certificates, but no TLS; write rediss://"
            )))
        } else {
            Ok(None)
        };
    }
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Somebody else may have been quicker, which is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
    let client_tls = match (cert, key) {
        (Some(client_cert), Some(client_key)) => Some(ClientTlsConfig { client_cert, client_key }),
        (None, None) => None,
        _ => {
            return Err(Error::invalid_input(
                "the rediss URL has only one of cert and key; a certificate of the client needs both",
            ));
        }
    };
    Ok((ca.is_some() || client_tls.is_some())
        .then_some(TlsCertificates { client_tls, root_cert: ca }))
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    #[test]
    fn urls_are_understood() {
        let config = RedisConfig::from_url(
            "redis://u:hunter2@h:7000/3?timeout=250ms&prefix=a%3A&quarantine=60s&allow_eviction=1",
        )
        .unwrap();
        assert_eq!(config.timeout, Duration::from_millis(250));
        assert_eq!((config.prefix.as_str(), config.allow_eviction), ("a:", true));
        let quarantined = config.clone().or_quarantine(Duration::ZERO);
        assert_eq!(quarantined.quarantine, Some(Duration::from_secs(60)));
        assert_eq!(server_name(&config.client), "h:7000");
        let settings = config.client.get_connection_info().redis_settings();
        assert_eq!((settings.db(), settings.password()), (3, Some("hunter2")));
        assert!(!format!("{config:?}").contains("hunter2"));
        let config = RedisConfig::from_url("redis+unix:///run/r.sock?db=2&pass=p%26w").unwrap();
        assert_eq!(server_name(&config.client), "/run/r.sock");
        let settings = config.client.get_connection_info().redis_settings();
        assert_eq!((settings.db(), settings.password()), (2, Some("p&w")));
        assert_eq!(server_name(&RedisConfig::from_url("rediss://h").unwrap().client), "h:6379");
    }

    #[test]
    fn mistakes_are_named_and_secrets_are_not() {
        for (url, said) in [
            ("postgres://h", "begins with one of"),
            ("redis:h", "names no server"),
            ("redis://u:hunter2@:x", "names no server"),
            ("redis://:hunter2@h/?ttl=1", "unknown option \"ttl\""),
            ("redis://:hunter2@h/?allow_eviction=yes", "0 or 1"),
            ("redis://:hunter2@h/?timeout=5", "must be a duration"),
            ("redis://:hunter2@h/?timeout=1us", "at least 1 ms"),
            ("redis://:hunter2@h/?ca=/x", "cannot be read"),
            ("rediss://:hunter2@h/?cert=/dev/null", "only one of cert and key"),
            ("redis://:hunter2@h/?ca=/dev/null", "no TLS"),
            ("redis+unix://sock", "has no path"),
            ("redis://h/?prefix=%0a", "control characters"),
        ] {
            let error = RedisConfig::from_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            let text = format!("{error} {error:?}");
            assert!(text.contains(said) && !text.contains("hunter2"), "{url}: {text}");
        }
    }
}
