use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::LeaseId;
use tokio::sync::Notify;

/// The lease ids that a request of this `Locker` may still name (C3). A try with a caller's own id, and the
/// adoption of a lease, start only when every earlier request that names the id has been answered.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    named: Mutex<HashSet<LeaseId>>,
    freed: Notify,
}

/// Held by everything that names the id: the try, the lease, its renewals, its release.
#[derive(Debug)]
pub(crate) struct Named {
    id: LeaseId,
    ids: Arc<Ids>,
}

impl Ids {
    /// Takes the id, unless a request still names it.
    pub(crate) fn try_name(self: &Arc<Self>, id: &LeaseId) -> Option<Arc<Named>> {
        let new = self.named().insert(id.clone());
        new.then(|| Arc::new(Named { id: id.clone(), ids: Arc::clone(self) }))
    }

    /// Takes the id when nothing names it any more.
    pub(crate) async fn name(self: &Arc<Self>, id: &LeaseId) -> Arc<Named> {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(named) = self.try_name(id) {
                return named;
            }
            freed.await;
        }
    }

    fn named(&self) -> MutexGuard<'_, HashSet<LeaseId>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.ids.named().remove(&self.id);
        self.ids.freed.notify_waiters();
    }
}
