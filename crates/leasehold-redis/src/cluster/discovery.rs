//! Queries the nodes for the owner of each slot, and moves what listens there.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use leasehold_core::{Effect, Error, ErrorKind, Result};
use redis::Value;
use tokio::runtime::Handle;

use super::topology::Topology;
use super::{Inner, host_of};
use crate::connection::{Connections, fit};
use crate::endpoint::Endpoint;
use crate::names::slot;
use crate::{error, health, trace};

/// How long one node may take before the next is queried too.
const NEXT_NODE: Duration = Duration::from_millis(100);

impl Inner {
    pub(super) fn refresh_in_background(self: &Arc<Self>) {
        // Another caller is querying.
        if self.asking.try_lock().is_err() {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let this = Arc::downgrade(self);
            runtime.spawn(async move {
                let Some(this): Option<Arc<Self>> = Weak::upgrade(&this) else { return };
                let rounds = this.state().rounds;
                if let Err(error) = this.refresh(rounds).await {
                    trace::slots_unknown(&error);
                }
            });
        }
    }

    /// Queries the topology, unless another caller has since this round.
    pub(super) async fn refresh(self: &Arc<Self>, rounds: u64) -> Result<()> {
        let _turn = self.asking.lock().await;
        {
            let state = self.state();
            if state.rounds > rounds {
                return state.last.clone().map_or(Ok(()), Err);
            }
        }
        let found = self.query().await;
        {
            let mut state = self.state();
            state.rounds += 1;
            state.last = found.as_ref().err().cloned();
        }
        self.take(found?);
        self.move_listeners();
        Ok(())
    }

    /// Queries all known nodes and takes the first answer. Only if none answers does it ask the first ones, whose
    /// addresses may belong to others by now.
    async fn query(&self) -> Result<Topology> {
        let known: Vec<Connections> =
            self.state().nodes.values().map(|node| node.server.clone()).collect();
        match first_topology(&known).await {
            Ok(Some(topology)) => return Ok(topology),
            Ok(None) => {}
            Err(error) => trace::slots_unknown(&error),
        }
        let seeds = self.seeds.iter().map(|seed| Endpoint::Server(seed.clone()));
        let seeds: Vec<_> =
            seeds.map(|endpoint| Connections::new(endpoint, self.options.clone(), None)).collect();
        first_topology(&seeds).await?.ok_or_else(|| error::unexpected(&self.name, "no seeds"))
    }

    /// Uses this topology from now on and drops nodes without slots.
    pub(super) fn take(&self, topology: Topology) {
        let mut state = self.state();
        let masters = topology.masters();
        state.nodes.retain(|address, node| {
            masters.contains(address) || !node.subscriber.listeners().is_empty()
        });
        state.topology = topology;
    }

    /// Moves listeners to where their slots are now.
    pub(super) fn move_listeners(self: &Arc<Self>) {
        let nodes: Vec<_> = {
            let state = self.state();
            state.nodes.iter().map(|(address, node)| (Arc::clone(address), node.clone())).collect()
        };
        for (address, node) in nodes {
            for channel in node.subscriber.listeners().names() {
                let owner = self.state().topology.owner(slot(&channel)).map(Arc::clone);
                let Some(owner) = owner.filter(|owner| *owner != address) else { continue };
                let Ok(new) = self.node(&owner) else { continue };
                {
                    let _whole = self.state();
                    new.subscriber
                        .listeners()
                        .add(&channel, node.subscriber.listeners().take(&channel));
                    node.subscriber.0.subscribed().remove(&channel);
                }
                new.subscriber.heal(vec![channel]);
            }
        }
    }
}

/// The first answer to the query for the topology; if there is none, the most informative failure. The nodes are queried one
/// after the other, and no answer is awaited for long before the next is queried.
async fn first_topology(nodes: &[Connections]) -> Result<Option<Topology>> {
    let queries = nodes.iter().zip(0..).map(async |(node, at)| {
        tokio::time::sleep(NEXT_NODE * at).await;
        topology_of(node).await
    });
    let mut answers: FuturesUnordered<_> = queries.collect();
    let mut failures = Vec::new();
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(topology) => return Ok(Some(topology)),
            Err(failure) => failures.push(failure),
        }
    }
    // A refused login is more informative than an unreachable node.
    let telling = failures.iter().position(|failure| failure.kind() != ErrorKind::Unavailable);
    match failures.into_iter().nth(telling.unwrap_or_default()) {
        Some(failure) => Err(failure),
        None => Ok(None),
    }
}

/// The topology as this node sees it.
async fn topology_of(server: &Connections) -> Result<Topology> {
    let mut info = redis::cmd("CLUSTER");
    info.arg("INFO");
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let mut replies = server.query(vec![info, slots]).await?.into_iter();
    let (info, slots) = (replies.next(), replies.next());
    for reply in [&info, &slots] {
        if let Some(Value::ServerError(refused)) = reply {
            return Err(health::refused_by(server, refused));
        }
    }
    let info = info.as_ref().map(fit::information).unwrap_or_default();
    if info.get("cluster_state").is_none_or(|state| state != "ok") {
        return Err(Error::unavailable(
            Effect::NotApplied,
            format!("{} reports that the cluster is down", server.server()),
        ));
    }
    let host = host_of(server.server());
    let topology = slots.as_ref().and_then(|slots| Topology::read(slots, host));
    topology.ok_or_else(|| error::unexpected(server.server(), "CLUSTER SLOTS"))
}
