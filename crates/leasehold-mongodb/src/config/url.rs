//! The configuration in a URL.

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{Error, Result};
use leasehold_driver::StoreUrl;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{MongodbConfig, Source};

/// Options of the store's own.
const OPTIONS: &[&str] =
    &["collection", "timeout", "skew", "forget_after", "max_holders", "allow_sharded"];
/// Options that the driver obeys.
const DRIVERS: &[&str] = &[
    "appName",
    "authMechanism",
    "authMechanismProperties",
    "authSource",
    "compressors",
    "connectTimeoutMS",
    "directConnection",
    "heartbeatFrequencyMS",
    "loadBalanced",
    "localThresholdMS",
    "maxConnecting",
    "maxIdleTimeMS",
    "maxPoolSize",
    "minPoolSize",
    "replicaSet",
    "serverMonitoringMode",
    "socketTimeoutMS",
    "srvMaxHosts",
    "srvServiceName",
    "ssl",
    "tls",
    "tlsAllowInvalidCertificates",
    "tlsAllowInvalidHostnames",
    "tlsCAFile",
    "tlsCertificateKeyFile",
    "tlsCertificateKeyFilePassword",
    "tlsInsecure",
    "uuidRepresentation",
    "zlibCompressionLevel",
];
/// Options that the store sets itself.
const OURS: &[&str] = &[
    "journal",
    "j",
    "readConcernLevel",
    "readPreference",
    "readPreferenceTags",
    "retryReads",
    "retryWrites",
    "maxStalenessSeconds",
    "serverSelectionTimeoutMS",
    "w",
    "wtimeout",
    "wtimeoutMS",
    "timeoutMS",
    "waitQueueTimeoutMS",
];

impl MongodbConfig {
    /// Parses `mongodb://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?option=value&…` or `mongodb+srv://…`, without connecting.
    /// Options are those of the driver, and `collection`, `timeout`, `skew`, `forget_after` (`never` for never),
    /// `max_holders` and `allow_sharded` (0 or 1).
    ///
    /// # Errors
    /// `InvalidInput` for a wrong URL, which no message repeats.
    pub fn parse(url: &str) -> Result<Self> {
        let mut url = StoreUrl::parse(url)?;
        if !Self::SCHEMES.contains(&url.scheme()) {
            return Err(Error::invalid_input(
                "the URL of a store for MongoDB begins with mongodb:// or mongodb+srv://",
            ));
        }
        url.refuse(OURS, "leave it out: the store sets it for every command")?;
        let database = url.path().trim_start_matches('/').to_owned();
        if database.is_empty() {
            return Err(Error::invalid_input(
                "the mongodb URL names no database; write it as mongodb://HOST/DATABASE",
            ));
        }
        let driver = driver_url(&mut url, &database)?;
        let servers = format!("{url}");
        let mut config = Self::new(Source::Url { driver, servers }, database);
        if let Some(name) = url.take("collection") {
            config.collection = name;
        }
        if let Some(timeout) = url.take_duration("timeout")? {
            config.timeout = timeout;
        }
        let skew = |text: &str| match text {
            "0" => Some(Duration::ZERO),
            text => humantime::parse_duration(text).ok(),
        };
        if let Some(skew) =
            url.take_parsed("skew", "a duration, or 0 for no client of mongo-lock", skew)?
        {
            config.skew = skew;
        }
        let after = |text: &str| match text {
            "never" => Some(None),
            text => humantime::parse_duration(text).ok().map(Some),
        };
        if let Some(after) = url.take_parsed("forget_after", "a duration, or never", after)? {
            config.forget_after = after;
        }
        let number = |text: &str| text.parse::<NonZeroU32>().ok();
        if let Some(most) = url.take_parsed("max_holders", "a number from 1 to 10000", number)? {
            config.max_holders = most;
        }
        config.allow_sharded = url.take_flag("allow_sharded")?;
        let known: Vec<_> = OPTIONS.iter().chain(DRIVERS).copied().collect();
        url.finish(&known)?;
        config.check()?;
        Ok(config)
    }
}

/// The connection string for the driver, with every part encoded again.
fn driver_url(url: &mut StoreUrl, database: &str) -> Result<String> {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let mut text = format!("{}://", url.scheme());
    if let Some(user) = url.user() {
        text += &encoded(user);
        if let Some(password) = url.password() {
            text += &format!(":{}", encoded(password));
        }
        text.push('@');
    }
    for (at, place) in url.places()?.iter().enumerate() {
        text += if at == 0 { "" } else { "," };
        text += &match &place.host {
            host if host.contains(':') => format!("[{host}]"),
            host if host.contains('/') => encoded(host),
            host => host.clone(),
        };
        if let Some(port) = place.port {
            text += &format!(":{port}");
        }
    }
    text += &format!("/{}?", encoded(database));
    for (name, value) in url.take_these(DRIVERS) {
        text += &format!("{name}={}&", encoded(&value));
    }
    Ok(text.trim_end_matches(['&', '?']).to_owned())
}
