use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold_core::tally::majority;
use leasehold_core::{
    AcquireReply, AcquireRequest, AnyStore, BoxFuture, Capabilities, Clock, Effect, Error,
    ErrorKind, EvictReply, EvictRequest, Health, Key, ListReply, ListRequest, ReleaseReply,
    ReleaseRequest, RenewReply, RenewRequest, Result, Store, Wakeups,
};
use tokio::task::{AbortHandle, JoinHandle};

use crate::check::{one_server, unfit};
use crate::config::{Limits, lacks_tokens};
use crate::node::Servers;

/// Opens a node; called again while the node cannot be opened.
pub type OpenNode = Box<dyn Fn() -> BoxFuture<'static, Result<AnyStore>> + Send + Sync>;

/// How long to wait for a majority: as long as a `Locker`'s first check.
pub(crate) const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// Opens all nodes at once. A node that is not open within `limit` after a majority, or [`OPEN_LIMIT`] without
/// one, is left for later.
///
/// # Cancel safety
/// May be dropped.
pub(crate) async fn open_all(
    nodes: &[OpenNode],
    clock: &dyn Clock,
    limit: Duration,
) -> Vec<Option<Result<AnyStore>>> {
    let mut opened: Vec<_> = nodes.iter().map(|_| None).collect();
    let mut opening: FuturesUnordered<_> = nodes
        .iter()
        .enumerate()
        .map(|(at, open)| {
            let opening = open();
            async move { (at, opening.await) }
        })
        .collect();
    let mut over = clock.sleep_until(clock.now().saturating_add(OPEN_LIMIT));
    let mut has_majority = false;
    loop {
        if !has_majority && open_ones(&opened).count() >= majority(nodes.len()) {
            has_majority = true;
            over = clock.sleep_until(clock.now().saturating_add(limit));
        }
        tokio::select! {
            biased;
            next = opening.next() => match next {
                Some((at, answer)) => opened[at] = Some(answer),
                None => return opened,
            },
            () = &mut over => return opened,
        }
    }
}

/// The nodes that are open.
pub(crate) fn open_ones(opened: &[Option<Result<AnyStore>>]) -> impl Iterator<Item = &AnyStore> {
    opened.iter().flatten().filter_map(|answer| answer.as_ref().ok())
}

/// A node that could not be opened with the others: later requests try again, one at a time.
pub(crate) struct Late(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) open: OpenNode,
    pub(crate) name: String,
    /// The capabilities of another node, so that the quorum can do what all the others can, with the largest margin of
    /// them. The node refuses what it cannot do.
    pub(crate) like: Capabilities,
    pub(crate) limits: Limits,
    pub(crate) fenced: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) servers: Arc<Servers>,
    pub(crate) state: State,
}

#[derive(Default)]
pub(crate) struct State {
    store: OnceLock<AnyStore>,
    /// Set once the store was found fit to take part.
    fit: OnceLock<()>,
    trying: Mutex<Option<AbortHandle>>,
}

impl Late {
    pub(crate) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    /// The node's store, open and fit. The request that starts an attempt to open it waits for that, up to
    /// `limit`; any other fails at once, so that an opened node gets no requests that nobody waits for.
    async fn fit(&self, limit: Duration) -> Result<&AnyStore> {
        let state = &self.0.state;
        if state.fit.get().is_none() {
            self.tried(limit).await?;
        }
        state.store.get().ok_or_else(not_open)
    }

    /// As [`fit`](Self::fit), for requests that may make it fit or state why it is not.
    async fn open(&self) -> Result<&AnyStore> {
        let state = &self.0.state;
        let failed = match state.store.get() {
            Some(_) => None,
            None => self.tried(self.0.limits.of_term(None)).await.err(),
        };
        state.store.get().ok_or_else(|| failed.unwrap_or_else(not_open))
    }

    async fn tried(&self, limit: Duration) -> Result<()> {
        let Some(trying) = self.begin() else { return Err(not_open()) };
        let clock = &self.0.clock;
        tokio::select! {
            biased;
            () = clock.sleep_until(clock.now().saturating_add(limit)) => Err(not_open()),
            tried = trying => tried.unwrap_or_else(|error| {
                let message = "opening it panicked, or its runtime ended";
                Err(Error::unavailable(Effect::NotApplied, message).with_source(error))
            }),
        }
    }

    /// Starts to open it, unless that is in progress.
    #[expect(clippy::disallowed_methods, reason = "an opening outlives the request that began it")]
    fn begin(&self) -> Option<JoinHandle<Result<()>>> {
        let mut trying = self.0.state.trying.lock().unwrap_or_else(PoisonError::into_inner);
        if trying.as_ref().is_some_and(|trying| !trying.is_finished()) {
            return None;
        }
        let inner = Arc::clone(&self.0);
        let task = tokio::spawn(async move { inner.try_to_open().await });
        *trying = Some(task.abort_handle());
        Some(task)
    }
}

impl Inner {
    async fn try_to_open(&self) -> Result<()> {
        let store = match self.state.store.get() {
            Some(store) => store,
            None => {
                let store = (self.open)().await.map_err(|error| {
                    let message = format!("it cannot be opened: {error}");
                    match error.kind() {
                        ErrorKind::Incompatible => Error::incompatible(message),
                        _ => Error::unavailable(Effect::NotApplied, message),
                    }
                })?;
                if let Some(lack) = lacks_tokens(&store.capabilities()).filter(|_| self.fenced) {
                    return Err(Error::incompatible(format!("it {lack}")));
                }
                let margin = store.capabilities().margin;
                if margin > self.like.margin {
                    return Err(Error::incompatible(format!(
                        "it keeps keys taken for {margin:?} after a lease has ended, longer than the nodes that were open \
                         first ({:?}); open the quorum again while it is up",
                        self.like.margin
                    )));
                }
                self.state.store.get_or_init(|| store)
            }
        };
        let health = store.check().await?;
        if let Some(fault) = unfit(&self.name, &health, self.limits.max_ttl, self.fenced) {
            return Err(Error::incompatible(fault));
        }
        if let Some(identity) = &health.identity {
            if let Some(other) = self.servers.other(identity, &self.name) {
                return Err(Error::incompatible(one_server(&other, &self.name, identity)));
            }
        }
        self.state.fit.get_or_init(|| ());
        Ok(())
    }
}

fn not_open() -> Error {
    Error::unavailable(Effect::NotApplied, "it is not open yet")
}

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.state.store.fmt(f)
    }
}

impl Store for Late {
    fn capabilities(&self) -> Capabilities {
        self.0.like
    }

    async fn check(&self) -> Result<Health> {
        self.open().await?.check().await
    }

    async fn prepare(&self) -> Result<()> {
        self.open().await?.prepare().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.fit(self.0.limits.of_term(request.term().duration())).await?.acquire(request).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        let terms = request.leases().iter().map(|lease| lease.term().duration());
        let shortest = terms.flatten().min();
        self.fit(self.0.limits.of_term(shortest)).await?.renew(request).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        self.fit(self.0.limits.of_term(None)).await?.release(request).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.fit(self.0.limits.of_term(None)).await?.list(request).await
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        self.fit(self.0.limits.of_term(None)).await?.evict(request).await
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        self.fit(self.0.limits.of_term(None)).await?.subscribe(keys).await
    }

    async fn close(&self) {
        if let Some(store) = self.0.state.store.get() {
            store.close().await;
        }
    }
}
