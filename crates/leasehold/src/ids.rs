use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use leasehold_core::LeaseId;
use tokio::sync::Notify;

/// The lease ids that a request of this `Locker` may still name (C3). A try with a caller's own id, and the
/// adoption of a lease, start only when every earlier request that names the id has been answered.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    named: Mutex<BTreeSet<LeaseId>>,
    freed: Notify,
}

/// Held by everything that names the id: the try, the lease, its renewals, its release.
#[derive(Debug)]
pub(crate) struct Named {
    id: LeaseId,
    ids: Arc<Ids>,
}

/// Held by what takes a lease and gives it back: its try, the lease until it ends, its release until that is
/// answered. Without it nothing is held or asked for; what only mentions the lease, such as a late renewal or
/// the guard of a lease that has ended, holds its name alone.
#[derive(Debug)]
pub(crate) struct Taking {
    pub(crate) named: Arc<Named>,
}

impl Taking {
    pub(crate) fn of(named: Arc<Named>) -> Arc<Self> {
        Arc::new(Self { named })
    }
}

impl Drop for Taking {
    fn drop(&mut self) {
        self.named.ids.freed.notify_waiters();
    }
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

    /// Ends when all that was taken is given back.
    pub(crate) async fn given_back(&self, taken: &[Weak<Taking>]) {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if taken.iter().all(|taking| taking.strong_count() == 0) {
                return;
            }
            freed.await;
        }
    }

    fn named(&self) -> MutexGuard<'_, BTreeSet<LeaseId>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.ids.named().remove(&self.id);
        self.ids.freed.notify_waiters();
    }
}
