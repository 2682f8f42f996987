use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use leasehold_core::{AnyStore, NodeReport};

/// One of the stores of a quorum.
#[derive(Clone)]
pub(crate) struct Node {
    /// Shown in errors and reports.
    pub(crate) name: String,
    pub(crate) store: AnyStore,
    pub(crate) servers: Arc<Servers>,
}

/// Which server each node of a quorum is.
#[derive(Default)]
pub(crate) struct Servers(Mutex<HashMap<String, String>>);

impl Servers {
    /// Notes that the node `name` is the server `identity`. Returns another node that is the same server, if there
    /// is one.
    pub(crate) fn other(&self, identity: &str, name: &str) -> Option<String> {
        self.forget(name);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let other = known.get(identity).cloned();
        if other.is_none() {
            known.insert(identity.to_owned(), name.to_owned());
        }
        other
    }

    /// Forgets which server a node is.
    pub(crate) fn forget(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, of| of != name);
    }
}

impl Node {
    /// The report of a node that has not answered.
    pub(crate) fn report(&self) -> NodeReport {
        NodeReport::new(self.name.as_str())
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", self.name, self.store)
    }
}
