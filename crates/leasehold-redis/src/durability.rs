//! Whether a server forgets what it has acknowledged: what its settings show, and what only its operator knows.

use std::collections::HashMap;
use std::time::Duration;

use leasehold_core::{Error, Health, Level, Result};

/// What a server reports about itself, by name.
pub(crate) type Settings = HashMap<String, String>;

/// What makes a server write durably.
const DURABLE: &str = "appendonly yes, appendfsync always and no-appendfsync-on-rewrite no";

/// What the caller of the store states about its servers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statement {
    /// No process ever granted on this data without durable writes.
    pub(crate) durable: bool,
    /// For how long after its start a server grants nothing.
    pub(crate) quarantine: Duration,
    /// The longest term that may have been granted before a server's start.
    pub(crate) max_ttl: Duration,
}

/// Lowers the level of a server that may forget. `config` is what CONFIG GET shows.
///
/// # Errors
/// `Incompatible` if the settings contradict the statement.
pub(crate) fn judge(
    health: &mut Health,
    name: &str,
    info: &Settings,
    config: &Settings,
    statement: Statement,
) -> Result<()> {
    health.quarantine = if statement.durable { Duration::ZERO } else { statement.quarantine };
    if let Some(fault) = forgets(info, config) {
        if statement.durable {
            return Err(Error::incompatible(format!(
                "the URL of {name} sets durable=1, but {name} {fault}; leave durable=1 out, or set {DURABLE}, \
                 and wait for the longest term"
            )));
        }
        lower(
            health,
            format!("{name} may lose acknowledged leases in a crash: it {fault}; set {DURABLE}"),
        );
        return Ok(());
    }
    if is_rewriting(info, statement.durable) {
        lower(
            health,
            format!(
                "{name} is rewriting its append-only file; if it has just been switched on, a crash loses all leases \
                 until this is done"
            ),
        );
        return Ok(());
    }
    let unknown = ["appendfsync", "no-appendfsync-on-rewrite"]
        .into_iter()
        .filter(|setting| !config.contains_key(*setting))
        .collect::<Vec<_>>();
    if !unknown.is_empty() {
        let unknown = unknown.join(" and ");
        if !statement.durable {
            lower(
                health,
                format!(
                    "{name} does not show {unknown} (CONFIG GET), so it may lose acknowledged leases in a crash"
                ),
            );
            return Ok(());
        }
        health
            .hazards
            .push(format!("{name} does not show {unknown}: durable=1 in its URL was not checked"));
    }
    health.durable = statement.durable;
    if !statement.durable {
        since_start(health, name, info, statement);
    }
    Ok(())
}

/// What was granted before the start may be forgotten, and is over after the longest term.
fn since_start(health: &mut Health, name: &str, info: &Settings, statement: Statement) {
    let Statement { quarantine, max_ttl, .. } = statement;
    let uptime = info.get("uptime_in_seconds").and_then(|seconds| seconds.parse().ok());
    // The first second is counted from when it was full.
    let uptime = Duration::from_secs(uptime.unwrap_or(0_u64).saturating_sub(1));
    let add = "add durable=1 to its URL if no process on its data ever granted without appendfsync always";
    if quarantine < max_ttl && uptime < max_ttl {
        lower(
            health,
            format!(
                "{name} started {} s ago and may have forgotten leases of terms up to {max_ttl:?} (max_ttl); \
                 wait, or {add}",
                uptime.as_secs(),
            ),
        );
        return;
    }
    if health.level > Level::BestEffort {
        health.level_max_ttl = Some(quarantine.max(max_ttl));
    }
    if quarantine < max_ttl {
        health.hazards.push(format!(
            "for terms above {max_ttl:?} (max_ttl) the level is L0: {name} may have forgotten such leases at its last \
             start; {add}"
        ));
    }
}

/// How the server loses acknowledged writes in a crash, if it is known to.
fn forgets(info: &Settings, config: &Settings) -> Option<String> {
    if info.get("aof_enabled").is_none_or(|set| set != "1") {
        return Some("writes no append-only file (appendonly no)".to_owned());
    }
    let fault = |name: &str, good: &str| {
        let set = config.get(name).filter(|set| *set != good)?;
        Some(format!("has {name} {set}, not {good}"))
    };
    fault("appendfsync", "always").or_else(|| fault("no-appendfsync-on-rewrite", "no"))
}

/// Whether the append-only file may be written for the first time since it was switched on: until that is done, it
/// lacks everything. A rewrite of a file that is already whole loses nothing, but looks the same, except while the
/// process has not completed any.
fn is_rewriting(info: &Settings, was_always_on: bool) -> bool {
    let is_set = |name: &str, value: &str| info.get(name).is_some_and(|set| set == value);
    let is_rewriting =
        is_set("aof_rewrite_in_progress", "1") || is_set("aof_rewrite_scheduled", "1");
    is_rewriting && (!was_always_on || is_set("aof_base_size", "0"))
}

/// Lowers the level to L0.
pub(crate) fn lower(health: &mut Health, hazard: String) {
    health.level = Level::BestEffort;
    health.level_max_ttl = None;
    health.hazards.push(hazard);
}
