//! The level that a server's settings support.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{Effect, Error, Health, Level, Result};
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};

use crate::connection::{ConnectionOptions, Connections};
use crate::durability::{self, Settings, lower};
use crate::{error, scripts};

/// The version of the format that this store writes; see [`manual`](crate::manual).
const SCHEMA: u32 = 1;
/// The oldest version of a server, and of a cluster node, on which scripts must access many slots.
const LEAST: [u64; 3] = [7, 0, 0];
const LEAST_IN_CLUSTER: [u64; 3] = [7, 0, 7];
/// A greater clock difference is reported.
const CLOCK_DIFFERENCE: Duration = Duration::from_millis(500);

/// Whether the server is a node of a cluster; false if it does not say.
pub(crate) async fn is_in_cluster(link: &mut MultiplexedConnection) -> redis::RedisResult<bool> {
    let mut ask = redis::cmd("INFO");
    ask.arg("cluster");
    match link.send_packed_command(&ask).await?.extract_error() {
        Ok(said) => Ok(information(&said).get("cluster_enabled").is_some_and(|set| set == "1")),
        Err(_) => Ok(false),
    }
}

/// Checks one server.
pub(crate) async fn check(server: &Connections) -> Result<Health> {
    let commands =
        vec![redis::cmd("TIME"), redis::cmd("INFO"), ask_for_settings(), ask_for_commands(server)];
    let asked = now_micros();
    let mut replies = server.ask(commands).await?.into_iter();
    let answered = now_micros();
    let clock = clock_difference(asked, answered, replies.next());
    let info = match replies.next() {
        Some(Value::ServerError(refused)) => return Err(refused_by(server, &refused)),
        Some(said) => information(&said),
        None => return Err(error::odd(server.server(), "no INFO")),
    };
    // A server may deny, rename or lack it.
    let config = replies.next().as_ref().map(settings).unwrap_or_default();
    let mut health = judge(server, &info, &config, clock)?;
    judge_commands(server, replies.next(), &mut health)?;
    Ok(health)
}

fn ask_for_settings() -> redis::Cmd {
    let mut config = redis::cmd("CONFIG");
    config.arg("GET").arg("maxmemory-policy").arg("appendfsync").arg("no-appendfsync-on-rewrite");
    config
}

fn ask_for_commands(server: &Connections) -> redis::Cmd {
    let mut eval = redis::cmd("EVAL");
    let waits = u8::from(server.options().replicas > 0);
    eval.arg(&scripts::CHECK.text).arg(0).arg(waits);
    eval
}

/// Refuses a server without the commands that operations need.
fn judge_commands(server: &Connections, said: Option<Value>, health: &mut Health) -> Result<()> {
    let name = server.server();
    let said = match said {
        // It only asks.
        Some(Value::ServerError(refused)) => {
            return Err(refused_by(server, &refused).with_effect(Effect::NotApplied));
        }
        Some(said) => redis::from_redis_value::<[Vec<String>; 3]>(said).ok(),
        None => None,
    };
    let [lacking, silent, denied] =
        said.ok_or_else(|| error::odd(name, "to the question for commands"))?;
    if !lacking.is_empty() {
        return Err(Error::incompatible(format!(
            "{name} has renamed or removed {}, without which operations fail; restore what \
             https://docs.rs/leasehold-redis lists",
            lacking.join(", ")
        )));
    }
    if !silent.is_empty() {
        let silent = silent.join(", ");
        health.hazards.push(format!("{name} has renamed or removed {silent}, so waiters poll"));
    }
    if !denied.is_empty() {
        health.hazards.push(format!(
            "the user may not run {} on {name}, and what needs that fails; https://docs.rs/leasehold-redis lists \
             the least privileges",
            denied.join(", ")
        ));
    }
    Ok(())
}

/// Refuses a server on which no lock is safe.
pub(crate) async fn fit(
    link: &mut MultiplexedConnection,
    name: &str,
    options: &ConnectionOptions,
) -> redis::RedisResult<Result<()>> {
    let mut ask = Pipeline::with_capacity(2);
    ask.cmd("INFO").add_command(ask_for_settings()).ignore_errors();
    let mut replies = link.send_packed_commands(&ask, 0, 2).await?.into_iter();
    let info = replies.next().as_ref().map(information).unwrap_or_default();
    let config = replies.next().as_ref().map(settings).unwrap_or_default();
    Ok(refuse(name, &info, &config, options).map(drop))
}

/// Refuses a server on which no lock is safe; else its policy of eviction, if it says so.
fn refuse<'a>(
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

/// A server with replicas guarantees no more than L0.
pub(crate) fn fails_over(health: &mut Health, name: &str) {
    health.fails_over = true;
    lower(
        health,
        format!(
            "{name} has replicas or had them until lately, and they lag: a fail-over to one of them loses the newest \
             leases"
        ),
    );
}

/// The health of two masters of a cluster together.
pub(crate) fn both(mut one: Health, other: Health) -> Health {
    let longest = [one.level_max_ttl, other.level_max_ttl].into_iter().flatten().min();
    one.level = one.level.min(other.level);
    one.level_max_ttl = longest.filter(|_| one.level > Level::BestEffort);
    one.hazards.extend(other.hazards);
    one.durable &= other.durable;
    one.fails_over |= other.fails_over;
    one.clock_difference_us = match (one.clock_difference_us, other.clock_difference_us) {
        (Some(one), Some(other)) if other.abs() <= one.abs() => Some(one),
        (one, other) => other.or(one),
    };
    one
}

fn judge(
    server: &Connections,
    info: &Settings,
    config: &Settings,
    clock: Option<i64>,
) -> Result<Health> {
    let name = server.server();
    if version(info).is_none() {
        return Err(error::too_old(name));
    }
    let policy = refuse(name, info, config, server.options())?;
    let said = |name: &str| info.get(name).map_or("", String::as_str);
    if said("role") != "master" {
        // It may become the master.
        return Err(Error::unavailable(
            Effect::NotApplied,
            format!("{name} is a replica, which cannot lock; give the address of its master"),
        ));
    }
    let mut health = Health::new(Level::Fenced);
    health.schema = Some(SCHEMA);
    health.clock_difference_us = clock;
    health.identity = info.get("run_id").map(|id| format!("redis {id}"));
    match policy {
        Some("noeviction") => {}
        None => lower(
            &mut health,
            format!("{name} does not show maxmemory-policy, so it may evict locks"),
        ),
        Some(policy) => {
            lower(&mut health, format!("{name} may evict locks (maxmemory-policy {policy})"));
        }
    }
    durability::judge(&mut health, name, info, config, server.options().statement)?;
    let has_had_replicas = said("connected_slaves") != "0"
        || said("second_repl_offset") != "-1"
        || said("repl_backlog_active") != "0";
    if server.is_chosen() || has_had_replicas {
        fails_over(&mut health, name);
    }
    if let Some(micros) =
        clock.filter(|micros| Duration::from_micros(micros.unsigned_abs()) > CLOCK_DIFFERENCE)
    {
        health.hazards.push(format!(
            "the clock of {name} differs from ours by {:?}; the server's wall clock decides terms, so stepping it \
             ends leases early or late",
            Duration::from_micros(micros.unsigned_abs())
        ));
    }
    Ok(health)
}

pub(crate) fn refused_by(server: &Connections, refused: &redis::ServerError) -> Error {
    error::of_text(server.server(), refused.code(), refused.details().unwrap_or(""))
}

/// How far the server's clock is ahead of ours, in microseconds, if it said so: at least this much, however long
/// the way took.
fn clock_difference(asked: u64, answered: u64, said: Option<Value>) -> Option<i64> {
    let Some(Value::Array(parts)) = said else { return None };
    let number = |at: usize| match parts.get(at) {
        Some(Value::BulkString(text)) => std::str::from_utf8(text).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    let theirs = number(0)?.checked_mul(1_000_000)?.checked_add(number(1)?)?;
    let ours = theirs.clamp(asked, answered.max(asked));
    i64::try_from(i128::from(theirs) - i128::from(ours)).ok()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the clock of this machine is what the server's is compared with"
)]
fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    leasehold_core::term::micros_down(since)
}

fn version(info: &Settings) -> Option<[u64; 3]> {
    let mut numbers = info.get("redis_version")?.split('.').map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)])
}

/// The lines `name:value` of INFO.
pub(crate) fn information(said: &Value) -> Settings {
    let text = match said {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    };
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The pairs of CONFIG GET.
fn settings(said: &Value) -> Settings {
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    match said {
        Value::Map(pairs) => pairs.iter().map(|(name, value)| (text(name), text(value))).collect(),
        Value::Array(flat) => {
            flat.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
        }
        _ => Settings::new(),
    }
}
