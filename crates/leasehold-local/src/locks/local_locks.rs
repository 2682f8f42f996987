use std::fmt;
use std::sync::{Arc, Weak};

use leasehold_core::Key;
use tokio::task::coop::consume_budget;

use super::anchor::Anchor;
use super::config::LocksConfig;
use super::entry::Entry;
use super::error::LockError;
use super::guard::Guard;
use super::holder::{AGED, LockId, NEVER, State};
use super::keys::{Claims, Keys};
use super::lock::{Grant, Lock};
use super::options::Options;
use super::owner::{Owner, OwnersTable};
use super::release::ReleaseOutcome;
use super::request::Terms;
use super::sweeps::Swept;
use super::table::{LockKey, Table};
use super::wait::{AsyncWait, Wait};

/// Locks by key among the threads and tasks of this process. Clones share their table.
///
/// See the [module](super) for what it guarantees.
pub struct LocalLocks<K: LockKey = Key>(pub(super) Arc<Handle<K>>);

/// What the handles of a table share.
pub(super) struct Handle<K> {
    table: Arc<Table<K>>,
    /// One for each shard.
    anchors: Box<[Anchor<K>]>,
    pub(super) config: LocksConfig,
}

impl<K: LockKey> LocalLocks<K> {
    /// A table of its own, on the machine's clocks.
    pub fn new() -> Self {
        let config = LocksConfig::new();
        Self::of_table(&Arc::new(Table::new(&config, None)), config)
    }

    /// A table of its own.
    ///
    /// # Errors
    /// [`LockError::Invalid`] if a value of `config` is out of its range.
    pub fn with_config(config: LocksConfig) -> Result<Self, LockError> {
        Self::new_with(config, |_| ())
    }

    /// A table of its own, with which `on_init` is called once, before anybody else has it.
    ///
    /// # Errors
    /// As [`with_config`](Self::with_config); then `on_init` is not called.
    pub fn new_with(config: LocksConfig, on_init: impl FnOnce(&Self)) -> Result<Self, LockError> {
        config.check()?;
        let locks = Self::of_table(&Arc::new(Table::new(&config, None)), config);
        on_init(&locks);
        Ok(locks)
    }

    pub(super) fn of_table(table: &Arc<Table<K>>, config: LocksConfig) -> Self {
        let anchors = (0..config.shards).map(|_| Anchor::new(table)).collect();
        Self(Arc::new(Handle { table: table.clone(), anchors, config }))
    }

    pub(super) fn table(&self) -> &Arc<Table<K>> {
        &self.0.table
    }

    /// Takes a lock if that is possible at once: nobody else holds a key, or waits for it, in a way that excludes it.
    ///
    /// # Errors
    /// [`LockError::Held`] if it is not; [`LockError::Invalid`] without keys, with a key in two modes, or with a lock
    /// time-out of zero.
    #[inline]
    pub fn try_acquire(
        &self,
        keys: impl Into<Keys<K>>,
        options: &Options,
    ) -> Result<Guard<K>, LockError> {
        self.attempt(self.claims(keys)?, options)
    }

    /// Takes a lock on the calling thread, which parks while it waits.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] after the last attempt or the deadline; [`LockError::HeldByThisScope`] instead of a wait if
    /// the scope that runs on this thread holds a key; [`LockError::Invalid`] as [`try_acquire`](Self::try_acquire).
    #[inline]
    pub fn acquire_blocking(
        &self,
        keys: impl Into<Keys<K>>,
        options: &Options,
    ) -> Result<Guard<K>, LockError> {
        self.claim_blocking(self.claims(keys)?, options)
    }

    /// Takes a lock, on any executor. A wait with a time-out, its own or that of a lock that it waits for, uses the
    /// timers of the table's clock. With the default clock these are tokio's, or outside tokio the thread that sweeps.
    ///
    /// On a tokio runtime, a task that always finds its keys free yields to the others from time to time, like one that
    /// uses tokio's own locks.
    ///
    /// # Errors
    /// As [`acquire_blocking`](Self::acquire_blocking).
    ///
    /// # Panics
    /// If such a wait runs on a tokio runtime that was built without `enable_time`.
    ///
    /// # Cancel safety
    /// May be dropped at any time: it then gives up its place, and what it had been granted goes to the next.
    pub async fn acquire(
        &self,
        keys: impl Into<Keys<K>>,
        options: &Options,
    ) -> Result<Guard<K>, LockError> {
        self.claim(self.claims(keys)?, options).await
    }

    /// Takes the whole table if nobody holds or waits for any key of it.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire).
    pub fn try_acquire_all(&self, options: &Options) -> Result<Guard<K>, LockError> {
        self.attempt(Claims::Whole, options)
    }

    /// Takes the whole table on the calling thread: it excludes every key, and is excluded by every key.
    ///
    /// # Errors
    /// As [`acquire_blocking`](Self::acquire_blocking).
    pub fn acquire_all_blocking(&self, options: &Options) -> Result<Guard<K>, LockError> {
        self.claim_blocking(Claims::Whole, options)
    }

    /// Takes the whole table: it excludes every key, and is excluded by every key.
    ///
    /// # Errors
    /// As [`acquire_blocking`](Self::acquire_blocking).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_all(&self, options: &Options) -> Result<Guard<K>, LockError> {
        self.claim(Claims::Whole, options).await
    }

    /// Releases a lock that was [kept](Guard::keep) without its guard.
    pub fn release(&self, id: LockId) -> ReleaseOutcome {
        let table = self.table();
        table.kept.take(id).map_or(ReleaseOutcome::NotHeld, |lock| lock.release(table, id))
    }

    /// Releases what `owner` holds of some keys, whichever lock it belongs to, and says for how many keys.
    ///
    /// # Errors
    /// [`LockError::Invalid`] without keys.
    pub fn release_keys(
        &self,
        owner: impl Into<Owner>,
        keys: impl Into<Keys<K>>,
    ) -> Result<usize, LockError> {
        let (claims, owner) = (self.claims(keys)?, owner.into());
        Ok(self.table().remove(&claims, |holder| holder.owner.as_ref() == Some(&owner)))
    }

    /// Releases some keys whoever holds them, and says how many holders that ended. They learn of it when they
    /// release: until then two can believe that they hold the lock. Leases of a store over this table stay.
    ///
    /// # Errors
    /// [`LockError::Invalid`] without keys.
    pub fn force_release(&self, keys: impl Into<Keys<K>>) -> Result<usize, LockError> {
        Ok(self.table().remove(&self.claims(keys)?, |holder| holder.state != State::Reserved))
    }

    /// Releases the lock of the whole table whoever holds it, and says whether anybody did.
    pub fn force_release_all(&self) -> bool {
        self.table().remove(&Claims::Whole, |_| true) > 0
    }

    /// All locks in key order, one entry for each key and holder, the whole table's first. Leases of a store over this table
    /// are not among them.
    ///
    /// Shard after shard is looked at, so locks that are taken or released meanwhile may or may not be among them.
    pub fn entries(&self) -> Vec<Entry<K>> {
        self.table().entries()
    }

    /// True if nobody holds or waits for a lock. Then the table keeps nothing.
    pub fn is_empty(&self) -> bool {
        self.table().is_empty()
    }

    /// Removes the locks that are stale, and says how many. Such a sweep is also made
    /// [periodically](LocksConfig::sweep_every).
    pub fn sweep(&self) -> Swept {
        self.table().sweep()
    }

    /// What all sweeps did so far.
    pub fn swept(&self) -> Swept {
        self.table().sweeps.totals()
    }

    #[inline]
    fn claims(&self, keys: impl Into<Keys<K>>) -> Result<Claims<K>, LockError> {
        Claims::new(keys.into(), &self.table().hasher)
    }

    #[inline]
    fn attempt(&self, claims: Claims<K>, options: &Options) -> Result<Guard<K>, LockError> {
        let terms = self.terms(options)?;
        if let Some(grant) = self.table().acquire_fast(&claims, &terms) {
            return Ok(self.guard(grant, claims, terms));
        }
        self.attempt_slowly(claims, terms)
    }

    #[inline(never)]
    fn attempt_slowly(&self, claims: Claims<K>, terms: Terms) -> Result<Guard<K>, LockError> {
        let grant = self.table().try_enter(&claims, &terms)?;
        Ok(self.guard(grant, claims, terms))
    }

    #[inline]
    pub(super) fn claim_blocking(
        &self,
        claims: Claims<K>,
        options: &Options,
    ) -> Result<Guard<K>, LockError> {
        let terms = self.terms(options)?;
        if let Some(grant) = self.table().acquire_fast(&claims, &terms) {
            return Ok(self.guard(grant, claims, terms));
        }
        self.wait_blocking(claims, terms, options)
    }

    #[inline(never)]
    fn wait_blocking(
        &self,
        claims: Claims<K>,
        terms: Terms,
        options: &Options,
    ) -> Result<Guard<K>, LockError> {
        let grant = Wait::new(self.table(), &claims, &terms, options).block()?;
        Ok(self.guard(grant, claims, terms))
    }

    pub(super) async fn claim(
        &self,
        claims: Claims<K>,
        options: &Options,
    ) -> Result<Guard<K>, LockError> {
        // A task that never has to wait would keep its thread from all others.
        consume_budget().await;
        let terms = self.terms(options)?;
        let grant = match self.table().acquire_fast(&claims, &terms) {
            Some(grant) => grant,
            None => AsyncWait::new(Wait::new(self.table(), &claims, &terms, options)).await?,
        };
        Ok(self.guard(grant, claims, terms))
    }

    /// Checks the options, and prepares for the death of the owner.
    #[inline]
    fn terms(&self, options: &Options) -> Result<Terms, LockError> {
        let mut terms = options.terms()?;
        if self.0.config.ages {
            terms.timeout = terms.timeout.min(AGED);
        }
        if let Some(owner) = &terms.owner {
            self.follow(owner);
        }
        Ok(terms)
    }

    #[inline(never)]
    fn follow(&self, owner: &Owner) {
        let table: Weak<dyn OwnersTable> = Arc::downgrade(self.table()) as _;
        owner.tell(table);
    }

    #[inline]
    fn guard(&self, grant: Grant, claims: Claims<K>, terms: Terms) -> Guard<K> {
        let Grant { id, term } = grant;
        if term.ends() != NEVER || terms.owner.is_some() {
            self.table().ensure_sweeps(term.began());
        }
        let index = claims.keyed().first().map_or(0, |claim| self.table().index(claim.hash));
        let lock = Lock { claims, ends: term.ends(), owner: terms.owner };
        Guard::new(&self.0.anchors[index], id, lock)
    }
}

impl<K: LockKey> Clone for LocalLocks<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: LockKey> Default for LocalLocks<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: LockKey> fmt::Debug for LocalLocks<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalLocks").field("name", &self.name()).finish_non_exhaustive()
    }
}
