use std::fmt;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use leasehold_core::tally::majority;
use leasehold_core::{
    Acquire, Acquired, AnyStore, BoxFuture, Capabilities, Clock, Effect, Error, ErrorKind, Evict,
    Evicted, Health, Key, List, Page, Release, Released, Renew, Renewed, Result, Store, Wakeups,
};
use tokio::sync::OnceCell;

/// Opens a node; called again for one that could not be opened.
pub type OpenNode = Box<dyn Fn() -> BoxFuture<'static, Result<AnyStore>> + Send + Sync>;

/// How long a majority is waited for: as long as a first check of a `Locker`.
pub(crate) const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// Opens all nodes at once. Those that are not open within `limit` of a majority, or [`OPEN_LIMIT`] without
/// one, are left for later.
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

/// Those that are open.
pub(crate) fn open_ones(opened: &[Option<Result<AnyStore>>]) -> impl Iterator<Item = &AnyStore> {
    opened.iter().flatten().filter_map(|answer| answer.as_ref().ok())
}

/// A node that could not be opened with the others: each request tries to.
pub(crate) struct Late {
    open: OpenNode,
    /// What another node can, so that the quorum can what all the others can. What this one cannot, it refuses.
    like: Capabilities,
    fenced: bool,
    store: OnceCell<AnyStore>,
}

impl Late {
    pub(crate) fn new(open: OpenNode, like: Capabilities, fenced: bool) -> Self {
        Self { open, like, fenced, store: OnceCell::new() }
    }

    async fn store(&self) -> Result<&AnyStore> {
        self.store
            .get_or_try_init(|| async {
                let store = (self.open)().await.map_err(|error| {
                    let message = format!("it cannot be opened: {error}");
                    match error.kind() {
                        ErrorKind::Incompatible => Error::incompatible(message),
                        _ => Error::unavailable(Effect::None, message),
                    }
                })?;
                if self.fenced && !store.capabilities().tokens {
                    return Err(Error::incompatible("it has no fencing tokens"));
                }
                Ok(store)
            })
            .await
    }
}

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl Store for Late {
    fn capabilities(&self) -> Capabilities {
        self.like
    }

    async fn check(&self) -> Result<Health> {
        self.store().await?.check().await
    }

    async fn prepare(&self) -> Result<()> {
        self.store().await?.prepare().await
    }

    async fn acquire(&self, request: &Acquire) -> Result<Acquired> {
        self.store().await?.acquire(request).await
    }

    async fn renew(&self, request: &Renew) -> Result<Renewed> {
        self.store().await?.renew(request).await
    }

    async fn release(&self, request: &Release) -> Result<Released> {
        self.store().await?.release(request).await
    }

    async fn list(&self, request: &List) -> Result<Page> {
        self.store().await?.list(request).await
    }

    async fn evict(&self, request: &Evict) -> Result<Evicted> {
        self.store().await?.evict(request).await
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        self.store().await?.subscribe(keys).await
    }
}
