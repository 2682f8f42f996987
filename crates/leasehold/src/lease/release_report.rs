use leasehold_core::{Error, NodeOutcome, NodeReports, ReleaseOutcome};

/// The result of releasing a lease.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReleaseReport {
    /// The store's answer ([C13](crate::contract)).
    pub outcome: ReleaseOutcome,
    /// Each node's answer; empty except from a quorum.
    pub nodes: NodeReports,
}

impl ReleaseReport {
    pub(crate) fn new(outcome: ReleaseOutcome, nodes: NodeReports) -> Self {
        Self { outcome, nodes }
    }

    pub(crate) fn failed(error: Error) -> Self {
        let nodes = error.nodes().clone();
        Self::new(ReleaseOutcome::Failed(error), nodes)
    }

    /// How many nodes the store has; 0 unless it is a quorum.
    pub fn nodes_total(&self) -> usize {
        self.nodes.len()
    }

    /// How many nodes held the lease until now.
    pub fn nodes_released(&self) -> usize {
        let held =
            |outcome: &NodeOutcome| matches!(outcome, NodeOutcome::Released | NodeOutcome::Kept);
        self.nodes.iter().filter(|node| node.leases.iter().any(held)).count()
    }

    /// Whether a majority of the nodes held the lease until now; `None` unless the store is a quorum.
    pub fn has_majority(&self) -> Option<bool> {
        self.nodes.is_of_quorum().then(|| self.nodes_released() > self.nodes_total() / 2)
    }
}
