use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::tally::{self, majority};
use leasehold_core::{Effect, Error, ErrorKind, Health, Level, Result, Store};

use crate::inner::Inner;
use crate::node::Node;

impl Inner {
    /// Checks every node; a minority may be down.
    pub(crate) async fn check(self: &Arc<Self>) -> Result<Health> {
        let round = self.ask_all("check", |node| async move { node.store.check().await }).await;
        let reports = round.reports(|_| Vec::new());
        let refuse =
            |message: String| Err(Error::incompatible(message).with_nodes(reports.clone()));
        let (mut found, mut hazards) = (Vec::new(), self.shape());
        for (node, answer) in self.nodes.iter().zip(round.answers.iter().flatten()) {
            match answer {
                Ok(health) => found.push((node, health)),
                Err(error) if error.kind() == ErrorKind::Incompatible => {
                    return refuse(format!("the node {:?}: {error}", node.name));
                }
                Err(error) => hazards.push(format!(
                    "the node {:?} did not answer ({error}), so the quorum tolerates one failure less",
                    node.name
                )),
            }
        }
        if found.len() < majority(self.nodes.len()) {
            return Err(round.failure(Effect::NotApplied, reports));
        }
        if let Some(fault) = self.fault(&found) {
            return refuse(fault);
        }
        for (node, _) in &found {
            node.servers.forget(&node.name);
        }
        for (node, health) in &found {
            if let Some(identity) = &health.identity {
                node.servers.other(identity, &node.name);
            }
        }
        let each = || found.iter().map(|(_, health)| health);
        for (node, health) in &found {
            hazards
                .extend(health.hazards.iter().map(|hazard| format!("{:?}: {hazard}", node.name)));
        }
        let mut health =
            Health::new(tally::level(each().map(|health| health.level), self.can.tokens));
        let longest = each().filter_map(|health| health.level_max_ttl).min();
        let is_limit =
            |longest: &Duration| *longest < self.limits.max_ttl && health.level > Level::BestEffort;
        health.level_max_ttl = longest.filter(is_limit);
        health.hazards = hazards;
        health.schema = each().map(|health| health.schema).min().flatten();
        health.clock_difference_us = each()
            .filter_map(|health| health.clock_difference_us)
            .max_by_key(|by| by.unsigned_abs());
        health.durable = each().all(|health| health.durable);
        health.quarantine = each().map(|health| health.quarantine).min().unwrap_or_default();
        let mut identities: Vec<_> =
            each().filter_map(|health| health.identity.as_deref()).collect();
        identities.sort_unstable();
        health.identity = (identities.len() == self.nodes.len())
            .then(|| format!("quorum of {}", identities.join(", ")));
        Ok(health)
    }

    /// Prepares every node.
    pub(crate) async fn prepare(self: &Arc<Self>) -> Result<()> {
        let round = self.ask_all("prepare", |node| async move { node.store.prepare().await }).await;
        let Some(error) = round.answers.iter().flatten().find_map(|answer| answer.as_ref().err())
        else {
            return Ok(());
        };
        // A node without its tables would stay down, so every node counts here.
        let kind = tally::lasting_failure(&round.answers);
        let kind = kind.or((!error.is_retryable()).then(|| error.kind()));
        let reports = round.reports(|_| Vec::new());
        Err(crate::round::failure("prepare", kind, Effect::Unknown, reports))
    }

    /// Hazards from the number of nodes.
    fn shape(&self) -> Vec<String> {
        let count = self.nodes.len();
        let survives = count - majority(count);
        let mut hazards = Vec::new();
        if count % 2 == 0 {
            hazards.push(format!(
                "{count} nodes tolerate the failure of {survives}, no more than {} nodes do; use an odd number",
                count - 1
            ));
        }
        if count < 3 {
            hazards.push(format!("{count} node(s) tolerate no failure; use at least 3"));
        }
        hazards
    }

    /// Why these nodes cannot form a quorum, if so.
    fn fault(&self, found: &[(&Node, &Health)]) -> Option<String> {
        let mut servers = HashMap::new();
        for (node, health) in found {
            let name = &node.name;
            if let Some(identity) = &health.identity {
                if let Some(other) = servers.insert(identity, name) {
                    return Some(one_server(other, name, identity));
                }
            }
            let fault = unfit(name, health, self.limits.max_ttl, self.can.tokens);
            if fault.is_some() {
                return fault;
            }
        }
        None
    }
}

pub(crate) fn one_server(one: &str, other: &str, identity: &str) -> String {
    format!(
        "the nodes {one:?} and {other:?} are the same server ({identity}), which would count twice; use different \
         servers"
    )
}

/// Why a node cannot take part, if so.
pub(crate) fn unfit(
    name: &str,
    health: &Health,
    max_ttl: Duration,
    fenced: bool,
) -> Option<String> {
    if health.fails_over {
        return Some(format!(
            "the node {name:?} can fail over to a replica without its last writes, and so lose leases; use servers \
             without replicas"
        ));
    }
    if !health.durable && health.quarantine < max_ttl {
        return Some(format!(
            "the node {name:?} may lose leases at a restart and would then grant at once; set its option quarantine, \
             which is {:?}, to at least {max_ttl:?} (max_ttl), or make its writes durable (on Redis, with durable=1 \
             in its URL)",
            health.quarantine
        ));
    }
    (fenced && !health.durable).then(|| {
        format!(
            "the node {name:?} may lose tokens at a restart, and the option fenced needs durable writes on every \
             node (on Redis, with durable=1 in its URL)"
        )
    })
}
