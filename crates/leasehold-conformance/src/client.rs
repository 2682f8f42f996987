use std::fmt::Debug;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AcquireReply, Error, EvictReply, EvictRequest, EvictTarget, Filter, Granted, ListRequest,
    LostReason, Reason, Record, RefusalReason, Refused, ReleaseOutcome, ReleaseRequest, Remaining,
    RenewOutcome, RenewRequest, Store, Ttl,
};

use crate::attempt::Attempt;
use crate::{Failure, Reports, Result};

/// One client of the store under test. Each method expects one outcome and fails, at its caller, on any other.
#[derive(Debug)]
pub(crate) struct Client<S> {
    store: Arc<S>,
    copies: usize,
}

impl<S> Clone for Client<S> {
    fn clone(&self) -> Self {
        Self { store: Arc::clone(&self.store), copies: self.copies }
    }
}

/// Each record once, if it was listed `copies` times and they report the same.
fn once_of(records: &[Record], copies: usize) -> Result<Vec<Record>, Vec<Record>> {
    if copies == 1 {
        return Ok(records.to_vec());
    }
    let mut once: Vec<(Record, usize)> = Vec::new();
    for record in records {
        let is_same = |known: &Record| {
            let what = |r: &Record| (r.key.clone(), r.id.clone(), r.mode, r.kept, r.is_live());
            what(known) == what(record)
                && (&known.group, &known.note) == (&record.group, &record.note)
        };
        match once.iter_mut().find(|(known, _)| is_same(known)) {
            Some((_, seen)) => *seen += 1,
            None => once.push((record.clone(), 1)),
        }
    }
    if once.iter().all(|(_, seen)| *seen == copies) {
        return Ok(once.into_iter().map(|(record, _)| record).collect());
    }
    Err(records.to_vec())
}

/// Fails at `at`, showing the value.
fn not<T>(
    at: &'static Location<'static>,
    what: &str,
    of: &impl Debug,
    found: impl Debug,
) -> Result<T> {
    Err(Failure::at(at, format!("{of:?} is not {what}: {found:?}")))
}

impl<S: Store> Client<S> {
    pub(crate) fn new(store: S, reports: &Reports) -> Self {
        Self { store: Arc::new(store), copies: reports.copies }
    }

    /// The store itself, for what the methods below do not cover.
    pub(crate) fn store(&self) -> &S {
        &self.store
    }

    /// Acquires and accepts either answer.
    #[track_caller]
    pub(crate) fn acquire(
        &self,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<AcquireReply>> + Send {
        let (at, store, attempt) = (Location::caller(), Arc::clone(&self.store), attempt.clone());
        async move {
            match store.acquire(&attempt.request()).await {
                Ok(acquired) => Ok(acquired),
                Err(error) => not(at, "granted or refused", &attempt, error),
            }
        }
    }

    /// Acquires a lease that is not live.
    #[track_caller]
    pub(crate) fn grant(&self, attempt: &Attempt) -> impl Future<Output = Result<Granted>> + Send {
        let (at, attempt, acquired) = (Location::caller(), attempt.clone(), self.acquire(attempt));
        async move {
            match acquired.await? {
                AcquireReply::Granted(granted) if granted.fresh => Ok(granted),
                other => not(at, "granted afresh", &attempt, other),
            }
        }
    }

    /// Acquires a lease that is live already.
    #[track_caller]
    pub(crate) fn confirm(
        &self,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<Granted>> + Send {
        let (at, attempt, acquired) = (Location::caller(), attempt.clone(), self.acquire(attempt));
        async move {
            match acquired.await? {
                AcquireReply::Granted(granted) if !granted.fresh => Ok(granted),
                other => not(at, "confirmed", &attempt, other),
            }
        }
    }

    /// Acquires a held key, and is refused.
    #[track_caller]
    pub(crate) fn refuse(&self, attempt: &Attempt) -> impl Future<Output = Result<Refused>> + Send {
        let (at, attempt, acquired) = (Location::caller(), attempt.clone(), self.acquire(attempt));
        async move {
            match acquired.await? {
                AcquireReply::Refused(refused) if matches!(refused.why, RefusalReason::Held(_)) => {
                    Ok(refused)
                }
                other => not(at, "refused for a holder", &attempt, other),
            }
        }
    }

    /// Acquires what the store must not even try.
    #[track_caller]
    pub(crate) fn reject(&self, attempt: &Attempt) -> impl Future<Output = Result<Error>> + Send {
        let (at, store, attempt) = (Location::caller(), Arc::clone(&self.store), attempt.clone());
        async move {
            match store.acquire(&attempt.request()).await {
                Err(error) => Ok(error),
                Ok(other) => not(at, "rejected", &attempt, other),
            }
        }
    }

    /// Renews several leases in one request.
    #[track_caller]
    pub(crate) fn renew_all(
        &self,
        request: RenewRequest,
    ) -> impl Future<Output = Result<Vec<RenewOutcome>>> + Send {
        let (at, store) = (Location::caller(), Arc::clone(&self.store));
        async move {
            match store.renew(&request).await {
                Ok(renewed) if renewed.leases.len() == request.leases().len() => Ok(renewed.leases),
                other => not(at, "answered lease by lease", &request, other),
            }
        }
    }

    /// Renews one lease and accepts any answer.
    #[track_caller]
    pub(crate) fn renew(
        &self,
        attempt: &Attempt,
        to: Ttl,
    ) -> impl Future<Output = Result<RenewOutcome>> + Send {
        let renewed = self.renew_all(attempt.renew(to));
        async move { Ok(renewed.await?.remove(0)) }
    }

    /// Renews a lease that is held.
    #[track_caller]
    pub(crate) fn held(
        &self,
        attempt: &Attempt,
        to: Ttl,
    ) -> impl Future<Output = Result<Remaining>> + Send {
        let (at, attempt, renewed) = (Location::caller(), attempt.clone(), self.renew(attempt, to));
        async move {
            match renewed.await? {
                RenewOutcome::Held(remaining) => Ok(remaining),
                other => not(at, "held", &attempt, other),
            }
        }
    }

    /// Renews a lease that is lost.
    #[track_caller]
    pub(crate) fn lost(
        &self,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<Option<LostReason>>> + Send {
        let (at, attempt, renewed) =
            (Location::caller(), attempt.clone(), self.renew(attempt, attempt.term));
        async move {
            match renewed.await? {
                RenewOutcome::Lost(reason) => Ok(reason),
                other => not(at, "lost", &attempt, other),
            }
        }
    }

    /// Releases several leases in one request.
    #[track_caller]
    pub(crate) fn release_all(
        &self,
        request: ReleaseRequest,
    ) -> impl Future<Output = Result<Vec<ReleaseOutcome>>> + Send {
        let (at, store) = (Location::caller(), Arc::clone(&self.store));
        async move {
            match store.release(&request).await {
                Ok(released) if released.leases.len() == request.leases().len() => {
                    Ok(released.leases)
                }
                other => not(at, "answered lease by lease", &request, other),
            }
        }
    }

    /// Releases one lease and accepts any answer.
    #[track_caller]
    pub(crate) fn release(
        &self,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<ReleaseOutcome>> + Send {
        let released = self.release_all(ReleaseRequest::new(vec![attempt.ending()]));
        async move { Ok(released.await?.remove(0)) }
    }

    /// Releases a lease that is held.
    #[track_caller]
    pub(crate) fn released(&self, attempt: &Attempt) -> impl Future<Output = Result> + Send {
        let (at, attempt, released) = (Location::caller(), attempt.clone(), self.release(attempt));
        async move {
            match released.await? {
                ReleaseOutcome::Released => Ok(()),
                other => not(at, "released", &attempt, other),
            }
        }
    }

    /// Releases what the store does not have.
    #[track_caller]
    pub(crate) fn not_held(&self, attempt: &Attempt) -> impl Future<Output = Result> + Send {
        let (at, attempt, released) = (Location::caller(), attempt.clone(), self.release(attempt));
        async move {
            match released.await? {
                ReleaseOutcome::NotHeld => Ok(()),
                other => not(at, "not held", &attempt, other),
            }
        }
    }

    /// Releases a lease and keeps its keys taken; returns for how long.
    #[track_caller]
    pub(crate) fn keep(
        &self,
        attempt: &Attempt,
        keep: Duration,
    ) -> impl Future<Output = Result<Duration>> + Send {
        let (at, attempt) = (Location::caller(), attempt.clone());
        let released =
            self.release_all(ReleaseRequest::new(vec![attempt.ending().with_keep(keep)]));
        async move {
            match released.await?.remove(0) {
                ReleaseOutcome::Kept(remaining) => Ok(remaining),
                other => not(at, "kept", &attempt, other),
            }
        }
    }

    /// All records that match, in pages of any size.
    #[track_caller]
    pub(crate) fn list(&self, filter: Filter) -> impl Future<Output = Result<Vec<Record>>> + Send {
        self.list_by(filter, 100)
    }

    /// All records that match, in pages of at most `page`.
    #[track_caller]
    pub(crate) fn list_by(
        &self,
        filter: Filter,
        page: usize,
    ) -> impl Future<Output = Result<Vec<Record>>> + Send {
        let (at, store, copies) = (Location::caller(), Arc::clone(&self.store), self.copies);
        async move {
            let mut request = ListRequest::new(filter.clone()).with_limit(page);
            let mut records = Vec::new();
            // A listing that never ended would return the same page for ever.
            for _ in 0..10_000 {
                let answer = match store.list(&request).await {
                    Ok(answer) if answer.records.len() <= page => answer,
                    other => return not(at, "answered by a page", &request, other),
                };
                records.extend(answer.records);
                match answer.next {
                    Some(next) => request = request.with_cursor(next),
                    None => {
                        return once_of(&records, copies)
                            .or_else(|records| not(at, "listed so many times", &copies, records));
                    }
                }
            }
            not(at, "ever at its end", &filter, records.len())
        }
    }

    /// The only record that matches.
    #[track_caller]
    pub(crate) fn only(&self, filter: Filter) -> impl Future<Output = Result<Record>> + Send {
        let (at, records) = (Location::caller(), self.list(filter.clone()));
        async move {
            let mut records = records.await?;
            match (records.pop(), records.is_empty()) {
                (Some(record), true) => Ok(record),
                (last, _) => not(at, "matched by one record", &filter, (records, last)),
            }
        }
    }

    /// Evicts and takes the answer.
    #[track_caller]
    pub(crate) fn evict(
        &self,
        request: EvictRequest,
    ) -> impl Future<Output = Result<EvictReply>> + Send {
        let (at, store) = (Location::caller(), Arc::clone(&self.store));
        async move {
            match store.evict(&request).await {
                Ok(evicted)
                    if evicted.removed.len() + evicted.counters_forgotten <= request.limit() =>
                {
                    Ok(evicted)
                }
                other => not(at, "answered within its limit", &request, other),
            }
        }
    }

    /// Evicts exactly these records, all of which must exist.
    #[track_caller]
    pub(crate) fn evict_these(
        &self,
        targets: Vec<EvictTarget>,
        reason: Option<&str>,
    ) -> impl Future<Output = Result> + Send {
        let at = Location::caller();
        let reason = reason.map(|r| Reason::new(r).expect("the suite's reasons are valid"));
        let expected = targets.len();
        let evicted = self.evict(EvictRequest::exactly(targets.clone(), reason));
        async move {
            let evicted = evicted.await?;
            if evicted.removed.len() == expected {
                return Ok(());
            }
            not(at, "evicted wholly", &targets, evicted)
        }
    }
}
