//! The level that a server's settings support.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{Effect, Error, Health, Level, Result};
use redis::Value;

use crate::connection::Connections;
use crate::connection::fit::{information, query_settings, refuse, settings, version};
use crate::durability::{self, Settings, lower};
use crate::names::mark;
use crate::{error, scripts};

/// The version of the format that this store writes; see [`manual`](crate::manual).
const SCHEMA: u32 = 1;
/// A greater clock difference is reported.
const CLOCK_DIFFERENCE: Duration = Duration::from_millis(500);

/// Checks one server.
pub(crate) async fn check(server: &Connections) -> Result<Health> {
    let commands =
        vec![redis::cmd("TIME"), redis::cmd("INFO"), query_settings(), query_commands(server)];
    let sent = now_micros();
    let mut replies = server.query(commands).await?.into_iter();
    let answered = now_micros();
    let clock = clock_difference(sent, answered, replies.next());
    let info = match replies.next() {
        Some(Value::ServerError(refused)) => return Err(refused_by(server, &refused)),
        Some(reply) => information(&reply),
        None => return Err(error::unexpected(server.server(), "no INFO")),
    };
    // A server may deny, rename or lack it.
    let config = replies.next().as_ref().map(settings).unwrap_or_default();
    let mut health = judge(server, &info, &config, clock)?;
    judge_commands(server, replies.next(), &mut health)?;
    Ok(health)
}

fn query_commands(server: &Connections) -> redis::Cmd {
    let mut eval = redis::cmd("EVAL");
    let waits = u8::from(server.options().replicas > 0);
    let slot = server.options().in_cluster.then_some(0);
    eval.arg(&scripts::CHECK.text).arg(0).arg(waits).arg(&*mark(slot));
    eval
}

/// Refuses a server without the commands that operations need.
fn judge_commands(server: &Connections, reply: Option<Value>, health: &mut Health) -> Result<()> {
    let name = server.server();
    let reply = match reply {
        // It only asks.
        Some(Value::ServerError(refused)) => {
            return Err(refused_by(server, &refused).with_effect(Effect::NotApplied));
        }
        Some(reply) => redis::from_redis_value::<[Vec<String>; 3]>(reply).ok(),
        None => None,
    };
    let [lacking, silent, mut denied] =
        reply.ok_or_else(|| error::unexpected(name, "to the question for commands"))?;
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
    // Of the plain key and of the record.
    denied.dedup();
    if !denied.is_empty() {
        health.hazards.push(format!(
            "the user may not run {} on {name}, and what needs that fails; https://docs.rs/leasehold-redis lists \
             the least privileges",
            denied.join(", ")
        ));
    }
    Ok(())
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
    let reported = |name: &str| info.get(name).map_or("", String::as_str);
    if reported("role") != "master" {
        // It may become the master.
        return Err(Error::unavailable(
            Effect::NotApplied,
            format!("{name} is a replica, which cannot lock; give the address of its master"),
        ));
    }
    let mut health = Health::new(Level::Fenced);
    health.schema = Some(SCHEMA);
    health.server = Some(software(info));
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
    let has_had_replicas = reported("connected_slaves") != "0"
        || reported("second_repl_offset") != "-1"
        || reported("repl_backlog_active") != "0";
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

/// The software and its version. A fork of Redis reports the version that it is compatible with beside its own.
fn software(info: &Settings) -> String {
    let version = |name: &str| info.get(&format!("{name}_version")).map_or("", String::as_str);
    match info.get("server_name").map(String::as_str) {
        Some(name) if name != "redis" && !version(name).is_empty() => {
            format!("{name} {}", version(name))
        }
        _ => format!("Redis {}", version("redis")),
    }
}

/// How far the server's clock is ahead of ours, in microseconds, if it reported it: at least this much, however long
/// the way took.
fn clock_difference(sent: u64, answered: u64, reply: Option<Value>) -> Option<i64> {
    let Some(Value::Array(parts)) = reply else { return None };
    let number = |at: usize| match parts.get(at) {
        Some(Value::BulkString(text)) => std::str::from_utf8(text).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    let theirs = number(0)?.checked_mul(1_000_000)?.checked_add(number(1)?)?;
    let ours = theirs.clamp(sent, answered.max(sent));
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
