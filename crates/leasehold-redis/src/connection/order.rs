//! Requests about one lease act in the order in which they were sent, whatever connections they use.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_core::LeaseId;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The leases with unanswered requests that nothing may pass.
#[derive(Debug, Default)]
pub(crate) struct Order {
    unanswered: Mutex<HashMap<LeaseId, Unanswered>>,
    changed: Notify,
}

/// The unanswered requests about one lease. All are on one connection.
#[derive(Debug)]
struct Unanswered {
    connection: u64,
    count: usize,
}

impl Order {
    fn unanswered(&self) -> MutexGuard<'_, HashMap<LeaseId, Unanswered>> {
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
        let stalls =
            |lease| unanswered.get(lease).is_some_and(|sent| sent.connection != connection);
        if leases.iter().any(stalls) {
            return false;
        }
        if !may_be_passed {
            for lease in leases {
                let none = Unanswered { connection, count: 0 };
                unanswered.entry(lease.clone()).or_insert(none).count += 1;
            }
        }
        true
    }

    /// A request about these leases, which nothing was to pass, is answered or given up.
    pub(crate) fn leave(&self, leases: &[LeaseId]) {
        {
            let mut unanswered = self.unanswered();
            for lease in leases {
                let Some(sent) = unanswered.get_mut(lease) else { continue };
                sent.count -= 1;
                if sent.count == 0 {
                    unanswered.remove(lease);
                }
            }
        }
        self.changed.notify_waiters();
    }
}
