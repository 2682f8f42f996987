//! The nodes of a Redis Cluster: each key is on the one that has its slot.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use leasehold_core::{Effect, Error, ErrorKind, Health, Result};
use redis::{Client, Value};
use tokio::runtime::Handle;

use crate::connection::{Argument, Connections, Manner, Ran, Redirect};
use crate::names::slot;
use crate::page::Position;
use crate::scripts::Script;
use crate::topology::Topology;
use crate::wakeups::Listener;
use crate::way::{self, Way};
use crate::{error, health};

/// The way to all nodes. Cheap to clone; clones share the connections.
#[derive(Clone)]
pub(crate) struct Cluster(Arc<Inner>);

struct Inner {
    /// Whom to ask first who serves what.
    seeds: Vec<Client>,
    name: String,
    manner: Manner,
    state: Mutex<State>,
    /// Held by whoever asks who serves what, so that of many one does.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    topology: Topology,
    /// By address.
    nodes: HashMap<Arc<str>, Node>,
    /// How often the topology was told.
    told: u64,
}

/// One node. What is told without being asked goes another way than answers, so that no answer is taken for another
/// when a slot goes elsewhere, which the driver would then count as an answer: `docs/adr/0005-own-cluster-routing.md`.
#[derive(Clone)]
struct Node {
    server: Connections,
    ear: Connections,
}

/// So often one request is sent on. More means that nodes disagree.
const REDIRECTS: usize = 8;

impl Cluster {
    pub(crate) fn new(seeds: Vec<Client>, manner: Manner) -> Self {
        let name = format!("the cluster of {}", way::names(&seeds));
        let (state, asking) = (Mutex::default(), tokio::sync::Mutex::default());
        Self(Arc::new(Inner { seeds, name, manner, state, asking }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    /// Asks who serves what, if that is not known yet.
    pub(crate) async fn connect(&self) -> Result<()> {
        let told = self.0.state().told;
        if told == 0 { self.0.refresh(told).await } else { Ok(()) }
    }

    /// Runs a script where its slot is, and goes where it is sent. Each exchange has the whole time limit.
    pub(crate) async fn run(
        &self,
        script: &Script,
        slot: u16,
        keys: &[&str],
        arguments: &[Argument<'_>],
    ) -> Result<Value> {
        let mut node = self.owner(slot).await?;
        let mut once = false;
        let mut reconnected = false;
        for _ in 0..=REDIRECTS {
            let told = self.0.state().told;
            match node.server.run(script, keys, arguments, once).await {
                Ok(Ran::Answered(value, _)) => return Ok(value),
                Ok(Ran::Elsewhere(redirect)) => {
                    node = self.0.follow(&redirect, &node)?;
                    once = redirect.once;
                    if !once {
                        self.0.ask_in_background();
                    }
                }
                // It was not even sent: perhaps another has the slot by now.
                Err(error)
                    if error.kind() == ErrorKind::Unavailable
                        && error.effect() == Effect::None
                        && !reconnected =>
                {
                    reconnected = true;
                    self.0.refresh(told).await.map_err(|_| error.clone())?;
                    let owner = self.owner(slot).await?;
                    if owner.server.server() == node.server.server() {
                        return Err(error);
                    }
                    (node, once) = (owner, false);
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::unavailable(
            Effect::None,
            format!(
                "the nodes of {} sent a request for slot {slot} on {REDIRECTS} times, the last to {}; they disagree \
                 about who has it",
                self.name(),
                node.server.server()
            ),
        ))
    }

    async fn owner(&self, slot: u16) -> Result<Node> {
        for _ in 0..2 {
            let told = self.0.state().told;
            if let Some(node) = self.0.owner(slot)? {
                return Ok(node);
            }
            self.0.refresh(told).await?;
        }
        Err(Error::unavailable(Effect::None, format!("no node of {} has slot {slot}", self.name())))
    }

    /// The node at which a scan goes on, and where there: from its beginning, if another did so until now.
    pub(crate) async fn node_at(&self, at: Position) -> Result<(Connections, Position)> {
        self.connect().await?;
        let found = self.0.state().topology.owned_from(at.slot);
        let (slot, address) = found.ok_or_else(|| {
            Error::unavailable(Effect::None, format!("no node of {} has any slot", self.name()))
        })?;
        let node = self.0.node(&address)?;
        let at = if *address == *at.node {
            Position { slot, ..at }
        } else {
            Position { slot, node: address.as_ref().to_owned(), scan: 0, shown: None }
        };
        Ok((node.server, at))
    }

    /// Where a scan goes on after the node that has this slot.
    pub(crate) fn node_after(&self, slot: u16) -> Option<Position> {
        let masters = self.0.state().topology.masters();
        let (slot, node) = masters.range(slot + 1..).next()?;
        Some(Position { slot: *slot, node: node.as_ref().to_owned(), scan: 0, shown: None })
    }

    /// As the least of all its masters is.
    pub(crate) async fn check(&self, allow_eviction: bool) -> Result<Health> {
        let told = self.0.state().told;
        self.0.refresh(told).await?;
        let (masters, identity) = {
            let state = self.0.state();
            (state.topology.masters(), state.topology.identity.clone())
        };
        let nodes = masters.values().map(|address| self.0.node(address));
        let nodes: Vec<_> = nodes.collect::<Result<_>>()?;
        let checked =
            join_all(nodes.iter().map(|node| health::check(&node.server, allow_eviction, true)));
        let mut all: Option<Health> = None;
        for health in checked.await {
            let health = health?;
            all = Some(match all {
                None => health,
                Some(all) => health::both(all, health),
            });
        }
        let mut health = all.ok_or_else(|| error::odd(self.name(), "no master"))?;
        health.identity = Some(format!("redis cluster {identity}"));
        Ok(health)
    }

    /// Lets these listeners hear of their channels from now on.
    pub(crate) async fn listen(&self, listeners: Vec<(String, Listener)>) -> Result<()> {
        let mut at_node: HashMap<String, (Node, Vec<String>)> = HashMap::new();
        for (channel, listener) in listeners {
            let node = self.owner(slot(&channel)).await?;
            node.ear.listeners().add(&channel, [listener]);
            let name = node.ear.server().to_owned();
            at_node.entry(name).or_insert_with(|| (node, Vec::new())).1.push(channel);
        }
        let told = self.0.state().told;
        let heard =
            join_all(at_node.values().map(|(node, channels)| node.ear.listen(channels))).await;
        let Some(error) = heard.into_iter().find_map(Result::err) else { return Ok(()) };
        self.0.refresh(told).await.map_err(|_| error)?;
        // What is elsewhere by now is heard of there.
        for (node, channels) in at_node.into_values() {
            let gone = node.ear.listeners().unheard(channels.clone());
            let here: Vec<_> =
                channels.into_iter().filter(|channel| !gone.contains(channel)).collect();
            if !here.is_empty() {
                node.ear.listen(&here).await?;
            }
        }
        Ok(())
    }

    /// The listener of this number hears of these channels no more.
    pub(crate) fn leave(&self, number: u64, channels: &[String]) {
        // Nobody moves meanwhile from a node that was looked at to one that was.
        let state = self.0.state();
        for node in state.nodes.values() {
            node.ear.leave(number, channels);
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

    /// The node at this address, whether it is known or not.
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
            return Err(error::odd(&self.name, "an address of a node"));
        };
        let client =
            Client::open(way::at(seed, host, port)).map_err(|e| error::of(&self.name, e))?;
        let alarm = |this: &Arc<Self>| {
            let this = Arc::downgrade(this);
            let alarm = move || {
                if let Some(this) = this.upgrade() {
                    this.ask_in_background();
                }
            };
            Some(Box::new(alarm) as crate::connection::Alarm)
        };
        let way = || Way::Server(client.clone());
        Ok(Node {
            server: Connections::new(way(), self.manner, alarm(self)),
            ear: Connections::new(way(), self.manner, alarm(self)),
        })
    }

    /// Where a node sent us on to.
    fn follow(self: &Arc<Self>, redirect: &Redirect, from: &Node) -> Result<Node> {
        let address = match redirect.address.strip_prefix(':') {
            None => redirect.address.clone(),
            Some(port) => {
                let host = from.server.server().rsplit_once(':').map_or("", |(host, _)| host);
                format!("{host}:{port}")
            }
        };
        if !redirect.once {
            self.state().topology.set_owner(redirect.slot, &address);
        }
        self.node(&address.into())
    }

    fn ask_in_background(self: &Arc<Self>) {
        // Somebody asks already.
        if self.asking.try_lock().is_err() {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let this = Arc::downgrade(self);
            runtime.spawn(async move {
                let Some(this): Option<Arc<Self>> = Weak::upgrade(&this) else { return };
                let told = this.state().told;
                if let Err(error) = this.refresh(told).await {
                    tracing::debug!(%error, "who serves which slots is not known");
                }
            });
        }
    }

    /// Asks all nodes that are known who serves what, and takes the first answer; `told` is the last that was known.
    async fn refresh(self: &Arc<Self>, told: u64) -> Result<()> {
        let _turn = self.asking.lock().await;
        if self.state().told > told {
            return Ok(());
        }
        let mut known: Vec<Connections> =
            self.state().nodes.values().map(|node| node.server.clone()).collect();
        for seed in &self.seeds {
            let address = way::name(seed.get_connection_info().addr());
            if !known.iter().any(|server| server.server() == address) {
                known.push(Connections::new(Way::Server(seed.clone()), self.manner, None));
            }
        }
        let mut answers: FuturesUnordered<_> = known.iter().map(topology_of).collect();
        let mut failure = None;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(topology) => {
                    self.take(topology);
                    self.move_listeners();
                    return Ok(());
                }
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(|| error::odd(&self.name, "no seeds")))
    }

    /// Goes by this topology from now on; nodes without slots are left.
    fn take(&self, topology: Topology) {
        let mut state = self.state();
        let masters = topology.masters();
        state.nodes.retain(|address, node| {
            masters.values().any(|master| master == address) || !node.ear.listeners().is_empty()
        });
        state.topology = topology;
        state.told += 1;
    }

    /// Whoever listens where a slot is no more does so where it is now.
    fn move_listeners(self: &Arc<Self>) {
        let nodes: Vec<_> = {
            let state = self.state();
            state.nodes.iter().map(|(address, node)| (Arc::clone(address), node.clone())).collect()
        };
        let mut moved: HashMap<Arc<str>, Vec<String>> = HashMap::new();
        for (address, node) in nodes {
            for channel in node.ear.listeners().channels() {
                let owner = self.state().topology.owner(slot(&channel)).map(Arc::clone);
                let Some(owner) = owner.filter(|owner| *owner != address) else { continue };
                let Ok(new) = self.node(&owner) else { continue };
                {
                    let _whole = self.state();
                    new.ear.listeners().add(&channel, node.ear.listeners().take(&channel));
                }
                moved.entry(owner).or_default().push(channel);
            }
        }
        let Ok(runtime) = Handle::try_current() else { return };
        for (owner, channels) in moved {
            let Ok(node) = self.node(&owner) else { continue };
            runtime.spawn(async move {
                if let Err(error) = node.ear.listen(&channels).await {
                    tracing::debug!(%error, "no wake-ups come until the next try");
                }
                node.ear.listeners().hint_all();
            });
        }
    }
}

/// Who serves what, as this node sees it.
async fn topology_of(server: &Connections) -> Result<Topology> {
    let mut info = redis::cmd("CLUSTER");
    info.arg("INFO");
    let mut slots = redis::cmd("CLUSTER");
    slots.arg("SLOTS");
    let mut replies = server.ask(vec![info, slots]).await?.into_iter();
    let (info, slots) = (replies.next(), replies.next());
    for reply in [&info, &slots] {
        if let Some(Value::ServerError(refused)) = reply {
            return Err(health::refused_by(server, refused));
        }
    }
    let info = info.as_ref().map(health::information).unwrap_or_default();
    if info.get("cluster_state").is_none_or(|state| state != "ok") {
        return Err(Error::unavailable(
            Effect::None,
            format!("{} says that the cluster is down", server.server()),
        ));
    }
    let host = server.server().rsplit_once(':').map_or("", |(host, _)| host);
    let topology = slots.as_ref().and_then(|slots| Topology::read(slots, host));
    topology.ok_or_else(|| error::odd(server.server(), "CLUSTER SLOTS"))
}
