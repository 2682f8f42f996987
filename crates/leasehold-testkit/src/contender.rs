//! A client that contends for a key, as the front end would, and records what the checker of histories needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_conformance::history::{Answer, Belief, Call, History};
use leasehold_core::term::Drift;
use leasehold_core::{
    AcquireReply, AcquireRequest, Claims, Clock, FencingToken, Granted, LeaseId, ReleaseEntry,
    ReleaseOutcome, ReleaseRequest, Remaining, RenewEntry, RenewOutcome, RenewRequest, Store, Ttl,
};
use leasehold_driver::TokioClock;

const NOTHING: Remaining = Remaining::For(Duration::ZERO);

/// A grant to a client. The checker knows it under its own name.
struct Grant {
    known: LeaseId,
    token: Option<FencingToken>,
    remaining: Remaining,
}

/// What a client holds, and until when by its own clock.
pub struct HeldLease {
    grant: Grant,
    from: u64,
    deadline: Duration,
}

/// What it requests, and how fast.
#[derive(Debug, Clone)]
pub struct Habit {
    pub claims: Claims,
    pub term: Duration,
    /// The longest pause of a holder, in milliseconds.
    pub hold: u64,
    /// The longest pause between attempts, in milliseconds.
    pub rest: u64,
}

pub struct Contender<S> {
    pub store: S,
    habit: Habit,
    clock: TokioClock,
    random: fastrand::Rng,
    instant: Arc<AtomicU64>,
    calls: Vec<Call>,
    beliefs: Vec<Belief>,
}

impl<S: Store> Contender<S> {
    pub fn new(
        store: S,
        habit: Habit,
        clock: TokioClock,
        random: fastrand::Rng,
        instant: &Arc<AtomicU64>,
    ) -> Self {
        let (calls, beliefs) = (Vec::new(), Vec::new());
        Self { store, habit, clock, random, instant: Arc::clone(instant), calls, beliefs }
    }

    /// Adds what it saw.
    pub fn tell(self, history: &mut History) -> S {
        history.calls.extend(self.calls);
        history.beliefs.extend(self.beliefs);
        self.store
    }

    fn instant(&self) -> u64 {
        self.instant.fetch_add(1, Ordering::SeqCst)
    }

    fn claims(&self) -> Claims {
        self.habit.claims.clone()
    }

    fn term(&self) -> Ttl {
        Ttl::new(self.habit.term).unwrap()
    }

    async fn pause(&mut self, most: u64) {
        tokio::time::sleep(Duration::from_millis(1 + self.random.u64(..most))).await;
    }

    fn call(&mut self, id: &LeaseId, invoked: u64, answer: Answer) {
        let returned = self.instant();
        self.calls.push(Call::new(id.clone(), self.claims(), invoked, returned, answer));
    }

    fn patience(&mut self) -> Duration {
        if self.random.u64(..8) == 0 {
            Duration::from_millis(self.random.u64(..100))
        } else {
            self.habit.term
        }
    }

    /// A caller that goes away meanwhile has no answer, and releases.
    async fn acquire(
        &mut self,
        request: &AcquireRequest,
        known: &LeaseId,
        patience: Duration,
    ) -> Option<Grant> {
        let invoked = self.instant();
        let answer = tokio::time::timeout(patience, self.store.acquire(request)).await;
        let mut known = known.clone();
        let (answer, grant) = match answer {
            Ok(Ok(AcquireReply::Granted(Granted { token, remaining, fresh, .. }))) => {
                // A lease that no majority was seen to hold any more is a new one with the same id.
                if fresh && request.is_again().is_some() {
                    known = LeaseId::mint().unwrap();
                }
                let grant = Grant { known: known.clone(), token, remaining };
                (Answer::Granted { token, fresh }, Some(grant))
            }
            // A refusal from a split vote needs no holder.
            Ok(Ok(AcquireReply::Refused(_))) => (Answer::Busy, None),
            Ok(Err(_)) | Err(_) => (Answer::AcquireUnknown, None),
        };
        self.call(&known, invoked, answer);
        grant
    }

    async fn release(&mut self, id: &LeaseId, known: &LeaseId) {
        let ending = ReleaseEntry::new(id.clone(), self.habit.claims.keys().cloned());
        let invoked = self.instant();
        let answer = match self.store.release(&ReleaseRequest::new(vec![ending])).await {
            Ok(released) => match released.leases[0] {
                ReleaseOutcome::Released | ReleaseOutcome::Kept(_) => Answer::Released,
                ReleaseOutcome::Expired | ReleaseOutcome::NotHeld => Answer::Ended,
                ReleaseOutcome::Failed(_) => Answer::Unknown,
            },
            Err(_) => Answer::Unknown,
        };
        self.call(known, invoked, answer);
    }

    /// What the renewal found to remain: nothing new if it failed, `None` if the lease is lost.
    async fn renew(&mut self, id: &LeaseId, grant: &Grant) -> Option<Remaining> {
        let invoked = self.instant();
        let mut renewal = RenewEntry::extend(id.clone(), self.claims(), self.term());
        if let Some(token) = grant.token {
            renewal = renewal.with_token(token);
        }
        let answer = self.store.renew(&RenewRequest::new(vec![renewal])).await;
        let (answer, remaining) = match answer.map(|mut renewed| renewed.leases.remove(0)) {
            Ok(RenewOutcome::Held(remaining)) => (Answer::Held, Some(remaining)),
            Ok(RenewOutcome::Lost(_)) => (Answer::Lost, None),
            Ok(RenewOutcome::Failed(_)) | Err(_) => (Answer::Unknown, Some(NOTHING)),
        };
        self.call(&grant.known, invoked, answer);
        remaining
    }

    /// Holds a lease as the front end does: it trusts the lease until its own deadline and no longer. At `from` it knew of
    /// the grant, and then looked at its clock.
    async fn hold(&mut self, id: &LeaseId, held: HeldLease) -> LeaseId {
        let HeldLease { mut grant, mut from, mut deadline } = held;
        let drift = Drift::default();
        let mut until = from;
        for _ in 0..self.random.u64(..6) {
            self.pause(self.habit.hold).await;
            // Before the look at the clock.
            let looked = self.instant();
            let sent = self.clock.now();
            if sent >= deadline {
                break;
            }
            until = looked;
            let remaining = if self.random.u64(..3) == 0 {
                let again =
                    AcquireRequest::new(id.clone(), self.claims(), self.term()).again(grant.token);
                let patience = self.patience();
                match self.acquire(&again, &grant.known, patience).await {
                    Some(new) if new.known != grant.known => {
                        self.beliefs.push(Belief::new(grant.known, self.claims(), from, until));
                        let remaining = new.remaining;
                        grant = new;
                        deadline = drift.deadline(sent, remaining).unwrap_or_default();
                        from = self.instant();
                        if self.clock.now() >= deadline {
                            return grant.known;
                        }
                        until = from;
                        continue;
                    }
                    same => Some(same.map_or(NOTHING, |grant| grant.remaining)),
                }
            } else {
                self.renew(id, &grant).await
            };
            let Some(remaining) = remaining else { break };
            // A reply after the deadline is not trusted.
            if self.clock.now() >= deadline {
                break;
            }
            deadline = deadline.max(drift.deadline(sent, remaining).unwrap_or_default());
        }
        self.beliefs.push(Belief::new(grant.known.clone(), self.claims(), from, until));
        grant.known
    }

    /// Tries once, and keeps what it gets.
    pub async fn take(&mut self) -> Option<HeldLease> {
        self.try_for(&LeaseId::mint().unwrap(), self.habit.term).await
    }

    async fn try_for(&mut self, id: &LeaseId, patience: Duration) -> Option<HeldLease> {
        let sent = self.clock.now();
        let request = AcquireRequest::new(id.clone(), self.claims(), self.term());
        let grant = self.acquire(&request, id, patience).await?;
        let deadline = Drift::default().deadline(sent, grant.remaining).unwrap_or_default();
        Some(HeldLease { grant, from: self.instant(), deadline })
    }

    /// Reads its clock, and returns whether it still holds what it took.
    pub fn look(&mut self, held: &HeldLease) -> bool {
        let until = self.instant();
        let believes = self.clock.now() < held.deadline;
        if believes {
            let known = held.grant.known.clone();
            self.beliefs.push(Belief::new(known, self.claims(), held.from, until));
        }
        believes
    }

    /// Tries once, holds what it gets, and mostly releases it. Returns whether it got it.
    pub async fn attempt(&mut self) -> bool {
        let id = LeaseId::mint().unwrap();
        let patience = self.patience();
        let held = self.try_for(&id, patience).await;
        let is_granted = held.is_some();
        match held {
            Some(held) => {
                let mut known = held.grant.known.clone();
                if self.clock.now() < held.deadline {
                    known = self.hold(&id, held).await;
                }
                if self.random.u64(..4) > 0 {
                    self.release(&id, &known).await;
                }
            }
            None => self.release(&id, &id).await,
        }
        self.pause(self.habit.rest).await;
        is_granted
    }
}
