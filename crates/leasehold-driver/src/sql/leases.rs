use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::{
    AcquireReply, AcquireRequest, Effect, Error, EvictReply, EvictRequest, EvictScope, Key,
    ListReply, ListRequest, RefusalReason, Refused, ReleaseOutcome, ReleaseReply, ReleaseRequest,
    RenewOutcome, RenewReply, RenewRequest, Result,
};

use super::entry::{Done, Entry};
use super::lane::Lane;
use super::page;
use super::position::Position;
use super::purge;
use super::server::{SqlServer, locked, outliving, unanswered};
use crate::{Combiner, Deadline, Turn};

/// The most requests that travel together.
const MOST: usize = 1_000;

/// The operations on the leases in the rows of a server.
///
/// Requests about exclusive leases of one key that arrive while others are under way travel together; all others have an
/// exchange each. Requests outlive their callers (C15).
pub struct SqlLeases<S: SqlServer> {
    server: Arc<S>,
    lane: Combiner<Lane<S>>,
    /// Where the next purge continues, so that a small one need not begin at the start.
    purged_to: Mutex<Position>,
}

impl<S: SqlServer> SqlLeases<S> {
    /// The leases in the rows of this server.
    pub fn new(server: Arc<S>) -> Self {
        let lane = Combiner::new(Lane::new(Arc::clone(&server)), MOST, server.lanes());
        Self { server, lane, purged_to: Mutex::default() }
    }

    /// Acquires. `alone` keeps the request from travelling with others: that of a waiter, whose try must see what others
    /// did before.
    ///
    /// # Errors
    /// Those of [`Store::acquire`](leasehold_core::Store::acquire).
    pub async fn acquire(&self, request: &AcquireRequest, alone: bool) -> Result<AcquireReply> {
        let (entry, until) = (Arc::new(Entry::Acquire(request.clone())), self.deadline());
        let turn = if alone { None } else { self.turn(&entry, until) };
        match self.carry_out(entry, turn, until).await? {
            Some(Done::Acquired(reply)) => Ok(reply),
            Some(other) => Err(self.odd(&other)),
            None => {
                let key = request.claims().first().key.clone();
                Ok(AcquireReply::Refused(Refused::new(key, RefusalReason::Busy, None)))
            }
        }
    }

    /// Renews.
    ///
    /// # Errors
    /// Those of [`Store::renew`](leasehold_core::Store::renew).
    pub async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        let leases = request.leases();
        let keys = leases.iter().flat_map(|lease| lease.claims().keys());
        let entries = leases.iter().cloned().map(Entry::Renew);
        let outcomes =
            self.carry_out_all(entries, keys).await.into_iter().map(|done| match done? {
                Some(Done::Renewed(outcome)) => Ok(outcome),
                Some(other) => Err(self.odd(&other)),
                None => Err(locked(self.server.name())),
            });
        all_or(outcomes.collect(), RenewOutcome::Failed).map(RenewReply::new)
    }

    /// Releases.
    ///
    /// # Errors
    /// Those of [`Store::release`](leasehold_core::Store::release).
    pub async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        let leases = request.leases();
        let keys = leases.iter().flat_map(|lease| lease.keys());
        let entries = leases.iter().cloned().map(Entry::Release);
        let outcomes =
            self.carry_out_all(entries, keys).await.into_iter().map(|done| match done? {
                Some(Done::Released(outcome)) => Ok(outcome),
                Some(other) => Err(self.odd(&other)),
                None => Err(locked(self.server.name())),
            });
        all_or(outcomes.collect(), ReleaseOutcome::Failed).map(ReleaseReply::new)
    }

    /// Lists.
    ///
    /// # Errors
    /// Those of [`Store::list`](leasehold_core::Store::list).
    pub async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        page::list(&*self.server, request).await
    }

    /// Evicts.
    ///
    /// # Errors
    /// Those of [`Store::evict`](leasehold_core::Store::evict).
    pub async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        let (server, request) = (Arc::clone(&self.server), request.clone());
        match request.what() {
            EvictScope::Exactly { .. } => {
                outliving(async move { evict_exactly(&*server, &request).await }).await
            }
            EvictScope::Expired(filter) => {
                purge::purge(&server, filter, request.limit(), &self.purged_to).await
            }
        }
    }

    /// Carries out all entries at once, or one after the other if a key is named twice.
    async fn carry_out_all<'a>(
        &self,
        entries: impl Iterator<Item = Entry>,
        mut keys: impl Iterator<Item = &'a Key>,
    ) -> Vec<Result<Option<Done>>> {
        let (entries, until): (Vec<_>, _) = (entries.map(Arc::new).collect(), self.deadline());
        let mut named = HashSet::new();
        if keys.all(|key| named.insert(key)) {
            let simple = entries.iter().filter(|entry| entry.is_simple());
            let mut turns = self.lane.enter(simple.map(|entry| (Arc::clone(entry), until)));
            let outcomes = entries.into_iter().map(|entry| {
                let turn = if entry.is_simple() { turns.next() } else { None };
                self.carry_out(entry, turn, until)
            });
            return join_all(outcomes).await;
        }
        let mut outcomes = Vec::new();
        for entry in entries {
            let turn = self.turn(&entry, until);
            outcomes.push(self.carry_out(entry, turn, until).await);
        }
        outcomes
    }

    fn turn(&self, entry: &Arc<Entry>, until: Deadline) -> Option<Turn<Lane<S>>> {
        entry.is_simple().then(|| self.lane.enter([(Arc::clone(entry), until)]).next()).flatten()
    }

    /// Carries out an entry, apart if it has no turn with others. `None` if somebody else's transaction held a row for the
    /// whole time limit.
    async fn carry_out(
        &self,
        entry: Arc<Entry>,
        turn: Option<Turn<Lane<S>>>,
        until: Deadline,
    ) -> Result<Option<Done>> {
        let patience = entry.patience(self.server.timeout());
        if let Some(turn) = turn {
            if let Some(done) = self.in_time(patience, turn, until).await {
                return done.map(Some);
            }
        }
        let server = Arc::clone(&self.server);
        outliving(async move { server.send_apart(&entry, until).await }).await
    }

    /// The reply to an entry that is sent with others. `None` if it did not act, and must be sent apart.
    async fn in_time(
        &self,
        patience: Duration,
        mut turn: Turn<Lane<S>>,
        until: Deadline,
    ) -> Option<Result<Done>> {
        while !until.left().is_zero() {
            match until.within(patience).bound(turn.reply()).await {
                Some(done) => return done,
                None => self.lane.pass(patience),
            }
        }
        // What was not sent has no effect.
        let effect = if turn.withdraw() { Effect::NotApplied } else { Effect::Unknown };
        Some(Err(unanswered(self.server.name(), until, effect)))
    }

    fn deadline(&self) -> Deadline {
        Deadline::after(self.server.timeout())
    }

    fn odd(&self, done: &Done) -> Error {
        Error::unexpected(format!("{} answered another request: {done:?}", self.server.name()))
    }
}

async fn evict_exactly(server: &impl SqlServer, request: &EvictRequest) -> Result<EvictReply> {
    let EvictScope::Exactly { targets, reason } = request.what() else {
        return Ok(EvictReply::new(Vec::new(), 0, false));
    };
    let most = request.limit().min(targets.len());
    // Every lease here has an id.
    let named: Vec<_> =
        targets[..most].iter().filter(|target| target.id.is_some()).cloned().collect();
    let mut removed = Vec::new();
    for nth in server.evict(&named, reason.as_ref()).await? {
        let target = usize::try_from(nth - 1).ok().and_then(|nth| named.get(nth));
        removed.push(target.cloned().ok_or_else(|| {
            Error::unexpected(format!("{} evicted what nobody named", server.name()))
                .with_effect(Effect::Unknown)
        })?);
    }
    Ok(EvictReply::new(removed, 0, most < targets.len()))
}

/// The outcomes; the failure of all if all failed.
fn all_or<T>(outcomes: Vec<Result<T>>, failed: impl Fn(Error) -> T) -> Result<Vec<T>> {
    if outcomes.iter().all(Result::is_err) {
        let failures = outcomes.into_iter().filter_map(Result::err);
        let worst = failures.max_by_key(|failure| failure.effect() == Effect::Unknown);
        return worst.map_or(Ok(Vec::new()), Err);
    }
    Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(&failed)).collect())
}

impl<S: SqlServer> fmt::Debug for SqlLeases<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqlLeases({})", self.server.name())
    }
}
