use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{
    BoxFuture, Effect, Error, MAX_ENTRIES, ReleaseEntry, ReleaseOutcome, ReleaseReply,
    ReleaseRequest, Result, Store,
};

use super::in_flight::{InFlight, OnOrphan};
use super::{Keeper, at_once, caught};
use crate::lease::cleanup::Cleanup;
use crate::lease::release_report::ReleaseReport;
use crate::telemetry;

impl Keeper {
    /// Releases in the background.
    pub(crate) fn release(self: &Arc<Self>, cleanups: impl IntoIterator<Item = Cleanup>) {
        let now = self.clock.now();
        for cleanup in cleanups {
            // A store that cannot keep a key taken is asked to free it when the time has come.
            let at = if self.can.keep { now } else { cleanup.keep_until().max(now) };
            self.mailbox.push(cleanup.acted_by(now), at, now);
        }
        self.attend();
    }

    /// The work that is due, as futures that end when it is done.
    pub(super) fn take_work(self: &Arc<Self>) -> Vec<BoxFuture<'static, ()>> {
        let mut work = self.mailbox.take_requests();
        let mut due = self.mailbox.take_due(self.clock.now());
        while !due.is_empty() {
            let batch = due.split_off(due.len().saturating_sub(MAX_ENTRIES));
            let (unfinished, cleanups) = batch.into_iter().unzip();
            let cleanups = sent(cleanups);
            let asking = Arc::clone(self).ask_release(self.release_request(&cleanups)).boxed();
            let duty = OnOrphan::new(self, cleanups);
            let request = Arc::clone(self).finish_release(asking, Arc::clone(&duty));
            let request = request.map(drop).boxed();
            work.push(Box::pin(Arc::clone(self).see_through(request, duty, unfinished)));
        }
        work
    }

    /// Releases for a caller who waits for the answers, one for each lease. A release that fails, or is not
    /// answered before the caller goes away or the limit passes, continues in the background.
    pub(crate) fn release_for(
        self: &Arc<Self>,
        cleanups: Vec<Cleanup>,
    ) -> impl Future<Output = Vec<ReleaseReport>> + Send + use<> {
        let keeper = Arc::clone(self);
        let count = cleanups.len();
        let mut cleanups = sent(cleanups);
        async move {
            let request = keeper.release_request(&cleanups);
            let mut asking = Arc::clone(&keeper).ask_release(request).boxed();
            // What is answered at once, as by a store of this process, needs nobody to finish it.
            let answer = match at_once(&mut asking).await {
                Some(answer) => {
                    keeper.settle_released(&answer, &mut cleanups);
                    if !cleanups.is_empty() {
                        keeper.release(cleanups);
                    }
                    answer
                }
                None => keeper.await_release(asking, cleanups).await,
            };
            let (released, error) = match answer {
                Ok(released) => (released, None),
                Err(error) => (ReleaseReply::new(Vec::new()), Some(error)),
            };
            let ReleaseReply { leases, nodes, .. } = released;
            let report = |(at, outcome)| ReleaseReport::new(outcome, nodes.of_lease(at));
            let mut reports: Vec<_> = leases.into_iter().enumerate().map(report).collect();
            if reports.len() != count {
                let error = error.unwrap_or_else(|| keeper.unanswered("release", keeper.limit));
                reports.resize(count, ReleaseReport::failed(error));
            }
            reports
        }
    }

    /// Waits for the answer to a release that was sent, up to the limit.
    async fn await_release(
        self: &Arc<Self>,
        asking: BoxFuture<'static, Result<ReleaseReply>>,
        cleanups: Vec<Cleanup>,
    ) -> Result<ReleaseReply> {
        let until = self.clock.now().saturating_add(self.limit);
        let duty = OnOrphan::new(self, cleanups);
        let request = Arc::clone(self).finish_release(asking, Arc::clone(&duty));
        let mut request = InFlight::new(&duty, request);
        tokio::select! {
            biased;
            answer = &mut request => answer,
            () = self.clock.sleep_until(until) => Err(self.unanswered("release", self.limit)),
        }
    }

    /// Waits for the answer to a release of what is in `duty`, and leaves there what must be sent again.
    async fn finish_release(
        self: Arc<Self>,
        asking: BoxFuture<'static, Result<ReleaseReply>>,
        duty: Arc<OnOrphan>,
    ) -> Result<ReleaseReply> {
        // The ids stay reserved as long as the request lives.
        let _reservations: Vec<_> = duty.cleanups().iter().map(Cleanup::reservation).collect();
        let reply = asking.await;
        self.settle_released(&reply, &mut duty.cleanups());
        reply
    }

    fn release_request(&self, cleanups: &[Cleanup]) -> ReleaseRequest {
        ReleaseRequest::new(cleanups.iter().map(|lease| lease.entry(&*self.clock)).collect())
    }

    /// Applies the reply to what was sent, and leaves what must be sent again: a release is idempotent.
    fn settle_released(&self, reply: &Result<ReleaseReply>, cleanups: &mut Vec<Cleanup>) {
        let clock = &*self.clock;
        let mut outcomes = reply.as_ref().map(|reply| reply.leases.iter()).unwrap_or_default();
        cleanups.retain_mut(|cleanup| {
            let failure = match (reply, outcomes.next()) {
                (_, Some(ReleaseOutcome::Failed(error))) | (Err(error), _) => Some(error),
                (Ok(_), Some(_)) => {
                    cleanup.answered(self.can.compares_tokens, clock);
                    return false;
                }
                (Ok(_), None) => None,
            };
            if failure.is_none_or(|error| error.effect() == Effect::Unknown) {
                cleanup.doubt();
            }
            cleanup.fail();
            is_worth_another_try(cleanup, failure, clock.now())
        });
        if reply.is_ok() {
            self.mailbox.is_answered();
        }
    }

    /// Sends one release and wakes the waiters of this process for the freed keys.
    async fn ask_release(self: Arc<Self>, request: ReleaseRequest) -> Result<ReleaseReply> {
        let mut answer = pin!(caught(self.store.release(&request)));
        let mut woken = false;
        let released = poll_fn(|context| {
            let polled = answer.as_mut().poll(context);
            if self.can.in_order && polled.is_pending() && !mem::replace(&mut woken, true) {
                // The first in the queue tries right behind it.
                let ended = request.leases().iter().filter(|lease| lease.keep().is_none());
                self.queues.released(ended.flat_map(ReleaseEntry::keys));
            }
            polled
        });
        let released = released.await.and_then(|reply| reply);
        let released = released.inspect_err(telemetry::release_failed)?;
        for (lease, outcome) in request.leases().iter().zip(&released.leases) {
            telemetry::released(self.can.name, lease, outcome);
            // A woken waiter may already hold the key; the next one would try in vain.
            let is_told = woken && lease.keep().is_none();
            if !is_told && !matches!(outcome, ReleaseOutcome::Kept(_) | ReleaseOutcome::Failed(_)) {
                self.queues.released(lease.keys());
            }
        }
        Ok(released)
    }
}

fn sent(cleanups: Vec<Cleanup>) -> Vec<Cleanup> {
    cleanups.into_iter().map(Cleanup::sent).collect()
}

/// True while the store may count the lease, unless it has no end and the store will always refuse to release it.
fn is_worth_another_try(cleanup: &Cleanup, failure: Option<&Error>, now: Duration) -> bool {
    let is_final = failure.is_some_and(|error| !error.is_retryable());
    cleanup.matters(now) && !(is_final && cleanup.is_endless())
}

#[cfg(test)]
mod tests {
    use leasehold_core::term::Drift;
    use leasehold_core::{AnyStore, Claims, Key, LeaseId, ManualClock, Mode, Ttl};
    use leasehold_local::LocalStore;

    use super::*;
    use crate::lease::ids::{Caller, Ownership};

    #[test]
    fn a_batch_that_was_never_polled_goes_back_into_the_queue() {
        let clock = Arc::new(ManualClock::new());
        let store = AnyStore::new(LocalStore::new());
        let keeper = Arc::new(Keeper::new(store, clock, Drift::default(), Duration::MAX));
        let id = LeaseId::mint().unwrap();
        let claims = Claims::one(Key::new("k").unwrap(), Mode::Exclusive);
        let reservation =
            keeper.ids.try_reserve(&id, &claims, Caller::current(), Duration::ZERO).unwrap();
        let ownership = Ownership::of(reservation);
        let term = Ttl::new(Duration::from_secs(1)).unwrap();
        keeper.release([Cleanup::of_request(&id, &claims, term, &ownership, Duration::ZERO)]);
        for _ in 0..3 {
            let work = keeper.take_work();
            assert_eq!(work.len(), 1);
            drop(work);
        }
    }
}
