use std::fmt;

use leasehold_core::{AnyStore, NodeReport};

/// One of the stores that a quorum is made of.
#[derive(Clone)]
pub(crate) struct Node {
    /// Shown in errors and reports.
    pub(crate) name: String,
    pub(crate) store: AnyStore,
}

impl Node {
    /// A report of a node that has not answered.
    pub(crate) fn report(&self) -> NodeReport {
        NodeReport::new(self.name.as_str())
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", self.name, self.store)
    }
}
