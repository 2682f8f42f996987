//! `leasehold doctor`.

use std::time::Duration;

use futures_util::future::join_all;
use leasehold::inspect::Health;
use leasehold::store::{Clock as _, SystemClock};
use leasehold::{Level, Locker};
use serde::Serialize;

use super::session::on;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::record::micros;
use crate::store::{self, Choice};

/// Questions of which the fastest is the latency.
const QUESTIONS: usize = 3;

/// What is found of a store.
#[derive(Debug, Serialize)]
struct Diagnosis {
    url: String,
    from: String,
    store: &'static str,
    server: Option<String>,
    level: String,
    relies_on: &'static str,
    schema: Option<u32>,
    latency_us: u64,
    clock_difference_us: Option<i64>,
    hazards: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<Node>,
}

/// What is found of a node of a quorum.
#[derive(Debug, Serialize)]
struct Node {
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_difference_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Diagnosis {
    fn is_healthy(&self) -> bool {
        self.hazards.is_empty() && self.nodes.iter().all(|node| node.error.is_none())
    }
}

/// Examines the store; the exit code states whether there are hazards.
pub(crate) async fn doctor(store: &Choice, json: bool) -> Result<Exit, Failure> {
    let from = store.origin();
    let store = &store.resolved()?;
    let (url, node_urls) = store.urls()?;
    let examine = async |locks: &Locker| {
        let health = locks.check().await?;
        Ok((health, latency(locks).await?, locks.capabilities().name))
    };
    let (health, latency, name) = on(store.open_existing(), examine).await?;
    let nodes = join_all(node_urls.iter().map(|url| node(url))).await;
    let diagnosis = Diagnosis {
        url: store::shown(&url),
        from,
        store: name,
        level: level(&health),
        server: health.server,
        relies_on: relies_on(health.level),
        schema: health.schema,
        latency_us: micros(latency),
        clock_difference_us: health.clock_difference_us,
        hazards: health.hazards,
        nodes,
    };
    if json {
        output::json(&diagnosis)?;
    } else {
        show(&diagnosis)?;
    }
    Ok(if diagnosis.is_healthy() { Exit::SUCCESS } else { Exit::HAZARDS })
}

async fn node(url: &str) -> Node {
    let examined = async {
        let locks = Locker::connect_unchecked(url).await?;
        let health = locks.check().await?;
        let latency = latency(&locks).await;
        // What is left ends with this process.
        drop(locks.close(Duration::from_secs(1)).await);
        Ok::<_, Failure>((latency?, health))
    };
    let url = store::shown(url);
    match examined.await {
        Ok((latency, health)) => Node {
            url,
            server: health.server,
            latency_us: Some(micros(latency)),
            clock_difference_us: health.clock_difference_us,
            error: None,
        },
        Err(failure) => Node {
            url,
            server: None,
            latency_us: None,
            clock_difference_us: None,
            error: Some(failure.to_string()),
        },
    }
}

/// How long the store takes to answer whether a key is held.
async fn latency(locks: &Locker) -> Result<Duration, Failure> {
    let clock = SystemClock::new();
    let mut best = Duration::MAX;
    for _ in 0..QUESTIONS {
        let asked = clock.now();
        locks.is_held("leasehold").await?;
        best = best.min(clock.now().saturating_sub(asked));
    }
    Ok(best)
}

/// The level in one line, with the terms for which it holds.
pub(super) fn level(health: &Health) -> String {
    health.level_max_ttl.map_or(health.level.to_string(), |max| {
        format!("{} for terms up to {}", health.level, humantime::format_duration(max))
    })
}

/// What users may rely on.
pub(super) fn relies_on(level: Level) -> &'static str {
    match level {
        Level::BestEffort => {
            "usually one holder at a time; the store may forget a lease, so work that must not be done twice needs a \
             check of its own"
        }
        Level::Lease => {
            "at most one holder at a time, as each judges it by its own clock; a holder that stops at a bad moment may \
             still write late"
        }
        Level::Fenced => {
            "at most one holder at a time, and tokens that grow: a resource that compares them refuses late writes"
        }
        Level::FencedWrite => {
            "at most one holder at a time, and writes that check its token in one transaction"
        }
    }
}

fn show(diagnosis: &Diagnosis) -> Result<(), Failure> {
    let Diagnosis { url, from, store, level, relies_on, .. } = diagnosis;
    output::line(&format!("store:     {store}, {url}, from {from}"))?;
    if let Some(server) = &diagnosis.server {
        output::line(&format!("server:    {server}"))?;
    }
    output::line(&format!("level:     {level}"))?;
    output::line(&format!("           {relies_on}"))?;
    if let Some(schema) = diagnosis.schema {
        output::line(&format!("schema:    version {schema}"))?;
    }
    output::line(&format!("latency:   {}", time(diagnosis.latency_us)))?;
    if let Some(difference) = diagnosis.clock_difference_us {
        output::line(&format!("clock:     {}", clock(difference)))?;
    }
    for node in &diagnosis.nodes {
        let state = match (&node.error, node.latency_us) {
            (Some(error), _) => error.clone(),
            (None, Some(latency)) => {
                let clock =
                    node.clock_difference_us.map(|difference| format!("; {}", clock(difference)));
                let server = node.server.as_ref().map(|server| format!("; {server}"));
                let more = [clock, server].into_iter().flatten().collect::<String>();
                format!("{}{more}", time(latency))
            }
            (None, None) => String::new(),
        };
        output::line(&format!("node:      {}: {state}", node.url))?;
    }
    for hazard in &diagnosis.hazards {
        output::line(&format!("hazard:    {hazard}"))?;
    }
    if diagnosis.is_healthy() {
        output::line("no hazards")?;
    }
    Ok(())
}

fn time(micros: u64) -> String {
    let (whole, thousandths) = (micros / 1_000, micros % 1_000);
    format!("{whole}.{thousandths:03} ms")
}

fn clock(difference: i64) -> String {
    let side = if difference < 0 { "behind" } else { "ahead of" };
    format!("{} {side} this machine's", time(difference.unsigned_abs()))
}
