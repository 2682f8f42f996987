//! Which node of a cluster owns which slot.

use std::collections::BTreeSet;
use std::sync::Arc;

use redis::Value;

use crate::names::SLOTS;

/// What a node that has no host name is called where host names are preferred.
pub(crate) const NO_HOST: &str = "?";

/// The owners of all slots, as one node reported them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Topology {
    /// The address of each slot's master, by slot.
    owners: Vec<Option<Arc<str>>>,
    /// The smallest id of all nodes, replicas included.
    pub(crate) identity: String,
    pub(crate) has_replicas: bool,
}

impl Topology {
    /// Reads a reply to CLUSTER SLOTS. `host` is that of the node that sent it, which may leave it out. `None` if
    /// the reply cannot be understood.
    pub(crate) fn read(reply: &Value, host: &str) -> Option<Self> {
        let mut this = Self { owners: vec![None; usize::from(SLOTS)], ..Self::default() };
        let Value::Array(ranges) = reply else { return None };
        for range in ranges {
            let Value::Array(range) = range else { return None };
            let [Value::Int(first), Value::Int(last), master, replicas @ ..] = range.as_slice()
            else {
                return None;
            };
            let (first, last) = (usize::try_from(*first).ok()?, usize::try_from(*last).ok()?);
            this.has_replicas |= !replicas.is_empty();
            for node in std::iter::once(master).chain(replicas) {
                let id = text(at(node, 2)?)?;
                if this.identity.is_empty() || id < this.identity.as_str() {
                    id.clone_into(&mut this.identity);
                }
            }
            let host_name = match at(master, 0)? {
                Value::Nil => "",
                host_name => text(host_name)?,
            };
            let host_name = match host_name {
                "" => host,
                NO_HOST => address(at(master, 3)?).unwrap_or(host),
                host_name => host_name,
            };
            let Value::Int(port) = at(master, 1)? else { return None };
            let owner: Arc<str> = format!("{host_name}:{port}").into();
            this.owners.get_mut(first..=last)?.fill(Some(owner));
        }
        Some(this)
    }

    pub(crate) fn is_known(&self) -> bool {
        !self.owners.is_empty()
    }

    pub(crate) fn owner(&self, slot: u16) -> Option<&Arc<str>> {
        self.owners.get(usize::from(slot))?.as_ref()
    }

    /// Applies a node's statement that this slot is at `owner`.
    pub(crate) fn set_owner(&mut self, slot: u16, owner: &str) {
        self.owners.resize(usize::from(SLOTS), None);
        if let Some(at) = self.owners.get_mut(usize::from(slot)) {
            *at = Some(owner.into());
        }
    }

    /// The address of every master.
    pub(crate) fn masters(&self) -> BTreeSet<Arc<str>> {
        let mut owners: Vec<_> = self.owners.iter().flatten().collect();
        owners.dedup();
        owners.into_iter().map(Arc::clone).collect()
    }
}

fn at(node: &Value, part: usize) -> Option<&Value> {
    match node {
        Value::Array(parts) => parts.get(part),
        _ => None,
    }
}

/// The IP address among a node's further addresses.
fn address(further: &Value) -> Option<&str> {
    let is_ip = |name: &Value| text(name) == Some("ip");
    match further {
        Value::Map(pairs) => text(&pairs.iter().find(|(name, _)| is_ip(name))?.1),
        Value::Array(flat) => text(&flat.chunks_exact(2).find(|pair| is_ip(&pair[0]))?[1]),
        _ => None,
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: &str, port: i64, id: &str) -> Value {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(vec![text(host), Value::Int(port), text(id), Value::Array(Vec::new())])
    }

    fn range(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        let mut range = vec![Value::Int(first), Value::Int(last)];
        range.extend(nodes);
        Value::Array(range)
    }

    #[test]
    fn a_nodes_topology_is_parsed() {
        let reply = Value::Array(vec![
            range(0, 99, vec![node("", 7000, "b"), node("h2", 7001, "a")]),
            range(200, 300, vec![node("h3", 7002, "c")]),
            range(100, 150, vec![node("h3", 7002, "c")]),
            range(301, 16_383, vec![node("", 7000, "b")]),
        ]);
        let mut topology = Topology::read(&reply, "h1").unwrap();
        assert_eq!(topology.identity, "a");
        for (slot, owner) in [(0, Some("h1:7000")), (100, Some("h3:7002")), (151, None)] {
            assert_eq!(topology.owner(slot).map(AsRef::as_ref), owner, "{slot}");
        }
        let masters: Vec<_> = topology.masters().iter().map(ToString::to_string).collect();
        assert_eq!(masters, ["h1:7000", "h3:7002"]);
        assert!(topology.has_replicas);
        topology.set_owner(151, "h4:1");
        assert_eq!(topology.owner(151).map(AsRef::as_ref), Some("h4:1"));
        assert!(Topology::read(&Value::Nil, "h").is_none());
        assert!(
            Topology::read(&Value::Array(vec![range(0, 16_384, vec![node("", 1, "a")])]), "h")
                .is_none()
        );
    }
}
