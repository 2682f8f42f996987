use std::sync::Arc;

use leasehold_core::{
    Error, Filter, Key, Lease, LeaseId, LeaseReleased, LeaseRenewed, MAX_ENTRIES, Owner, Record,
    Release, Remaining, Renew, Result, Store,
};

use crate::acquiring::Acquiring;
use crate::guard::Guard;
use crate::held::{Held, Verdict, left, unanswered};
use crate::keeper::Releasing;
use crate::locker::Locker;

/// The leases under one label that this [`Locker`] opened or adopted (F9).
///
/// The label is no identity: two leases of one owner exclude each other like any others. To end leases that
/// other processes hold under the label, [`list`](Group::list) and [`Locker::evict`] them.
#[derive(Debug, Clone)]
pub struct Group {
    locks: Locker,
    owner: Owner,
}

impl Group {
    pub(crate) fn new(locks: Locker, owner: Owner) -> Self {
        Self { locks, owner }
    }

    /// Locks `key` under this owner.
    pub fn lock<K: TryInto<Key, Error: Into<Error>>>(&self, key: K) -> Acquiring<Guard> {
        self.locks.lock(key).owner(&self.owner)
    }

    /// Tries once to lock `key` under this owner.
    pub fn try_lock<K: TryInto<Key, Error: Into<Error>>>(
        &self,
        key: K,
    ) -> Acquiring<Option<Guard>> {
        self.locks.try_lock(key).owner(&self.owner)
    }

    /// Locks all `keys` or none under this owner.
    pub fn lock_all<K: TryInto<Key, Error: Into<Error>>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Acquiring<Guard> {
        self.locks.lock_all(keys).owner(&self.owner)
    }

    /// The leases held here, oldest first.
    pub fn leases(&self) -> Vec<Lease> {
        self.held().iter().map(|held| held.lease.clone()).collect()
    }

    /// All live records of this owner in the store, whoever opened them.
    ///
    /// # Errors
    /// As any operation.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn list(&self) -> Result<Vec<Record>> {
        self.locks.list(Filter::default().with_owner(self.owner.clone())).await
    }

    /// Renews every lease held here, oldest first, each with its own fate.
    ///
    /// # Errors
    /// Each entry's own; as a whole only if the store could not be asked.
    ///
    /// # Cancel safety
    /// May be dropped; the leases may have been renewed.
    pub async fn renew(&self) -> Result<Vec<(LeaseId, Result<Remaining>)>> {
        let keeper = &self.locks.0.keeper;
        let mut outcomes = Vec::new();
        for batch in self.held().chunks(MAX_ENTRIES) {
            let sent = keeper.clock.now();
            let request = Renew::new(batch.iter().map(|held| held.renewal(sent)).collect());
            let mut answers = keeper.store.renew(&request).await?.leases.into_iter();
            for held in batch {
                let answer =
                    answers.next().unwrap_or(LeaseRenewed::Failed(unanswered(keeper.limit)));
                let failure = match &answer {
                    LeaseRenewed::Failed(error) => Some(error.clone()),
                    LeaseRenewed::Held(_) | LeaseRenewed::Lost(_) => None,
                };
                let outcome = match (keeper.apply_renewal(held, sent, answer), failure) {
                    (Verdict::Held(_), Some(error)) => Err(error),
                    (Verdict::Held(deadline), None) => Ok(left(deadline, keeper.clock.now())),
                    (Verdict::Lost { reason, .. }, _) => Err(Error::lease_lost(reason)),
                    (Verdict::Released, _) => continue,
                };
                outcomes.push((held.lease.id.clone(), outcome));
            }
        }
        Ok(outcomes)
    }

    /// Releases every lease held here, newest first; their guards then hold nothing.
    ///
    /// A lease that was lost already is released in the background and not named in the result. What the
    /// store did not answer is released in the background too.
    ///
    /// # Errors
    /// Each entry's own; as a whole only if the store could not be asked.
    ///
    /// # Cancel safety
    /// May be dropped: what was begun is finished in the background.
    pub async fn release(&self) -> Result<Vec<(LeaseId, LeaseReleased)>> {
        let keeper = &self.locks.0.keeper;
        let mut held = self.held();
        held.reverse();
        held.retain(|held| matches!(keeper.finish(held), Verdict::Held(_)));
        let mut outcomes = Vec::new();
        // Whatever is not answered is left to the Keeper, also if this future is dropped.
        let mut pending = Pending { locks: &self.locks, held };
        while !pending.held.is_empty() {
            let now = keeper.clock.now();
            let batch = &pending.held[..pending.held.len().min(MAX_ENTRIES)];
            let request = Release::new(batch.iter().map(|held| held.ending(now)).collect());
            let answers = keeper.release_now(&request).await?;
            let batch: Vec<_> = pending.held.drain(..request.leases().len()).collect();
            for (held, answer) in batch.into_iter().zip(answers) {
                if matches!(answer, LeaseReleased::Failed(_)) {
                    keeper.release(Releasing::of(&held, now));
                }
                outcomes.push((held.lease.id.clone(), answer));
            }
        }
        Ok(outcomes)
    }

    fn held(&self) -> Vec<Arc<Held>> {
        let mut held = self.locks.0.keeper.leases();
        held.retain(|held| held.lease.owner.as_ref() == Some(&self.owner));
        held
    }
}

/// Leases that were given up and whose release is not answered.
struct Pending<'a> {
    locks: &'a Locker,
    held: Vec<Arc<Held>>,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let keeper = &self.locks.0.keeper;
        for held in &self.held {
            keeper.release(Releasing::of(held, keeper.clock.now()));
        }
    }
}
