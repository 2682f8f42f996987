//! What a server must be so that a connection to it is used.

use leasehold_core::{Error, Result};
use redis::{Pipeline, Value};

use super::ConnectionOptions;
use super::open::Connected;
use crate::durability::Settings;
use crate::error;

/// The oldest version of a server, and of a cluster node, on which scripts must access many slots.
const LEAST: [u64; 3] = [7, 0, 0];
const LEAST_IN_CLUSTER: [u64; 3] = [7, 0, 7];

/// Whether the server is a node of a cluster; false if it does not report it.
pub(crate) async fn is_in_cluster(connected: &mut Connected) -> redis::RedisResult<bool> {
    let mut query = redis::cmd("INFO");
    query.arg("cluster");
    match connected.ask(&query).await?.extract_error() {
        Ok(reply) => Ok(information(&reply).get("cluster_enabled").is_some_and(|set| set == "1")),
        Err(_) => Ok(false),
    }
}

/// Refuses a server on which no lock is safe.
pub(crate) async fn fit(
    connected: &mut Connected,
    name: &str,
    options: &ConnectionOptions,
) -> redis::RedisResult<Result<()>> {
    let mut query = Pipeline::with_capacity(2);
    query.cmd("INFO").add_command(query_settings()).ignore_errors();
    let mut replies = connected.ask_all(&query, 2).await?.into_iter();
    let info = replies.next().as_ref().map(information).unwrap_or_default();
    let config = replies.next().as_ref().map(settings).unwrap_or_default();
    Ok(refuse(name, &info, &config, options).map(drop))
}

/// Refuses a server on which no lock is safe; else its policy of eviction, if it shows it.
pub(crate) fn refuse<'a>(
    name: &str,
    info: &'a Settings,
    config: &'a Settings,
    options: &ConnectionOptions,
) -> Result<Option<&'a str>> {
    let least = if options.in_cluster { LEAST_IN_CLUSTER } else { LEAST };
    if version(info).is_some_and(|version| version < least) {
        return Err(error::too_old(name));
    }
    let policy = config.get("maxmemory-policy").or_else(|| info.get("maxmemory_policy"));
    match policy.map(String::as_str) {
        Some(policy) if policy != "noeviction" && !options.allow_eviction => {
            Err(Error::incompatible(format!(
                "{name} has maxmemory-policy {policy}, so it may evict a lock and let a second holder in; set it to \
                 noeviction, or, if you accept that, add allow_eviction=1 to the URL"
            )))
        }
        policy => Ok(policy),
    }
}

/// Queries the settings that matter.
pub(crate) fn query_settings() -> redis::Cmd {
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("maxmemory-policy").arg("appendfsync").arg("no-appendfsync-on-rewrite");
    config
}

/// The version that a server reports.
pub(crate) fn version(info: &Settings) -> Option<[u64; 3]> {
    let mut numbers = info.get("redis_version")?.split('.').map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)])
}

/// The lines `name:value` of INFO.
pub(crate) fn information(reply: &Value) -> Settings {
    let text = match reply {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    };
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The pairs of CONFIG GET.
pub(crate) fn settings(reply: &Value) -> Settings {
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    match reply {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (text(name), text(value))).collect(),
        Value::Array(flat) => {
            flat.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
        }
        _ => Settings::new(),
    }
}
