use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use crate::{
    AcquireReply, AcquireRequest, Capabilities, EvictReply, EvictRequest, Health, Key, ListReply,
    ListRequest, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Result, Wakeups,
};

/// The seam: what every backing store implements, and all that the front end needs.
///
/// Implementers write `async fn`. `docs/adding-a-store.md` builds one; the crate `leasehold-conformance`
/// judges one.
///
/// # Contract
/// It binds every implementation, wrappers included. In full, with reasons: [`contract`](crate::contract).
/// - **C1** One exchange with the server per operation in steady state.
/// - **C2** All claims or none; a refusal changes no live lease and mints no token.
/// - **C3** A [`LeaseId`](crate::LeaseId) names one attempt. While its lease lives, an acquire with the same
///   id and claims returns the same token, `fresh: false`, and a term of max(current, now + term). A live id
///   on a named key in another mode is `InvalidInput`. A store never creates an id, and a second id never
///   enters because its group is the same.
/// - **C3b** A lease is held on all its keys or on none: when one of its named keys is gone, the same step removes the
///   rest.
/// - **C4** The store's own clock decides expiry; only durations cross the wire.
/// - **C5** An expired lease is absent for granting, renewing and counting, purged or not.
/// - **C6** An ended lease is never revived; renewal never shortens; at exactly its term a lease is over.
/// - **C7** Tokens strictly grow per key: one per grant, above every earlier token of each of its keys,
///   max(stored + 1, wall clock in µs), advanced after the key is won, kept through release, expiry,
///   eviction and restart.
/// - **C8** Only its holder, or an evict that names it, removes a live lease.
/// - **C9** `Shared { max }` is granted only if there is no live exclusive holder and fewer than `max` live
///   holders.
/// - **C10** Contention is a value, not an error; a store failure is never reported as held, free or gone;
///   every error states its effect.
/// - **C11** What the store cannot do is refused before any I/O: call
///   [`Capabilities::admit`] first.
/// - **C12** Wake-ups are hints.
/// - **C13** A release reports `Released`, `Kept`, `Expired` or `NotHeld`.
/// - **C14** Everything the caller supplies is a bound parameter.
/// - **C15** Dropping the future of any operation leaves connections usable and other callers unaffected;
///   its own effect is then unknown.
pub trait Store: Debug + Send + Sync + 'static {
    /// What the store can do. Fixed when the store is opened; no I/O.
    ///
    /// What depends on the server is learned by then. If the server changes later, new requests that need what it no longer
    /// has fail as `Incompatible` with [`Effect::NotApplied`](crate::Effect::NotApplied), and no held lease ends by that
    /// (F5).
    fn capabilities(&self) -> Capabilities;

    /// Reads the server's settings and reports the level that they support. Changes nothing.
    ///
    /// # Errors
    /// `Incompatible` if the server cannot be used at all, else as any operation.
    fn check(&self) -> impl Future<Output = Result<Health>> + Send;

    /// Creates tables and indexes. Idempotent, and safe while other clients do the same or already work.
    ///
    /// # Errors
    /// `Denied` if the role lacks the right, `Incompatible` if another program's data is there.
    fn prepare(&self) -> impl Future<Output = Result<()>> + Send;

    /// Takes all claims or none.
    ///
    /// # Errors
    /// With [`Effect::Unknown`](crate::Effect::Unknown) the same request may be sent again.
    fn acquire(
        &self,
        request: &AcquireRequest,
    ) -> impl Future<Output = Result<AcquireReply>> + Send;

    /// Extends leases; each has its own outcome. Fails as a whole only if the failure holds for every entry.
    ///
    /// # Errors
    /// As any operation; each lease is then held or not as before, and may have been extended.
    fn renew(&self, request: &RenewRequest) -> impl Future<Output = Result<RenewReply>> + Send;

    /// Ends leases; each has its own outcome. Fails as a whole only if the failure holds for every entry.
    ///
    /// # Errors
    /// As any operation; sending the same request again is safe.
    fn release(
        &self,
        request: &ReleaseRequest,
    ) -> impl Future<Output = Result<ReleaseReply>> + Send;

    /// Returns one page of records.
    ///
    /// # Errors
    /// `InvalidInput` for a cursor of another store, else as any operation.
    fn list(&self, request: &ListRequest) -> impl Future<Output = Result<ListReply>> + Send;

    /// Removes expired records, or exactly the named ones.
    ///
    /// # Errors
    /// As any operation; sending the same request again is safe.
    fn evict(&self, request: &EvictRequest) -> impl Future<Output = Result<EvictReply>> + Send;

    /// Hints that one of `keys` may be free; [`Wakeups::none`] where the store cannot push.
    ///
    /// # Errors
    /// As any operation.
    fn subscribe(&self, keys: &[Key]) -> impl Future<Output = Result<Wakeups>> + Send;

    /// Waits for requests that continue after their callers were answered (a quorum answers before its slowest node
    /// does), then ends the store's connections as their protocol requires, so that the server sees no client that
    /// disappeared. Ends within the store's time limit, whatever a server does, and by default at once.
    ///
    /// A connection that is in use ends when it is free, and one of a caller's pool stays there. The store stays
    /// usable: the next request connects again, because clones of it, or open guards, may still need it. May be called
    /// again.
    fn close(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// Lets the caller keep a typed handle to the store that it gives to the front end.
#[deny(clippy::missing_trait_methods)]
impl<S: Store> Store for Arc<S> {
    fn capabilities(&self) -> Capabilities {
        S::capabilities(self)
    }

    async fn check(&self) -> Result<Health> {
        S::check(self).await
    }

    async fn prepare(&self) -> Result<()> {
        S::prepare(self).await
    }

    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireReply> {
        S::acquire(self, request).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewReply> {
        S::renew(self, request).await
    }

    async fn release(&self, request: &ReleaseRequest) -> Result<ReleaseReply> {
        S::release(self, request).await
    }

    async fn list(&self, request: &ListRequest) -> Result<ListReply> {
        S::list(self, request).await
    }

    async fn evict(&self, request: &EvictRequest) -> Result<EvictReply> {
        S::evict(self, request).await
    }

    async fn subscribe(&self, keys: &[Key]) -> Result<Wakeups> {
        S::subscribe(self, keys).await
    }

    async fn close(&self) {
        S::close(self).await;
    }
}
