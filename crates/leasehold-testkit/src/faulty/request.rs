use leasehold_core::{
    AcquireReply, AcquireRequest, EvictReply, EvictRequest, Health, Key, LeaseId, ListReply,
    ListRequest, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest, Result, Store, Wakeups,
};

/// A request to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Check,
    Prepare,
    Acquire(AcquireRequest),
    Renew(RenewRequest),
    Release(ReleaseRequest),
    List(ListRequest),
    Evict(EvictRequest),
    Subscribe(Vec<Key>),
}

/// A store's reply to the [`Request`] of that name.
#[derive(Debug)]
pub enum Reply {
    Check(Health),
    Prepare(()),
    Acquire(AcquireReply),
    Renew(RenewReply),
    Release(ReleaseReply),
    List(ListReply),
    Evict(EvictReply),
    Subscribe(Wakeups),
}

impl Request {
    /// What `store` replies.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn send_to(self, store: impl Store) -> Result<Reply> {
        Ok(match self {
            Self::Check => Reply::Check(store.check().await?),
            Self::Prepare => Reply::Prepare(store.prepare().await?),
            Self::Acquire(request) => Reply::Acquire(store.acquire(&request).await?),
            Self::Renew(request) => Reply::Renew(store.renew(&request).await?),
            Self::Release(request) => Reply::Release(store.release(&request).await?),
            Self::List(request) => Reply::List(store.list(&request).await?),
            Self::Evict(request) => Reply::Evict(store.evict(&request).await?),
            Self::Subscribe(keys) => Reply::Subscribe(store.subscribe(&keys).await?),
        })
    }
}

/// What a test compares of a [`Request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sent {
    Check,
    Prepare,
    Acquire(LeaseId),
    Renew(Vec<LeaseId>),
    Release(Vec<LeaseId>),
    List,
    /// At most this many.
    Evict(usize),
    Subscribe,
}

impl From<&Request> for Sent {
    fn from(request: &Request) -> Self {
        match request {
            Request::Check => Self::Check,
            Request::Prepare => Self::Prepare,
            Request::Acquire(request) => Self::Acquire(request.id().clone()),
            Request::Renew(request) => {
                Self::Renew(request.leases().iter().map(|lease| lease.id().clone()).collect())
            }
            Request::Release(request) => {
                Self::Release(request.leases().iter().map(|lease| lease.id().clone()).collect())
            }
            Request::List(_) => Self::List,
            Request::Evict(request) => Self::Evict(request.limit()),
            Request::Subscribe(_) => Self::Subscribe,
        }
    }
}
