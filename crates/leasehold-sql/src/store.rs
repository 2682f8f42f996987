//! The store.

use std::fmt;
use std::sync::{Arc, Mutex};

use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, EvictReply, EvictRequest, EvictScope, Health, Key,
    ListReply, ListRequest, ReleaseOutcome, ReleaseReply, ReleaseRequest, RenewOutcome, RenewReply,
    RenewRequest, Result, Store, Wakeups, each_or_worst,
};
use leasehold_driver::batches::{Batches, Sizes};
use leasehold_driver::outliving;

use crate::dialect::{Dialect, Eviction, Statements};
use crate::error::{locked, unexpected};
use crate::exchange::{Reserved, send_alone};
use crate::list;
use crate::position::Position;
use crate::purge;
use crate::request::Request;

/// The most requests of a batch.
const MOST: usize = 1_000;

/// If more requests than these wait, a second batch at a time is faster.
const MANY: usize = 40;

/// Leases in the tables of a SQL server. Cheap to clone; clones share the connections.
///
/// Requests for exclusive locks of one key that arrive while others are under way are sent in batches, each in one
/// transaction; all other requests have a transaction each. No request is part of a transaction of yours. If a reply is
/// lost, the error's effect is `Unknown`, and the same request may be sent again.
///
/// # Cancel safety
/// The future of any operation may be dropped: what was sent is carried out all the same, and no other caller is
/// affected.
pub struct SqlStore<D: Dialect>(Arc<Inner<D>>);

struct Inner<D: Dialect> {
    dialect: Arc<D>,
    batches: Batches<Reserved<D>>,
    /// Where the next purge continues, so that a small one need not begin at the start.
    purged_to: Mutex<Position>,
}

impl<D: Dialect> SqlStore<D> {
    /// Connects to the server that `url` names; see `parse` of the store's configuration.
    ///
    /// # Errors
    /// `InvalidInput` for a wrong URL, which no message repeats; `Unavailable`, `Denied` or `Incompatible` if the server
    /// cannot be reached, refuses the login or cannot be used.
    ///
    /// # Cancel safety
    /// May be dropped; nothing stays open.
    pub async fn connect(url: &str) -> Result<Self> {
        Self::of(D::connect(url)).await
    }

    /// A store on the server that this connects to.
    ///
    /// # Errors
    /// Those of connecting.
    #[doc(hidden)]
    pub async fn of(connects: impl Future<Output = Result<D>>) -> Result<Self> {
        let connected = connects.await.map_err(|e| e.with_context(D::NAME, "connect"))?;
        let dialect = Arc::new(connected);
        let (lanes, timeout) = (dialect.pool().lanes, dialect.pool().timeout());
        let are_mixed = dialect.mixes();
        let batches = Batches::new(
            Arc::new(Reserved(Arc::clone(&dialect))),
            Sizes { most: MOST, lanes, many: MANY, are_mixed, share_a_disk: true },
            timeout,
        );
        Ok(Self(Arc::new(Inner { dialect, batches, purged_to: Mutex::default() })))
    }
}

impl<D: Dialect> Store for SqlStore<D> {
    fn capabilities(&self) -> Capabilities {
        let mut can = Capabilities::all(D::NAME);
        can.notifications = self.0.dialect.wakes();
        can.checks_on_use = true;
        can
    }

    async fn check(&self) -> Result<Health> {
        self.capabilities().carry_out("check", &(), || self.0.dialect.check()).await
    }

    async fn prepare(&self) -> Result<()> {
        self.capabilities().carry_out("prepare", &(), || self.0.dialect.prepare()).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.capabilities().carry_out("acquire", request, || self.0.acquire(request)).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        self.capabilities().carry_out("renew", request, || self.0.renew(request)).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        self.capabilities().carry_out("release", request, || self.0.release(request)).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        let listed = list::list(&*self.0.dialect, request);
        self.capabilities().carry_out("list", request, || listed).await
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        self.capabilities().carry_out("evict", request, || self.0.evict(request)).await
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        self.capabilities().carry_out("subscribe", &(), || self.0.dialect.subscribe(keys)).await
    }

    /// Ends the connections that are the store's own, as the protocol requires; those of a caller's pool stay there.
    async fn close(&self) {
        self.0.dialect.close().await;
    }
}

impl<D: Dialect> Inner<D> {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        let is_batched = |one: &AcquireRequest| one.is_simple() && !self.dialect.is_awaited(one);
        let mut outcomes = self.carry_out([request.clone()], is_batched).await;
        let mut reply = outcomes.remove(0)?;
        if let (AcquireReply::Refused(refused), Some(soon)) =
            (&mut reply, self.dialect.poll_within())
        {
            refused.poll_within.get_or_insert(soon);
        }
        Ok(reply)
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        let leases = request.leases().iter().cloned();
        let outcomes = self.carry_out(leases, Request::is_simple).await;
        each_or_worst(outcomes, RenewOutcome::Failed).map(RenewReply::new)
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        let leases = request.leases().iter().cloned();
        let outcomes = self.carry_out(leases, Request::is_simple).await;
        each_or_worst(outcomes, ReleaseOutcome::Failed).map(ReleaseReply::new)
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        let (dialect, request) = (Arc::clone(&self.dialect), request.clone());
        match request.scope() {
            EvictScope::Exactly { .. } => {
                outliving(async move { evict_exactly(&*dialect, &request).await }).await
            }
            EvictScope::Expired(filter) => {
                purge::purge(&dialect, filter, request.limit(), &self.purged_to).await
            }
        }
    }

    async fn carry_out<R: Request>(
        &self,
        requests: impl IntoIterator<Item = R>,
        is_batched: impl Fn(&R) -> bool,
    ) -> Vec<Result<R::Reply>>
    where
        D: Statements<R>,
    {
        let until = self.dialect.pool().deadline();
        let alone = |request: Arc<R>| {
            let dialect = Arc::clone(&self.dialect);
            async move { send_alone(&*dialect, &*request, until).await }
        };
        self.batches.carry_out(requests, until, is_batched, alone).await
    }
}

async fn evict_exactly(dialect: &impl Dialect, request: &EvictRequest) -> Result<EvictReply> {
    let EvictScope::Exactly { targets, reason } = request.scope() else {
        return Ok(EvictReply::new(Vec::new(), 0, false));
    };
    let most = request.limit().min(targets.len());
    // Every lease here has an id.
    let named: Vec<_> =
        targets[..most].iter().filter(|target| target.id.is_some()).cloned().collect();
    let mut removed = Vec::new();
    let pool = dialect.pool();
    let these = Eviction { targets: &named, reason: reason.as_ref() };
    let call = |patience| dialect.evict(these, patience);
    let read = |rows: &[_]| dialect.positions(rows);
    let gone = pool.patiently(pool.deadline(), None, dialect.tries(false), call, read).await?;
    for nth in gone.ok_or_else(|| locked(pool.server()))? {
        let target = usize::try_from(nth - 1).ok().and_then(|nth| named.get(nth));
        removed.push(target.cloned().ok_or_else(|| {
            unexpected(pool.server(), format_args!("an eviction of the target number {nth}"))
        })?);
    }
    Ok(EvictReply::new(removed, 0, most < targets.len()))
}

impl<D: Dialect> Clone for SqlStore<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Dialect> fmt::Debug for SqlStore<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SqlStore({}, {})", D::NAME, self.0.dialect.pool().server())
    }
}
