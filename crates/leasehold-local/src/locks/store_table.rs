use std::hash::BuildHasher;
use std::sync::Arc;

use futures_util::{Stream, stream};
use leasehold_core::{
    AcquireReply, AcquireRequest, Clock, EvictReply, EvictRequest, EvictTarget, Key, Mode,
    ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Result, Table as Rules, Wakeups,
};
use tokio::sync::broadcast::{self, error::RecvError};

use super::config::LocksConfig;
use super::keys::{Claim, Claims};
use super::local_locks::LocalLocks;
use super::places::{Listening, Places};
use super::table::Table;

/// How many hints a slow waiter may lag behind before a single hint replaces them.
const HINTS: usize = 256;

/// A table as a store sees it: leases, and who waits for them.
pub(crate) struct StoreTable {
    pub(super) table: Arc<Table<Key>>,
    freed: broadcast::Sender<Key>,
    /// The places of refused requests, if there can be locks beside the leases.
    places: Option<Places>,
}

impl StoreTable {
    /// A table of its own, which only the store uses.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let config = LocksConfig::new().clock(clock).sweep_never();
        let freed = broadcast::Sender::new(HINTS);
        Self { table: Arc::new(Table::new(&config, None)), freed, places: None }
    }

    /// The table of these locks.
    pub(crate) fn over(locks: &LocalLocks<Key>) -> Self {
        let (table, freed) = (locks.table().clone(), broadcast::Sender::new(HINTS));
        let places = Some(Places::new(table.clone(), freed.clone()));
        Self { table, freed, places }
    }

    /// True if refused requests have places.
    pub(crate) fn is_fair(&self) -> bool {
        self.places.is_some()
    }

    /// What no other table of this process is called.
    pub(crate) fn address(&self) -> *const () {
        Arc::as_ptr(&self.table).cast()
    }

    pub(crate) fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        if let Some(reply) = self.table.acquire_unheld(request) {
            return reply;
        }
        let claims = request.claims();
        let claims = match claims.len() {
            1 => Claims::One([self.claim(claims.first().key.clone(), claims.first().mode)]),
            _ => {
                Claims::of(claims.iter().map(|one| self.claim(one.key.clone(), one.mode)).collect())
            }
        };
        match &self.places {
            None => self.table.acquire_lease(request, &claims, None, false).reply,
            Some(places) => places.acquire(request, &claims),
        }
    }

    pub(crate) fn renew(&self, request: &RenewRequest) -> RenewReply {
        let keys = request.leases().iter().flat_map(|lease| lease.claims().keys());
        self.table.decide(&self.claims(keys), |rules, now| rules.renew(request, now))
    }

    pub(crate) fn release(&self, request: &ReleaseRequest) -> ReleaseReply {
        if let Some(outcome) = self.table.release_only(request) {
            return ReleaseReply::new(vec![outcome]);
        }
        let keys = request.leases().iter().flat_map(|lease| lease.keys());
        self.table.decide(&self.claims(keys), |rules, now| rules.release(request, now))
    }

    /// Removes exactly what is named; a target without an id is a lock beside the leases.
    pub(crate) fn evict(&self, targets: &[EvictTarget], request: &EvictRequest) -> EvictReply {
        let keys = targets.iter().map(|target| &target.key);
        let evict = |rules: &mut Rules, now| rules.evict(request, now);
        let mut evicted = self.table.decide(&self.claims(keys), evict);
        for target in targets.iter().filter(|target| target.id.is_none() && target.token.is_none())
        {
            if evicted.removed.len() < request.limit() && self.table.force_one(&target.key) {
                evicted.removed.push(target.clone());
            }
        }
        evicted
    }

    /// Wakes who listens for these keys.
    pub(crate) fn wake(&self, keys: impl IntoIterator<Item = Key>) {
        if self.freed.receiver_count() > 0 {
            for key in keys {
                // Having no listener is not a failure: a wake-up is a hint.
                self.freed.send(key).unwrap_or_default();
            }
        }
    }

    /// Hints for who listens for these keys.
    pub(crate) fn subscribe(&self, keys: &[Key]) -> Wakeups {
        let hints = hints(self.freed.subscribe(), keys.into());
        match &self.places {
            None => Wakeups::new(hints),
            Some(places) => Wakeups::new(Listening::new(Box::pin(hints), keys, places.clone())),
        }
    }

    /// Claims on these keys, in key order and each once.
    pub(super) fn claims<'k>(&self, keys: impl IntoIterator<Item = &'k Key>) -> Vec<Claim<Key>> {
        let claims = keys.into_iter().map(|key| self.claim(key.clone(), Mode::Exclusive));
        let mut claims: Vec<_> = claims.collect();
        claims.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        claims.dedup_by(|one, other| one.key == other.key);
        claims
    }

    fn claim(&self, key: Key, mode: Mode) -> Claim<Key> {
        Claim { hash: self.table.hasher.hash_one(&key), key, mode }
    }
}

fn hints(
    freed: broadcast::Receiver<Key>,
    keys: Arc<[Key]>,
) -> impl Stream<Item = Key> + Send + 'static {
    stream::unfold((freed, keys), |(mut freed, keys)| async move {
        loop {
            match freed.recv().await {
                Ok(key) if keys.contains(&key) => return Some((key, (freed, keys))),
                Ok(_) => {}
                // A missed hint may have been for this key.
                Err(RecvError::Lagged(_)) => {
                    return Some((keys.first()?.clone(), (freed, keys)));
                }
                Err(RecvError::Closed) => return None,
            }
        }
    })
}
