//! The nodes of a Redis Cluster: each key is on the node that owns its slot.

mod discovery;
mod topology;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use leasehold_core::{Effect, Error, Health, Result};
use leasehold_driver::Listener;
use redis::{Client, Value};

use crate::argument::Argument;
use crate::connection::exchange::Request;
use crate::connection::script::{Redirect, ScriptReply};
use crate::connection::{ConnectionOptions, Connections};
use crate::endpoint::{self, Endpoint};
use crate::names::{Name, slot};
use crate::page::Position;
use crate::scripts::Script;
use crate::{error, health};
use topology::{NO_HOST, Topology};

/// The connections to all nodes. Cheap to clone; clones share them.
#[derive(Clone)]
pub(crate) struct Cluster(Arc<Inner>);

struct Inner {
    /// The nodes to query first for the topology.
    seeds: Vec<Client>,
    name: String,
    options: ConnectionOptions,
    state: Mutex<State>,
    /// Held during a query for the topology, so that one caller queries for all.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    topology: Topology,
    /// By address.
    nodes: HashMap<Arc<str>, Node>,
    /// How many times the topology was queried, and the result of the last time.
    rounds: u64,
    last: Option<Error>,
}

/// One node. Pushed messages use another connection than replies: when a slot moves, the driver would count an
/// unrequested message as a reply. See `docs/adr/0005-own-cluster-routing.md`.
#[derive(Clone)]
struct Node {
    server: Connections,
    subscriber: Connections,
}

/// The most redirects that one request follows. More means that nodes disagree.
const REDIRECTS: usize = 8;

impl Cluster {
    pub(crate) fn new(seeds: Vec<Client>, options: ConnectionOptions) -> Self {
        let name = format!("the cluster of {}", endpoint::names(&seeds));
        let (state, asking) = (Mutex::default(), tokio::sync::Mutex::default());
        Self(Arc::new(Inner { seeds, name, options, state, asking }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn options(&self) -> &ConnectionOptions {
        &self.0.options
    }

    /// Ends the connections to all nodes.
    pub(crate) fn close(&self) {
        let nodes: Vec<_> = self.0.state().nodes.values().cloned().collect();
        for node in nodes {
            node.server.close();
            node.subscriber.close();
        }
    }

    /// Queries the topology, if it is not known yet.
    pub(crate) async fn connect(&self) -> Result<()> {
        let rounds = self.0.state().rounds;
        if self.0.state().topology.is_known() { Ok(()) } else { self.0.refresh(rounds).await }
    }

    /// Runs a script on the node that owns its slot, and follows redirects. Each exchange has the whole time
    /// limit.
    pub(crate) async fn run(
        &self,
        script: &Script,
        slot: u16,
        names: &[Name],
        arguments: &[Argument<'_>],
        request: &Request,
    ) -> Result<Value> {
        let mut node = self.reachable(slot).await?;
        let mut once = false;
        for _ in 0..=REDIRECTS {
            match node.server.run(script, names, arguments, once, request).await? {
                ScriptReply::Answered(value) => return Ok(value),
                ScriptReply::Elsewhere(redirect) => {
                    node = self.0.follow(slot, &redirect, &node).await?;
                    once = redirect.once;
                    if !once {
                        self.0.refresh_in_background();
                    }
                }
            }
        }
        Err(Error::unavailable(
            Effect::NotApplied,
            format!(
                "the nodes of {} redirected a request for slot {slot} {REDIRECTS} times, last to {}; they disagree \
                 about its owner",
                self.name(),
                node.server.server()
            ),
        ))
    }

    /// The node that owns this slot. If it cannot be reached, another may own the slot by now.
    async fn reachable(&self, slot: u16) -> Result<Node> {
        let node = self.owner(slot).await?;
        let rounds = self.0.state().rounds;
        let Err(error) = node.server.connect().await else { return Ok(node) };
        self.0.refresh(rounds).await.map_err(|_| error.clone())?;
        let owner = self.owner(slot).await?;
        if owner.server.server() == node.server.server() { Err(error) } else { Ok(owner) }
    }

    async fn owner(&self, slot: u16) -> Result<Node> {
        for _ in 0..2 {
            let rounds = self.0.state().rounds;
            if let Some(node) = self.0.owner(slot)? {
                return Ok(node);
            }
            self.0.refresh(rounds).await?;
        }
        Err(Error::unavailable(
            Effect::NotApplied,
            format!("no node of {} owns slot {slot}", self.name()),
        ))
    }

    /// The node where a scan continues, and the position there. A scan begins with a query for the topology. A node
    /// that is no longer a master is scanned again from the start at its successor.
    pub(crate) async fn node_at(&self, at: Position) -> Result<(Connections, Position)> {
        let rounds = self.0.state().rounds;
        if at.node.is_empty() && at.done.is_empty() {
            self.0.refresh(rounds).await?;
        } else {
            self.connect().await?;
        }
        let masters = self.0.state().topology.masters();
        if let Some(address) = masters.get(at.node.as_str()) {
            return Ok((self.0.node(address)?.server, at));
        }
        let next = masters.iter().find(|master| !at.done.iter().any(|done| **done == ***master));
        let address = next.ok_or_else(|| {
            Error::unavailable(
                Effect::NotApplied,
                format!("no node of {} owns a slot", self.name()),
            )
        })?;
        let node = address.as_ref().to_owned();
        Ok((self.0.node(address)?.server, Position { node, scan: 0, shown: None, ..at }))
    }

    /// Where a scan continues after the end of this node.
    pub(crate) fn node_after(&self, at: Position) -> Option<Position> {
        let mut done = at.done;
        done.push(at.node);
        let masters = self.0.state().topology.masters();
        let is_left = masters.iter().any(|master| !done.iter().any(|done| **done == **master));
        is_left.then(|| Position { done, ..Position::default() })
    }

    /// The health of its least healthy master.
    pub(crate) async fn check(&self) -> Result<Health> {
        let rounds = self.0.state().rounds;
        self.0.refresh(rounds).await?;
        let topology = self.0.state().topology.clone();
        let masters = topology.masters();
        let nodes = masters.iter().map(|address| self.0.node(address));
        let nodes: Vec<_> = nodes.collect::<Result<_>>()?;
        let checked = join_all(nodes.iter().map(|node| health::check(&node.server)));
        let mut all: Option<Health> = None;
        for health in checked.await {
            let health = health?;
            all = Some(match all {
                None => health,
                Some(all) => health::both(all, health),
            });
        }
        let mut health = all.ok_or_else(|| error::unexpected(self.name(), "no master"))?;
        if topology.has_replicas && !health.fails_over {
            health::fails_over(&mut health, self.name());
        }
        health.identity = Some(format!("redis cluster {}", topology.identity));
        Ok(health)
    }

    /// Adds these listeners to their channels.
    pub(crate) async fn listen(&self, listeners: Vec<(String, Listener)>) -> Result<()> {
        let mut at_node: HashMap<String, (Node, Vec<String>)> = HashMap::new();
        for (channel, listener) in listeners {
            let node = self.owner(slot(&channel)).await?;
            let node = self.0.add_listener(node, &channel, listener);
            let name = node.subscriber.server().to_owned();
            at_node.entry(name).or_insert_with(|| (node, Vec::new())).1.push(channel);
        }
        let rounds = self.0.state().rounds;
        let listening =
            join_all(at_node.values().map(|(node, channels)| node.subscriber.listen(channels)))
                .await;
        let Some(error) = listening.into_iter().find_map(Result::err) else { return Ok(()) };
        self.0.refresh(rounds).await.map_err(|_| error)?;
        // A channel that has moved meanwhile is subscribed to on its new node.
        for (node, channels) in at_node.values() {
            if !node.subscriber.listeners().with_listener(channels).is_empty() {
                node.subscriber.listen(channels).await?;
            }
        }
        Ok(())
    }

    /// Whether those who listen to this channel try one after the other.
    pub(crate) fn is_crowded(&self, channel: &str) -> bool {
        self.0.state().nodes.values().any(|node| node.subscriber.is_crowded(channel))
    }

    /// Removes the listener of this number from these channels.
    pub(crate) fn leave(&self, number: u64, channels: &[String]) {
        // Holding the state keeps listeners from moving between nodes meanwhile.
        let state = self.0.state();
        for node in state.nodes.values() {
            node.subscriber.leave(number, channels);
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owner(self: &Arc<Self>, slot: u16) -> Result<Option<Node>> {
        let owner = self.state().topology.owner(slot).map(Arc::clone);
        owner.map(|address| self.node(&address)).transpose()
    }

    /// The node at this address, known or new.
    fn node(self: &Arc<Self>, address: &Arc<str>) -> Result<Node> {
        let mut state = self.state();
        if let Some(node) = state.nodes.get(address) {
            return Ok(node.clone());
        }
        let node = self.make(address)?;
        state.nodes.insert(Arc::clone(address), node.clone());
        Ok(node)
    }

    fn make(self: &Arc<Self>, address: &str) -> Result<Node> {
        let seed = self.seeds.first().map(Client::get_connection_info);
        let at = address.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let (Some(seed), Some((host, port))) = (seed, at) else {
            return Err(error::unexpected(&self.name, "an address of a node"));
        };
        let client =
            Client::open(endpoint::at(seed, host, port)).map_err(|e| error::of(&self.name, e))?;
        let alarm = |this: &Arc<Self>| {
            let this = Arc::downgrade(this);
            let alarm = move || {
                if let Some(this) = this.upgrade() {
                    this.refresh_in_background();
                }
            };
            Some(Box::new(alarm) as crate::connection::Alarm)
        };
        let endpoint = || Endpoint::Server(client.clone());
        let checked = ConnectionOptions { is_checked: true, ..self.options.clone() };
        Ok(Node {
            server: Connections::new(endpoint(), checked, alarm(self)),
            subscriber: Connections::new(endpoint(), self.options.clone(), alarm(self)),
        })
    }

    /// Adds a listener to its channel at this node. If the node was dropped meanwhile, it is added again: else
    /// nothing would move or remove the listener.
    fn add_listener(&self, node: Node, channel: &str, listener: Listener) -> Node {
        let mut state = self.state();
        let node = state.nodes.entry(node.subscriber.server().into()).or_insert(node).clone();
        node.subscriber.listeners().add(channel, vec![listener]);
        node
    }

    /// The node that a redirect of this slot names.
    async fn follow(self: &Arc<Self>, slot: u16, redirect: &Redirect, from: &Node) -> Result<Node> {
        let (host, port) = redirect.address.rsplit_once(':').unwrap_or_default();
        let address = match host {
            "" => format!("{}:{port}", host_of(from.server.server())),
            NO_HOST => return self.unnamed(slot, redirect, port).await,
            _ => redirect.address.clone(),
        };
        if !redirect.once {
            self.state().topology.set_owner(slot, &address);
        }
        self.node(&address.into())
    }

    /// The node of a redirect that names only its port.
    async fn unnamed(self: &Arc<Self>, slot: u16, redirect: &Redirect, port: &str) -> Result<Node> {
        let rounds = self.state().rounds;
        self.refresh(rounds).await?;
        let owner = (!redirect.once).then(|| self.owner(slot)).transpose()?.flatten();
        if let Some(owner) = owner {
            return Ok(owner);
        }
        let masters = self.state().topology.masters();
        let mut with_port =
            masters.iter().filter(|master| master.rsplit_once(':').is_some_and(|at| at.1 == port));
        match (with_port.next(), with_port.next()) {
            (Some(only), None) => self.node(only),
            _ => Err(Error::unavailable(
                Effect::NotApplied,
                format!(
                    "{} redirects slot {slot} to {}, a node without a host name; set cluster-announce-hostname on \
                     each node",
                    self.name, redirect.address
                ),
            )),
        }
    }
}

/// The host of an address.
fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or("", |(host, _)| host)
}

#[cfg(test)]
mod tests;
