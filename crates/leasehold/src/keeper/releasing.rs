use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AcquireRequest, BoxFuture, MAX_ENTRIES, Random, ReleaseEntry, ReleaseOutcome, ReleaseReply,
    ReleaseRequest, Result, Store,
};

use super::inbox::{Releases, Unfinishing};
use super::renewing::of_lease;
use super::{Keeper, caught};
use crate::call::{Abandoned, Call, Leaves, Orphaned};
use crate::held::Held;
use crate::ids::{Named, Taking};
use crate::release_report::ReleaseReport;

/// One lease to end.
#[derive(Debug, Clone)]
pub(crate) struct Releasing {
    ending: ReleaseEntry,
    /// Until when its keys stay taken.
    keep_until: Duration,
    /// The longest term that the store may still count, for a lease that has one.
    term: Option<Duration>,
    /// Until when it is worth trying; `None` for ever.
    until: Option<Duration>,
    /// Bars the id until this is answered.
    taking: Arc<Taking>,
}

/// The shortest and the longest pause before a failed release is sent again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// For how long a request is listened to that was given up and whose lease has been released beside it.
const LISTEN: Duration = Duration::from_secs(60);

impl Releasing {
    /// What an acquire may leave behind that is sent from now on.
    pub(crate) fn of_request(request: &AcquireRequest, taking: Arc<Taking>, now: Duration) -> Self {
        let term = request.term().duration();
        Self {
            ending: ReleaseEntry::new(request.id().clone(), request.claims().keys().cloned()),
            keep_until: Duration::ZERO,
            term,
            until: term.map(|term| now.saturating_add(term)),
            taking,
        }
    }

    /// A lease that its holder gives back: its keys stay taken for the rest of `min_hold`.
    pub(crate) fn of_held(held: &Held) -> Self {
        Self {
            ending: ReleaseEntry::new(held.lease.id.clone(), held.lease.claims.keys().cloned()),
            keep_until: held.plan.min_hold_until.unwrap_or_default(),
            term: held.plan.term.duration(),
            until: held.store_until(),
            taking: held.hand_over(),
        }
    }

    /// A lease that was lost: its keys stay taken for the lock delay too, counted from the loss.
    pub(crate) fn of_lost(held: &Held) -> Self {
        let mut releasing = Self::of_held(held);
        if !held.plan.lock_delay.is_zero() {
            let delayed = held.ended_at().saturating_add(held.plan.lock_delay);
            releasing.keep_until = releasing.keep_until.max(delayed);
        }
        releasing
    }

    /// A request for it may have acted as late as `now`.
    pub(crate) fn acted_by(mut self, now: Duration) -> Self {
        let end = self.term.map(|term| now.saturating_add(term));
        self.until = end.zip(self.until).map(|(end, until)| end.max(until));
        self
    }

    fn ending(&self, now: Duration) -> ReleaseEntry {
        self.ending.clone().with_keep(self.keep_until.saturating_sub(now))
    }
}

/// Releases as they are sent. The names live as long as the request.
struct Sending {
    request: ReleaseRequest,
    names: Vec<Arc<Named>>,
}

impl Sending {
    fn of<'a>(leases: impl Iterator<Item = &'a Releasing> + Clone, now: Duration) -> Self {
        Self {
            request: ReleaseRequest::new(leases.clone().map(|lease| lease.ending(now)).collect()),
            names: leases.map(|lease| Arc::clone(&lease.taking.named)).collect(),
        }
    }
}

/// The releases of a caller who waits for the answers: what is not answered goes on in the background.
#[derive(Clone)]
struct Left(Arc<[Releasing]>);

impl Leaves for Left {
    type Reply = Result<ReleaseReply>;

    fn after(self, answer: Self::Reply) -> Vec<Releasing> {
        self.failed(&answer)
    }

    fn without(&self) -> Vec<Releasing> {
        self.0.to_vec()
    }
}

impl Left {
    fn failed(&self, answer: &Result<ReleaseReply>) -> Vec<Releasing> {
        let outcomes = answer.as_ref().map(|reply| reply.leases.as_slice()).unwrap_or_default();
        let mut outcomes = outcomes.iter();
        self.0.iter().filter(|_| outcomes.next().is_none_or(is_failure)).cloned().collect()
    }
}

impl Keeper {
    /// What is to be done, as futures that end when it is.
    pub(super) fn take_work(self: &Arc<Self>) -> Vec<BoxFuture<'static, ()>> {
        let (calls, releases, mut work) = self.inbox.take();
        for (unfinished, call) in calls {
            work.push(Box::pin(Arc::clone(self).finish_orphaned(unfinished, call)));
        }
        // A store that cannot keep a key taken is asked to free it when the time has come.
        let now = self.clock.now();
        let waits = |releasing: &Releasing| !self.can.keep && releasing.keep_until > now;
        let (later, mut at_once): (Releases, Releases) =
            releases.into_iter().partition(|(_, releasing)| waits(releasing));
        for one in later {
            let at = one.1.keep_until;
            work.push(Box::pin(Arc::clone(self).release_batch(vec![one], Some(at))));
        }
        while !at_once.is_empty() {
            let batch = at_once.split_off(at_once.len().saturating_sub(MAX_ENTRIES));
            work.push(Box::pin(Arc::clone(self).release_batch(batch, None)));
        }
        work
    }

    /// Learns the reply of a request whose caller went away, and releases what it won. One that is not
    /// answered within the limit is listened to for a while longer, beside a release of what it may win.
    async fn finish_orphaned(self: Arc<Self>, unfinished: Unfinishing, call: Orphaned) {
        let mut fallback = Fallback { keeper: Arc::clone(&self), releases: call.fallback };
        let answer = caught(call.future);
        tokio::pin!(answer);
        let until = self.clock.now().saturating_add(self.limit);
        let answered = tokio::select! {
            biased;
            answered = &mut answer => Some(answered),
            () = self.clock.sleep_until(until) => None,
        };
        let fallback = mem::take(&mut fallback.releases);
        match answered {
            Some(Ok(left)) => self.release(left),
            Some(Err(_)) => self.release(fallback),
            None => {
                let now = self.clock.now();
                self.release(fallback.into_iter().map(|lease| lease.acted_by(now)).collect());
                drop(unfinished);
                let until = now.saturating_add(LISTEN);
                let late = tokio::select! {
                    biased;
                    late = &mut answer => late.unwrap_or_default(),
                    () = self.clock.sleep_until(until) => Vec::new(),
                };
                self.release(late);
            }
        }
    }

    /// Sends releases until each is answered or its term has passed.
    async fn release_batch(self: Arc<Self>, batch: Releases, at: Option<Duration>) {
        let mut batch = Batch { keeper: Arc::clone(&self), releases: batch };
        if let Some(at) = at {
            self.clock.sleep_until(at).await;
        }
        let mut random = Random::seeded();
        let mut pause = PAUSE.0;
        loop {
            let leases = batch.releases.iter().map(|(_, lease)| lease);
            let sent = self.send_release(Sending::of(leases, self.clock.now())).await;
            let mut outcomes = sent.map(|reply| reply.leases).unwrap_or_default().into_iter();
            let now = self.clock.now();
            batch.releases.retain(|(_, lease)| {
                let answered = outcomes.next().is_some_and(|outcome| !is_failure(&outcome));
                !answered && lease.until.is_none_or(|until| now < until)
            });
            if batch.releases.is_empty() {
                return;
            }
            let next = now.saturating_add(pause / 2 + random.up_to(pause / 2));
            self.clock.sleep_until(next).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Sends one release. One that is not answered within the limit is listened to for a while longer, so
    /// that its ids stay barred, and may be sent again: a release is idempotent.
    async fn send_release(self: &Arc<Self>, sending: Sending) -> Result<ReleaseReply> {
        let until = self.clock.now().saturating_add(self.limit);
        let mut answer = Box::pin(Arc::clone(self).release_now(sending));
        tokio::select! {
            biased;
            answered = &mut answer => answered,
            () = self.clock.sleep_until(until) => {
                let keeper = Arc::clone(self);
                let listening = async move {
                    let until = keeper.clock.now().saturating_add(LISTEN);
                    tokio::select! {
                        biased;
                        _ = answer => {}
                        () = keeper.clock.sleep_until(until) => {}
                    }
                };
                self.inbox.listen(Box::pin(listening));
                Err(self.unanswered("release", self.limit))
            }
        }
    }

    /// Sends one release and wakes whoever waits in this process for what it freed.
    async fn release_now(self: Arc<Self>, sending: Sending) -> Result<ReleaseReply> {
        let Sending { request, names } = sending;
        let mut answer = pin!(caught(self.store.release(&request)));
        let mut woken = false;
        let released = poll_fn(|context| {
            let polled = answer.as_mut().poll(context);
            if self.can.in_order && polled.is_pending() && !mem::replace(&mut woken, true) {
                // The first in line tries right behind it.
                let ended = request.leases().iter().filter(|lease| lease.keep().is_none());
                self.lines.released(ended.flat_map(ReleaseEntry::keys));
            }
            polled
        });
        let released = released.await.and_then(|reply| reply);
        let released = released.inspect_err(|error| {
            tracing::debug!(%error, "a release failed");
        })?;
        for (lease, outcome) in request.leases().iter().zip(&released.leases) {
            // Whoever was woken may have been granted the key already; then the next would try in vain.
            let is_told = woken && lease.keep().is_none();
            if !is_told && !matches!(outcome, ReleaseOutcome::Kept(_) | ReleaseOutcome::Failed(_)) {
                self.lines.released(lease.keys());
            }
        }
        drop(names);
        Ok(released)
    }

    /// Releases for a caller who waits for the answers, one per lease. What fails, and what is not answered
    /// because the caller goes away or the limit is over, goes on in the background.
    pub(crate) fn release_for(
        self: &Arc<Self>,
        leases: Arc<[Releasing]>,
    ) -> impl Future<Output = Vec<ReleaseReport>> + Send + use<> {
        let keeper = Arc::clone(self);
        let count = leases.len();
        let sending = Arc::clone(self).release_now(Sending::of(leases.iter(), self.clock.now()));
        let left = Left(leases);
        let mut call = Call::new(self, Abandoned::default(), sending, left.clone());
        async move {
            let until = keeper.clock.now().saturating_add(keeper.limit);
            let answer = tokio::select! {
                biased;
                answer = &mut call => {
                    let failed = left.failed(&answer);
                    if !failed.is_empty() {
                        keeper.release(failed);
                    }
                    answer
                }
                () = keeper.clock.sleep_until(until) => {
                    Err(keeper.unanswered("release", keeper.limit))
                }
            };
            let (released, error) = match answer {
                Ok(released) => (released, None),
                Err(error) => (ReleaseReply::new(Vec::new()), Some(error)),
            };
            let ReleaseReply { leases, nodes, .. } = released;
            let report = |(at, outcome)| ReleaseReport::new(outcome, of_lease(&nodes, at));
            let mut reports: Vec<_> = leases.into_iter().enumerate().map(report).collect();
            if reports.len() != count {
                let error = error.unwrap_or_else(|| keeper.unanswered("release", keeper.limit));
                reports.resize(count, ReleaseReport::failed(error));
            }
            reports
        }
    }
}

fn is_failure(outcome: &ReleaseOutcome) -> bool {
    matches!(outcome, ReleaseOutcome::Failed(_))
}

/// Releases that are not answered; when the task ends with its runtime they go back to the inbox.
struct Batch {
    keeper: Arc<Keeper>,
    releases: Releases,
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.keeper.inbox.take_back(&mut self.releases);
    }
}

/// What an abandoned request may have won; released if the task ends with its runtime before the answer.
struct Fallback {
    keeper: Arc<Keeper>,
    releases: Vec<Releasing>,
}

impl Drop for Fallback {
    fn drop(&mut self) {
        for releasing in self.releases.drain(..) {
            self.keeper.inbox.push_release(releasing);
        }
    }
}
