//! Requests about one lease act in the order in which they were sent, whatever connections they use.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::LeaseId;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The leases with unanswered requests that nothing may pass.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// The connections of the requests.
    unanswered: Mutex<HashMap<LeaseId, Vec<u64>>>,
    changed: Notify,
}

impl Order {
    fn unanswered(&self) -> MutexGuard<'_, HashMap<LeaseId, Vec<u64>>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends after a request is answered or given up from now on.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Whether requests about these leases may be sent on this connection: a server answers in order what it gets on one
    /// connection. If so, and if nothing may pass them, they are remembered until [`leave`](Self::leave).
    pub(crate) fn enter(&self, leases: &[LeaseId], connection: u64, may_be_passed: bool) -> bool {
        if leases.is_empty() {
            return true;
        }
        let mut unanswered = self.unanswered();
        let stalls = |lease| {
            let on = unanswered.get(lease).map_or(&[][..], Vec::as_slice);
            on.iter().any(|other| *other != connection)
        };
        if leases.iter().any(stalls) {
            return false;
        }
        if !may_be_passed {
            for lease in leases {
                unanswered.entry(lease.clone()).or_default().push(connection);
            }
        }
        true
    }

    /// Requests about these leases on this connection, which nothing was to pass, are answered or given up.
    pub(crate) fn leave(&self, leases: &[LeaseId], connection: u64) {
        {
            let mut unanswered = self.unanswered();
            for lease in leases {
                let Some(on) = unanswered.get_mut(lease) else { continue };
                if let Some(at) = on.iter().position(|other| *other == connection) {
                    on.swap_remove(at);
                }
                if on.is_empty() {
                    unanswered.remove(lease);
                }
            }
        }
        self.changed.notify_waiters();
    }
}
