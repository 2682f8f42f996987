//! The requests of tests, and checks of their outcomes.

use std::time::Duration;

use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, Effect, Error, ErrorKind, EvictRequest, EvictTarget,
    Filter, Granted, Key, LeaseId, ListRequest, Mode, Refused, ReleaseEntry, ReleaseOutcome,
    ReleaseRequest, RenewEntry, RenewOutcome, RenewRequest, Store, Ttl, Unreadable,
};

use crate::{LONG, until};

pub fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

pub fn id(name: &str) -> LeaseId {
    LeaseId::foreign(name.as_bytes()).unwrap()
}

/// An acquire of one key for half a minute.
pub fn acquire(name: &str, lease: &str, mode: Mode) -> AcquireRequest {
    acquire_for(name, lease, mode, LONG)
}

pub fn acquire_for(name: &str, lease: &str, mode: Mode, term: Duration) -> AcquireRequest {
    AcquireRequest::new(id(lease), Claims::one(key(name), mode), Ttl::new(term).unwrap())
}

pub fn renew(name: &str, lease: &str, mode: Mode, to: Ttl) -> RenewRequest {
    RenewRequest::new(vec![RenewEntry::extend(id(lease), Claims::one(key(name), mode), to)])
}

pub fn release(name: &str, lease: &str) -> ReleaseRequest {
    ReleaseRequest::new(vec![ReleaseEntry::new(id(lease), [key(name)])])
}

/// An eviction of this lease alone.
pub fn evict(name: &str, lease: &str) -> EvictRequest {
    EvictRequest::exactly(vec![EvictTarget::new(key(name), Some(id(lease)))], None)
}

pub fn granted(acquired: leasehold_core::Result<AcquireReply>) -> Granted {
    match acquired {
        Ok(AcquireReply::Granted(granted)) => granted,
        other => panic!("not granted: {other:?}"),
    }
}

pub fn refused(acquired: leasehold_core::Result<AcquireReply>) -> Refused {
    match acquired {
        Ok(AcquireReply::Refused(refused)) => refused,
        other => panic!("not refused: {other:?}"),
    }
}

/// An error of this kind and effect, whose text has `fragment`.
pub fn failed<T: std::fmt::Debug>(
    outcome: leasehold_core::Result<T>,
    kind: ErrorKind,
    effect: Effect,
    fragment: &str,
) -> Error {
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (kind, effect), "{error:?}");
    assert!(error.to_string().contains(fragment), "{error}");
    error
}

/// The outcome of a renewal of one lease; its failure is that of the renewal.
pub async fn renewed(
    store: &impl Store,
    request: &RenewRequest,
) -> leasehold_core::Result<RenewOutcome> {
    match only(store.renew(request).await?.leases) {
        RenewOutcome::Failed(error) => Err(error),
        outcome => Ok(outcome),
    }
}

/// A renewal of this lease succeeds.
pub async fn is_renewed(store: &impl Store, name: &str, lease: &str, mode: Mode) {
    let outcome = renewed(store, &renew(name, lease, mode, Ttl::new(2 * LONG).unwrap())).await;
    assert!(matches!(outcome, Ok(RenewOutcome::Held(_))), "{name}: {outcome:?}");
}

/// As [`renewed`], of a release.
pub async fn released(
    store: &impl Store,
    request: &ReleaseRequest,
) -> leasehold_core::Result<ReleaseOutcome> {
    match only(store.release(request).await?.leases) {
        ReleaseOutcome::Failed(error) => Err(error),
        outcome => Ok(outcome),
    }
}

/// The only outcome of a renewal or release of one lease.
pub fn only<T>(outcomes: Vec<T>) -> T {
    let [only] = <[T; 1]>::try_from(outcomes).ok().unwrap();
    only
}

/// The names of what cannot be read.
pub fn names(unreadable: &[Unreadable]) -> Vec<&str> {
    unreadable.iter().map(|one| one.name.as_str()).collect()
}

/// A purge leaves what cannot be read, and names it.
pub async fn purge_leaves(store: &impl Store, left: &[&str]) {
    let purged = store.evict(&EvictRequest::expired(Filter::default())).await.unwrap();
    assert_eq!(names(&purged.unreadable), left);
}

/// The store has a damaged record of this key: listings name it, also beside others, and it is neither held nor free.
pub async fn is_unreadable(store: &impl Store, name: &str) {
    let list = async |filter| store.list(&ListRequest::new(filter)).await.unwrap();
    let all = list(Filter::default()).await;
    assert_eq!(names(&all.unreadable), [name]);
    assert!(all.records.iter().all(|record| record.key.as_str() != name), "{all:?}");
    let page = list(Filter::default().with_key(key(name))).await;
    assert_eq!(names(&page.unreadable), [name]);
    assert_eq!(page.holders().unwrap_err().kind(), page.unreadable[0].error.kind());
    let others = list(Filter::default().with_glob(&format!("{name}?*")).unwrap()).await;
    assert_eq!(names(&others.unreadable), [""; 0]);
}

/// Asks for a held key until the store answers again. Until then it may only fail; it must never grant.
pub async fn until_refused(store: &impl Store, name: &str) {
    let request = acquire(name, "until-refused", Mode::Exclusive);
    // No event reports that a fail-over has ended.
    until(async || {
        let acquired = store.acquire(&request).await;
        if let Err(error) = &acquired {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        acquired.is_ok_and(|reply| refused(Ok(reply)).key == key(name))
    })
    .await;
}
