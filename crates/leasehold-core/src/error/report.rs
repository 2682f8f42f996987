//! What an error states besides its kind.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::{Error, Key, Record};

/// The report of a wait that ended without a lock, or continues.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WaitReport {
    /// The first key that refused, or the first requested one.
    pub key: Key,
    /// How long the call took.
    pub waited: Duration,
    /// How many tries were made.
    pub tries: u32,
    /// How the last try ended.
    pub cause: WaitCause,
    /// The last known holder of the key.
    pub holder: Option<Box<Record>>,
    /// The holder is a lease of this very process. Locks are not re-entrant: a caller who holds it waits for itself.
    pub holder_is_here: bool,
}

/// How a try ended without a lock. Causes may be added; each means that there is no lock.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum WaitCause {
    /// The key is held.
    Held,
    /// The store granted it, but the reply came too late to be trusted.
    GrantedTooLate,
    /// The store failed.
    Store(Error),
    /// The caller's back-off stopped the wait.
    Exhausted,
}

impl WaitReport {
    /// A report of a wait.
    pub fn new(key: Key, waited: Duration, tries: u32, cause: WaitCause) -> Self {
        Self { key, waited, tries, cause, holder: None, holder_is_here: false }
    }

    /// Sets the last known holder, and whether it is of this process.
    #[must_use]
    pub fn with_holder(mut self, holder: Option<Box<Record>>, is_here: bool) -> Self {
        self.holder = holder;
        self.holder_is_here = is_here;
        self
    }
}

impl fmt::Display for WaitReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tries = if self.tries == 1 { "try" } else { "tries" };
        write!(f, "{:?} was not free", self.key)?;
        write!(f, " after {} {tries} in {:.3} s: ", self.tries, self.waited.as_secs_f64())?;
        match &self.cause {
            WaitCause::Held => f.write_str("it is held")?,
            WaitCause::GrantedTooLate => {
                f.write_str("the grant came too late for its term to be trusted")?;
            }
            WaitCause::Store(error) => write!(f, "{error}")?,
            WaitCause::Exhausted => f.write_str("the back-off ended the wait")?,
        }
        match &self.holder {
            Some(holder) if self.holder_is_here => {
                write!(f, "; its holder, of this very process, is {}", holder.who())
            }
            Some(holder) => write!(f, "; its holder is {}", holder.who()),
            None => Ok(()),
        }
    }
}

/// What the nodes of a quorum reported; empty for any other store. Cheap to clone.
#[derive(Clone, Default)]
pub struct NodeReports(Option<Arc<[NodeReport]>>);

impl NodeReports {
    /// True if it comes from a quorum.
    pub fn is_of_quorum(&self) -> bool {
        self.0.is_some()
    }

    /// The same reports, about one lease of the request only.
    #[must_use]
    pub fn of_lease(&self, at: usize) -> Self {
        let one = |report: &NodeReport| NodeReport {
            node: report.node.clone(),
            error: report.error.clone(),
            leases: report.leases.get(at).cloned().into_iter().collect(),
        };
        Self(self.0.as_deref().map(|reports| reports.iter().map(one).collect()))
    }
}

impl Deref for NodeReports {
    type Target = [NodeReport];

    fn deref(&self) -> &[NodeReport] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl FromIterator<NodeReport> for NodeReports {
    fn from_iter<I: IntoIterator<Item = NodeReport>>(reports: I) -> Self {
        Self(Some(reports.into_iter().collect()))
    }
}

impl fmt::Debug for NodeReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// What one node of a quorum reported.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NodeReport {
    /// The node, without secrets.
    pub node: String,
    /// Its failure, if it failed.
    pub error: Option<Error>,
    /// What it did about each lease of the request, in order; one for an acquire. Empty for other requests, and
    /// for a node that failed or has not answered.
    pub leases: Vec<NodeOutcome>,
}

/// What one node of a quorum did about one lease.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum NodeOutcome {
    /// It granted the lease, or confirmed it.
    Granted,
    /// Another lease held a key there.
    Refused,
    /// It still held the lease and extended it.
    Renewed,
    /// It no longer held the lease.
    Lost,
    /// It held the lease until now.
    Released,
    /// It held the lease until now, and its keys stay taken for a while.
    Kept,
    /// The lease's term had passed there.
    Expired,
    /// It did not have the lease.
    NotHeld,
    /// This lease failed there.
    Failed(Error),
}

impl NodeReport {
    /// A node that answered.
    pub fn new(node: impl Into<String>) -> Self {
        Self { node: node.into(), error: None, leases: Vec::new() }
    }

    /// A node that failed.
    pub fn failed(node: impl Into<String>, error: Error) -> Self {
        Self { node: node.into(), error: Some(error), leases: Vec::new() }
    }

    /// Sets what it did about each lease.
    #[must_use]
    pub fn with_leases(mut self, leases: Vec<NodeOutcome>) -> Self {
        self.leases = leases;
        self
    }
}
