//! One server, or the nodes of a cluster.

use leasehold_core::{Error, Health, Result};
use leasehold_driver::Listener;
use redis::Value;

use crate::argument::Argument;
use crate::cluster::Cluster;
use crate::connection::Connections;
use crate::connection::exchange::Request;
use crate::connection::script::ScriptReply;
use crate::durability::Statement;
use crate::names::Name;
use crate::page::Position;
use crate::scripts::{self, Script};
use crate::{error, health};

/// The server or servers with the leases.
#[derive(Clone)]
pub(crate) enum Servers {
    /// All on one server.
    One(Connections),
    /// Each key on the node that has its slot.
    Cluster(Cluster),
}

impl Servers {
    /// Their name in messages.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::One(server) => server.server(),
            Self::Cluster(cluster) => cluster.name(),
        }
    }

    /// What the caller stated about their durability.
    pub(crate) fn statement(&self) -> Statement {
        match self {
            Self::One(server) => server.options().statement,
            Self::Cluster(cluster) => cluster.options().statement,
        }
    }

    /// Whether each serves a part of the keys.
    pub(crate) fn are_many(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Whether it is one server that nothing else replaces by a replica.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self, Self::One(server) if !server.is_chosen())
    }

    /// Connects, unless there is a connection.
    pub(crate) async fn connect(&self) -> Result<()> {
        match self {
            Self::One(server) => server.connect().await,
            Self::Cluster(cluster) => cluster.connect().await,
        }
    }

    /// Ends the connections. The next exchange connects again.
    pub(crate) fn close(&self) {
        match self {
            Self::One(server) => server.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }

    pub(crate) async fn check(&self) -> Result<Health> {
        match self {
            Self::One(server) => health::check(server).await,
            Self::Cluster(cluster) => cluster.check().await,
        }
    }

    /// Runs a script on the keys of these names, which one script may access together.
    pub(crate) async fn run(
        &self,
        script: &Script,
        names: &[Name],
        arguments: &[Argument<'_>],
        request: &Request,
    ) -> Result<Value> {
        match self {
            Self::One(server) => {
                here(server, server.run(script, names, arguments, false, request).await?)
            }
            Self::Cluster(cluster) => {
                let slot = self.slot(names)?;
                Box::pin(cluster.run(script, slot, names, arguments, request)).await
            }
        }
    }

    /// The number that names which one script may access together have in common.
    ///
    /// # Errors
    /// `Unsupported` if no script may access these together.
    pub(crate) fn slot(&self, names: &[Name]) -> Result<u16> {
        match self {
            Self::One(_) => Ok(0),
            Self::Cluster(_) => {
                let mut slots = names.iter().map(Name::slot);
                let first = slots.next().unwrap_or_default();
                if slots.all(|slot| slot == first) { Ok(first) } else { Err(apart(names)) }
            }
        }
    }

    /// One step of a scan, and its position.
    pub(crate) async fn scan(
        &self,
        at: Position,
        arguments: impl FnOnce(u64) -> Vec<Argument<'static>>,
    ) -> Result<(Value, Position)> {
        let (server, script, at) = match self {
            Self::One(server) => (server.clone(), &scripts::SCAN, at),
            Self::Cluster(cluster) => {
                let (node, at) = cluster.node_at(at).await?;
                (node, &scripts::SCAN_NODE, at)
            }
        };
        let ran = server.run(script, &[], &arguments(at.scan), false, &Request::reads()).await?;
        Ok((here(&server, ran)?, at))
    }

    /// Where a scan continues after a step that ended with this cursor; `None` at its end.
    pub(crate) fn after(&self, at: Position, scan: u64) -> Option<Position> {
        match self {
            _ if scan > 0 => Some(Position { scan, shown: None, ..at }),
            Self::One(_) => None,
            Self::Cluster(cluster) => cluster.node_after(at),
        }
    }

    /// Adds these listeners to their channels.
    pub(crate) async fn listen(&self, listeners: Vec<(String, Listener)>) -> Result<()> {
        match self {
            Self::One(server) => {
                let channels: Vec<_> =
                    listeners.iter().map(|(channel, _)| channel.clone()).collect();
                for (channel, listener) in listeners {
                    server.listeners().add(&channel, vec![listener]);
                }
                server.listen(&channels).await
            }
            Self::Cluster(cluster) => cluster.listen(listeners).await,
        }
    }

    /// Whether those who listen to this channel try one after the other.
    pub(crate) fn is_crowded(&self, channel: &str) -> bool {
        match self {
            Self::One(server) => server.is_crowded(channel),
            Self::Cluster(cluster) => cluster.is_crowded(channel),
        }
    }

    /// Removes the listener of this number from these channels.
    pub(crate) fn leave(&self, number: u64, channels: &[String]) {
        match self {
            Self::One(server) => server.leave(number, channels),
            Self::Cluster(cluster) => cluster.leave(number, channels),
        }
    }
}

/// The reply of the only server.
fn here(server: &Connections, ran: ScriptReply) -> Result<Value> {
    match ran {
        ScriptReply::Answered(value) => Ok(value),
        ScriptReply::Elsewhere(_) => {
            Err(error::of_text(server.server(), error::IN_CLUSTER, "MOVED"))
        }
    }
}

fn apart(names: &[Name]) -> Error {
    let named: Vec<_> = names.iter().map(|name| format!("{:?}", name.plain())).collect();
    Error::unsupported(format!(
        "the keys {} are in different slots of the Redis Cluster, so one lease cannot hold them all; give them a \
         common hash tag, such as {{job}}:a and {{job}}:b",
        named.join(" and ")
    ))
}
