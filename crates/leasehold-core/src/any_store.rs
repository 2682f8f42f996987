#[cfg(test)]
mod tests;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::{
    AcquireReply, AcquireRequest, BoxFuture, Capabilities, EvictReply, EvictRequest, Health, Key,
    ListReply, ListRequest, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Result, Store,
    Wakeups,
};

/// Any store, chosen at run time. Cheap to clone.
///
/// Checks each request against the store's capabilities before it passes it on (C11).
#[derive(Clone)]
pub struct AnyStore {
    store: Arc<dyn Erased>,
    can: Capabilities,
}

impl AnyStore {
    /// Wraps a store; an `AnyStore` is not wrapped twice.
    pub fn new(store: impl Store) -> Self {
        match (&store as &dyn Any).downcast_ref::<Self>() {
            Some(any) => any.clone(),
            None => Self { can: store.capabilities(), store: Arc::new(store) },
        }
    }
}

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Store for AnyStore {
    fn capabilities(&self) -> Capabilities {
        self.can
    }

    async fn check(&self) -> Result<Health> {
        self.store.boxed_check().await
    }

    async fn prepare(&self) -> Result<()> {
        self.store.boxed_prepare().await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        self.can.admit(request)?;
        self.store.boxed_acquire(request).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        self.can.admit(request)?;
        self.store.boxed_renew(request).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        self.can.admit(request)?;
        self.store.boxed_release(request).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        self.can.admit(request)?;
        self.store.boxed_list(request).await
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        self.can.admit(request)?;
        self.store.boxed_evict(request).await
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        self.store.boxed_subscribe(keys).await
    }

    async fn close(&self) {
        self.store.boxed_close().await;
    }
}

/// The boxed twin of [`Store`]. Its methods have names of their own: a method of `Store` with the same name would
/// be found first.
trait Erased: fmt::Debug + Send + Sync {
    fn boxed_check(&self) -> BoxFuture<'_, Result<Health>>;
    fn boxed_prepare(&self) -> BoxFuture<'_, Result<()>>;
    fn boxed_acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> BoxFuture<'a, Result<AcquireReply>>;
    fn boxed_renew<'a>(&'a self, request: &'a RenewRequest) -> BoxFuture<'a, Result<RenewReply>>;
    fn boxed_release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
    ) -> BoxFuture<'a, Result<ReleaseReply>>;
    fn boxed_list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<ListReply>>;
    fn boxed_evict<'a>(&'a self, request: &'a EvictRequest) -> BoxFuture<'a, Result<EvictReply>>;
    fn boxed_subscribe<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Wakeups>>;
    fn boxed_close(&self) -> BoxFuture<'_, ()>;
}

impl<S: Store> Erased for S {
    fn boxed_check(&self) -> BoxFuture<'_, Result<Health>> {
        Box::pin(self.check())
    }

    fn boxed_prepare(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.prepare())
    }

    fn boxed_acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> BoxFuture<'a, Result<AcquireReply>> {
        Box::pin(self.acquire(request))
    }

    fn boxed_renew<'a>(&'a self, request: &'a RenewRequest) -> BoxFuture<'a, Result<RenewReply>> {
        Box::pin(self.renew(request))
    }

    fn boxed_release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
    ) -> BoxFuture<'a, Result<ReleaseReply>> {
        Box::pin(self.release(request))
    }

    fn boxed_list<'a>(&'a self, request: &'a ListRequest) -> BoxFuture<'a, Result<ListReply>> {
        Box::pin(self.list(request))
    }

    fn boxed_evict<'a>(&'a self, request: &'a EvictRequest) -> BoxFuture<'a, Result<EvictReply>> {
        Box::pin(self.evict(request))
    }

    fn boxed_subscribe<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Wakeups>> {
        Box::pin(self.subscribe(keys))
    }

    fn boxed_close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.close())
    }
}
