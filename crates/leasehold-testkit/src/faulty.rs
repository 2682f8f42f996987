//! The one store that fails as a test asks. A [`Hook`] sees each request and decides what happens to it; most
//! hooks leave that to a [`Script`] of [`Fault`]s.

mod fault;
mod request;
mod script;

use std::fmt::Debug;
use std::future::Future;

use leasehold_core::{
    AcquireReply, AcquireRequest, Capabilities, EvictReply, EvictRequest, Health, Key, ListReply,
    ListRequest, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Result, Store, Wakeups,
};

pub use fault::{Fault, quarantined};
pub use request::{Reply, Request, Sent};
pub use script::{Draw, Script};

/// What happens to the requests to a store.
pub trait Hook: Debug + Send + Sync + 'static {
    /// The store behind it.
    fn store(&self) -> impl Store;

    /// What the store claims to be able to do.
    fn capabilities(&self) -> Capabilities {
        self.store().capabilities()
    }

    /// Sends `request` to the store, or not, now or later, and returns its reply, or another one.
    fn handle(&self, request: Request) -> impl Future<Output = Result<Reply>> + Send;
}

/// A store behind a hook.
#[derive(Debug, Clone)]
pub struct Faulty<H>(pub H);

/// The reply to `$request`, which must be of its kind.
macro_rules! reply {
    ($self:ident, $kind:ident, $request:expr) => {
        match $self.0.handle($request).await? {
            Reply::$kind(reply) => Ok(reply),
            other => panic!("the hook replied with {other:?}"),
        }
    };
}

#[deny(clippy::missing_trait_methods)]
impl<H: Hook> Store for Faulty<H> {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn check(&self) -> Result<Health> {
        reply!(self, Check, Request::Check)
    }

    async fn prepare(&self) -> Result<()> {
        reply!(self, Prepare, Request::Prepare)
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        reply!(self, Acquire, Request::Acquire(request.clone()))
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        reply!(self, Renew, Request::Renew(request.clone()))
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        reply!(self, Release, Request::Release(request.clone()))
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        reply!(self, List, Request::List(request.clone()))
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        reply!(self, Evict, Request::Evict(request.clone()))
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        reply!(self, Subscribe, Request::Subscribe(keys.to_vec()))
    }

    async fn close(&self) {
        self.0.store().close().await;
    }
}
