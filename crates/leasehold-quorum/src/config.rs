use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{AnyStore, Capabilities, Clock, Error, Result, Store, Ttl};
use leasehold_driver::SystemClock;

use crate::node::Node;

/// The nodes and options of a quorum.
#[derive(Clone)]
pub struct QuorumConfig {
    pub(crate) nodes: Vec<Node>,
    pub(crate) limits: Limits,
    pub(crate) fenced: bool,
    pub(crate) clock: Arc<dyn Clock>,
}

/// The time limits of a quorum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The longest term.
    pub(crate) max_ttl: Duration,
    /// The limit of one node, if it was set.
    pub(crate) node: Option<Duration>,
    /// How long a failed acquire is rolled back.
    pub(crate) release: Duration,
    /// Whether a release waits for every node.
    pub(crate) release_waits: bool,
}

impl Limits {
    /// The shortest limit of a node.
    const MIN_NODE: Duration = Duration::from_millis(10);
    /// The longest limit, unless another is set.
    const MAX_NODE: Duration = Duration::from_millis(500);

    /// The limit of a node for a request with this term.
    pub(crate) fn of_term(&self, term: Option<Duration>) -> Duration {
        let usual = term.map_or(Self::MAX_NODE, |term| (term / 20).min(Self::MAX_NODE));
        self.node.unwrap_or(usual).max(Self::MIN_NODE)
    }

    /// The limit of a node for a renewal whose shortest term this is. At most a quarter of it, whatever the option
    /// states: a lease that needs the last node's answer must not cost the others of the batch theirs.
    pub(crate) fn of_renewal(&self, shortest: Option<Duration>) -> Duration {
        let quarter = shortest.map_or(Duration::MAX, |term| (term / 4).max(Self::MIN_NODE));
        self.of_term(shortest).min(quarter)
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let Self { max_ttl, node, release, .. } = *self;
        if !(Ttl::MIN..=Ttl::MAX).contains(&max_ttl) {
            return Err(Error::invalid_input(format!(
                "max_ttl is {max_ttl:?}; it must be 10 ms to 10 years (3650 days)"
            )));
        }
        for (name, limit) in [("node_timeout", node), ("release_timeout", Some(release))] {
            if let Some(limit) = limit.filter(|limit| *limit < Self::MIN_NODE) {
                return Err(Error::invalid_input(format!(
                    "{name} is {limit:?}; it must be at least {:?}",
                    Self::MIN_NODE
                )));
            }
        }
        Ok(())
    }
}

impl QuorumConfig {
    /// The default longest term: 60 s.
    pub const DEFAULT_MAX_TTL: Duration = Duration::from_secs(60);
    /// How long a failed acquire is rolled back by default: 5 s.
    pub const DEFAULT_RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

    /// A quorum without nodes.
    pub fn new() -> Self {
        let limits = Limits {
            max_ttl: Self::DEFAULT_MAX_TTL,
            node: None,
            release: Self::DEFAULT_RELEASE_TIMEOUT,
            release_waits: false,
        };
        Self { nodes: Vec::new(), limits, fenced: false, clock: Arc::new(SystemClock::new()) }
    }

    /// Adds a node under a name. Errors and reports show the name: put no password in it.
    #[must_use]
    pub fn node(mut self, name: impl Into<String>, store: impl Store) -> Self {
        let servers = Arc::default();
        self.nodes.push(Node { name: name.into(), store: AnyStore::new(store), servers });
        self
    }

    /// Sets the longest term: a node that may have lost leases must grant nothing for this long after its start.
    /// 60 s by default.
    #[must_use]
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.limits.max_ttl = max_ttl;
        self
    }

    /// Sets how long to wait for one node, at least 10 ms. By default 5 % of the term, at most 500 ms; 500 ms for
    /// requests without a term.
    #[must_use]
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.limits.node = Some(timeout);
        self
    }

    /// Sets how long a failed acquire is rolled back in the background on nodes that do not answer: 5 s by
    /// default. What is left ends with its term.
    #[must_use]
    pub fn release_timeout(mut self, timeout: Duration) -> Self {
        self.limits.release = timeout;
        self
    }

    /// Sets whether a release waits for every node's answer, each for the [limit of a node](Self::node_timeout). By
    /// default it ends when a majority has answered, and the other nodes follow in the background.
    #[must_use]
    pub fn release_waits_for_all(mut self, waits: bool) -> Self {
        self.limits.release_waits = waits;
        self
    }

    /// Sets whether grants have fencing tokens. They cost a second exchange when the nodes' own tokens differ, and
    /// every node must report durable writes.
    #[must_use]
    pub fn fenced(mut self, fenced: bool) -> Self {
        self.fenced = fenced;
        self
    }

    /// Sets the clock of the time limits, for tests that do not sleep.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if self.nodes.is_empty() {
            return Err(Error::invalid_input(
                "the quorum has no nodes; add at least one, better an odd number from 3 on",
            ));
        }
        let mut names = HashSet::new();
        if let Some(node) = self.nodes.iter().find(|node| !names.insert(&node.name)) {
            return Err(Error::invalid_input(format!(
                "the node {:?} is given twice; give each node once",
                node.name
            )));
        }
        self.limits.validate()?;
        for Node { name, store, .. } in self.nodes.iter().filter(|_| self.fenced) {
            if let Some(lack) = lacks_tokens(&store.capabilities()) {
                return Err(Error::unsupported(format!(
                    "the quorum is to be fenced, but the node {name:?} {lack}"
                )));
            }
        }
        Ok(())
    }
}

/// What a node of a fenced quorum would lack, if anything.
pub(crate) fn lacks_tokens(node: &Capabilities) -> Option<&'static str> {
    match (node.tokens, node.raise) {
        (true, true) => None,
        (true, false) => Some("has fencing tokens that cannot be raised"),
        (false, _) => Some("has no fencing tokens"),
    }
}

impl Default for QuorumConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for QuorumConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumConfig")
            .field("nodes", &self.nodes)
            .field("limits", &self.limits)
            .field("fenced", &self.fenced)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_a_twentieth_of_the_term_within_bounds() {
        let mut limits = QuorumConfig::new().limits;
        let ms = Duration::from_millis;
        for (term, limit) in [
            (Some(ms(30_000)), 500),
            (Some(ms(10_000)), 500),
            (Some(ms(2_000)), 100),
            (Some(ms(100)), 10),
            (None, 500),
        ] {
            assert_eq!(limits.of_term(term), ms(limit), "{term:?}");
        }
        limits.node = Some(ms(70));
        assert_eq!((limits.of_term(Some(ms(100))), limits.of_term(None)), (ms(70), ms(70)));
    }
}
