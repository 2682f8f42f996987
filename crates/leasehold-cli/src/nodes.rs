//! What each node of a quorum did, for people and as JSON.

use std::fmt;

use leasehold::inspect::{NodeOutcome, NodeReport};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::failure::describe;

/// The reports of a quorum's nodes; none from any other store.
pub(crate) struct Nodes<'a>(pub(crate) &'a [NodeReport]);

impl Nodes<'_> {
    /// Writes an entry `nodes` if there are reports.
    pub(crate) fn entry<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        if self.0.is_empty() { Ok(()) } else { map.serialize_entry("nodes", self) }
    }
}

impl fmt::Display for Nodes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, node) in self.0.iter().enumerate() {
            write!(f, "{}{}: ", if at == 0 { " (" } else { "; " }, node.node)?;
            match (error(node), outcome(node)) {
                (Some(error), _) => f.write_str(&error)?,
                (None, Some(outcome)) => f.write_str(outcome)?,
                (None, None) => f.write_str("no answer yet")?,
            }
        }
        if self.0.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

impl Serialize for Nodes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut nodes = serializer.serialize_seq(Some(self.0.len()))?;
        for node in self.0 {
            nodes.serialize_element(&One(node))?;
        }
        nodes.end()
    }
}

struct One<'a>(&'a NodeReport);

impl Serialize for One<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("node", &self.0.node)?;
        if let Some(outcome) = outcome(self.0) {
            map.serialize_entry("outcome", outcome)?;
        }
        if let Some(error) = error(self.0) {
            map.serialize_entry("error", &error)?;
        }
        map.end()
    }
}

/// The nodes that failed.
pub(crate) fn failures(nodes: &[NodeReport]) -> impl Iterator<Item = &NodeReport> {
    nodes.iter().filter(|node| error(node).is_some())
}

fn error(node: &NodeReport) -> Option<String> {
    node.leases
        .iter()
        .find_map(|outcome| match outcome {
            NodeOutcome::Failed(error) => Some(error),
            _ => None,
        })
        .or(node.error.as_ref())
        .map(describe)
}

fn outcome(node: &NodeReport) -> Option<&'static str> {
    match node.leases.first()? {
        NodeOutcome::Granted => Some("granted"),
        NodeOutcome::Refused => Some("refused"),
        NodeOutcome::Renewed => Some("renewed"),
        NodeOutcome::Lost => Some("lost"),
        NodeOutcome::Released => Some("released"),
        NodeOutcome::Kept => Some("kept"),
        NodeOutcome::Expired => Some("expired"),
        NodeOutcome::NotHeld => Some("not_held"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Error;

    use super::*;

    #[test]
    fn each_node_is_shown_with_its_outcome_or_its_error() {
        let nodes = [
            NodeReport::new("a").with_leases(vec![NodeOutcome::Granted]),
            NodeReport::failed("b", Error::unexpected("down")),
            NodeReport::new("c"),
        ];
        assert_eq!(Nodes(&nodes).to_string(), " (a: granted; b: down; c: no answer yet)");
        assert_eq!(
            serde_json::to_string(&Nodes(&nodes)).unwrap(),
            r#"[{"node":"a","outcome":"granted"},{"node":"b","error":"down"},{"node":"c"}]"#
        );
        assert_eq!(Nodes(&[]).to_string(), "");
    }
}
