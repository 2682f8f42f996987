use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold_core::{
    Backoff, Claim, Clock, Error, ErrorKind, Key, LeaseId, NodeReports, Random, Record,
    RefusalReason, Refused, Result, Store, Wait, WaitCause, WaitReport,
};

use super::attempt::{AttemptOutcome, Times, attempt};
use super::options::{LockOptions, OnBlocked, Pauses};
use super::poll::{LONGEST_PAUSE, pause, pushed_poll, usual_backoff};
use super::resume::{id_in_use, resume};
use super::spec::LockSpec;
use super::start::Start;
use super::time_out::TimeOut;
use crate::guard::Guard;
use crate::lease::cleanup::Cleanup;
use crate::lease::ids::{IdReservation, Ownership, held_here};
use crate::lease::state::{HoldStatus, LeaseState};
use crate::locker::Inner;
use crate::queue::{Hints, Place, QueueState, Taken};
use crate::telemetry;

/// Requests a lock until it is granted or the wait ends.
pub(crate) async fn acquire(inner: &Arc<Inner>, mut options: Box<LockOptions>) -> Result<Guard> {
    let (backoff, on_blocked) = (options.backoff.take(), options.on_blocked.take());
    let mut waiting = Waiting::new(inner, LockSpec::new(inner, options)?, backoff, on_blocked);
    let outcome = {
        let mut acquiring = pin!(waiting.acquire());
        tokio::select! {
            biased;
            () = inner.was_closed() => Err(Inner::closed_error()),
            outcome = &mut acquiring => outcome,
            () = inner.closed() => Err(Inner::closed_error()),
        }
    };
    let name = match outcome.as_ref().map_err(Error::kind) {
        Ok(_) => "granted",
        Err(ErrorKind::Held) => "refused",
        Err(ErrorKind::TimedOut) => "timed_out",
        Err(_) => "failed",
    };
    let waited = || inner.keeper.clock.now().saturating_sub(waiting.started);
    telemetry::waited(inner.keeper.can.name, waiting.spec.label(), name, waited);
    outcome
}

/// The wait of one caller.
struct Waiting<'a> {
    inner: &'a Arc<Inner>,
    spec: LockSpec,
    started: Duration,
    time_out: TimeOut<'a>,
    /// Its place in the queue, if it queues.
    place: Option<Place<'a>>,
    /// What it knows outside a queue.
    known: QueueState,
    own_backoff: Option<Pauses>,
    on_blocked: Option<OnBlocked>,
    tries: u32,
    pauses: u32,
    holder: Option<Box<Record>>,
    /// It was warned that it waits for itself.
    is_told: bool,
}

/// What a try without a grant leaves to wait for.
struct Blocked {
    key: Key,
    cause: WaitCause,
    retry_after: Option<Duration>,
    /// The longest pause before the next try, if the store may not wake waiters when the keys are free.
    poll_within: Option<Duration>,
    /// What each node of a quorum reported.
    nodes: NodeReports,
}

/// Why a pause ended.
#[derive(PartialEq, Eq)]
enum Pause {
    Over,
    TimeOut,
    Exhausted,
}

impl<'a> Waiting<'a> {
    fn new(
        inner: &'a Arc<Inner>,
        spec: LockSpec,
        own_backoff: Option<Pauses>,
        on_blocked: Option<OnBlocked>,
    ) -> Self {
        let started = inner.keeper.clock.now();
        let time_out = TimeOut::of(spec.wait, started, &*inner.keeper.clock);
        Self {
            inner,
            spec,
            started,
            time_out,
            place: None,
            known: QueueState::default(),
            own_backoff,
            on_blocked,
            tries: 0,
            pauses: 0,
            holder: None,
            is_told: false,
        }
    }

    async fn acquire(&mut self) -> Result<Guard> {
        let queues = &self.inner.keeper.queues;
        let alone = self.spec.lease_id.is_some() || self.own_backoff.is_some();
        self.place = self.spec.may_queue().then(|| queues.join(&self.spec.claims, alone));
        let mut now = self.started;
        let mut last = self.time_out.is_over_at(now);
        if self.place.as_ref().is_some_and(|place| !place.is_first()) {
            last |= Box::pin(self.queue()).await;
            now = self.inner.keeper.clock.now();
        }
        loop {
            let tried = match self.taken().filter(|_| !last) {
                Some(taken) => Err(taken),
                None => self.try_once(now, last).await?,
            };
            let blocked = match tried {
                Ok(guard) => {
                    self.leave_to_next(&guard);
                    return Ok(guard);
                }
                Err(blocked) => blocked,
            };
            if last || self.is_over() {
                return Err(self.failure(blocked));
            }
            self.tell_blocked(&blocked);
            // Boxed, like everything that an uncontended acquire does not need, to keep its future small.
            let pause = if Box::pin(self.subscribe(&blocked)).await {
                Pause::Over
            } else {
                Box::pin(self.pause(&blocked)).await
            };
            now = self.inner.keeper.clock.now();
            match pause {
                Pause::Over => {}
                Pause::TimeOut => last = true,
                Pause::Exhausted => {
                    return Err(self.failure(Blocked { cause: WaitCause::Exhausted, ..blocked }));
                }
            }
        }
    }

    /// Waits until it is the first in its queue; true if the time ended first.
    async fn queue(&mut self) -> bool {
        let holder = self.place.as_ref().and_then(Place::holder);
        self.tell_itself(holder.as_deref());
        let Some(place) = &mut self.place else { return false };
        tokio::select! {
            biased;
            () = place.first() => false,
            () = self.time_out.over() => true,
        }
    }

    fn known(&mut self) -> &mut QueueState {
        self.place.as_mut().and_then(Place::known).unwrap_or(&mut self.known)
    }

    /// The refusal that a try would get because someone in the same queue was just granted the keys.
    fn taken(&mut self) -> Option<Blocked> {
        let Taken { until } = self.known().taken.take()?;
        let now = self.inner.keeper.clock.now();
        let retry_after = until.map(|until| until.saturating_sub(now));
        Some(Blocked { retry_after, ..self.blocked(WaitCause::Held) })
    }

    /// Spares the next in the queue a try that would be refused.
    fn leave_to_next(&mut self, guard: &Guard) {
        let excludes = |claim: &Claim| !claim.mode.is_shared();
        if let Some(place) = self.place.as_mut().filter(|_| self.spec.claims.iter().any(excludes)) {
            place.leave_taken(Taken { until: guard.held().store_until() });
        }
    }

    /// True if no further try is allowed: the tries are used up, or the time ended during one.
    fn is_over(&self) -> bool {
        match self.spec.wait {
            Wait::No => true,
            Wait::Attempts(n) => self.tries >= n,
            Wait::UpTo(_) | Wait::Forever => self.time_out.is_over(),
        }
    }

    /// Makes one try. `Err` ends the wait.
    async fn try_once(&mut self, now: Duration, last: bool) -> Result<Result<Guard, Blocked>> {
        self.tries += 1;
        let limit = self.time_out.of_try(now, last, self.inner.keeper.limit);
        let start = Start::at(now);
        match self.try_by(start, last, limit).await {
            // C10: a store failure stays one; the wait continues only if it may pass.
            Err(error) if error.is_retryable() => Ok(Err(Blocked {
                retry_after: error.retry_after(),
                nodes: error.nodes().clone(),
                ..self.blocked(WaitCause::Store(error))
            })),
            other => other,
        }
    }

    /// Makes one try that ends by `limit` at the latest: continues the lease to resume, and requests a new one if there is
    /// none or once it has ended.
    async fn try_by(
        &mut self,
        mut start: Start,
        last: bool,
        limit: Duration,
    ) -> Result<Result<Guard, Blocked>> {
        let (level, term) = (self.spec.level, self.spec.policy.term);
        start.has_keeper = self.inner.ensure_running(start.process)?;
        if !self.inner.is_ready(level, term) {
            Box::pin(self.inner.make_ready(level, term, limit)).await?;
            start = start.after_wait(&*self.inner.keeper.clock);
        }
        let Some(lease) = self.spec.resuming.clone() else {
            return self.ask(start, last, limit).await;
        };
        let reservation = Box::pin(self.reserve(&lease.id, last)).await?;
        match Box::pin(resume(self.inner, lease, &self.spec, reservation, limit)).await? {
            Ok(guard) => Ok(Ok(guard)),
            Err(_) => {
                self.spec.resuming = None;
                start = start.after_wait(&*self.inner.keeper.clock);
                self.ask(start, last, limit).await
            }
        }
    }

    /// Requests a new lease under a new id (C3).
    async fn ask(
        &mut self,
        start: Start,
        last: bool,
        limit: Duration,
    ) -> Result<Result<Guard, Blocked>> {
        let keeper = &self.inner.keeper;
        let Start { mut now, process, has_keeper } = start;
        let (id, reservation) = match self.spec.lease_id.clone() {
            Some(id) => {
                let reservation = Box::pin(self.reserve(&id, last)).await?;
                now = keeper.clock.now();
                (id, reservation)
            }
            None => {
                let id = LeaseId::mint_at(now, process)?;
                let (claims, caller) = (&self.spec.claims, self.spec.policy.caller);
                let reservation = keeper.ids.reserve_minted(&id, claims, caller);
                (id, reservation)
            }
        };
        let ownership = Ownership::of(reservation);
        if let Some(observer) = &self.spec.observer {
            observer.tries(&id, &ownership);
        }
        let request = self.spec.request(id.clone());
        let (claims, term) = (&self.spec.claims, request.term());
        let may_leave = || Cleanup::of_request(&id, claims, term, &ownership, now);
        let times = Times::new(now, self.spec.wait, limit);
        let (tried, at_once) = attempt(keeper, request, may_leave, times).await;
        telemetry::tried(keeper.can.name, self.spec.label(), tried.name());
        if let Some(observer) = &self.spec.observer {
            observer.tried(&tried);
        }
        match tried {
            AttemptOutcome::Granted { granted, sent } => {
                let now = keeper.clock.now();
                let held = self.spec.held(id, granted, (sent, now), ownership);
                self.hand_out(held, now, has_keeper && at_once, limit).await
            }
            AttemptOutcome::Refused(refused) => {
                let Refused { key, why, retry_after, poll_within, nodes, .. } = refused;
                if let RefusalReason::Held(holder) = why {
                    self.holder = holder;
                    self.tell_refusal(&key);
                }
                Ok(Err(Blocked { key, cause: WaitCause::Held, retry_after, poll_within, nodes }))
            }
            AttemptOutcome::Failed(error) => Err(error),
        }
    }

    /// Logs a refusal, and passes the holder on to the callers behind this one.
    fn tell_refusal(&mut self, key: &Key) {
        let holder = self.holder.take();
        let is_here = holder.as_deref().and_then(held_here).is_some();
        telemetry::refused(self.inner.keeper.can.name, key, holder.as_deref(), is_here);
        if let Some(place) = &self.place {
            place.refused_by(holder.as_deref());
        }
        self.tell_itself(holder.as_deref());
        self.holder = holder;
    }

    /// Warns a caller that is about to wait for a lease of its own.
    fn tell_itself(&mut self, holder: Option<&Record>) {
        let Some(holder) = holder.filter(|_| !self.is_told && self.spec.wait != Wait::No) else {
            return;
        };
        if held_here(holder) == Some(self.spec.policy.caller) {
            self.is_told = true;
            self.inner.keeper.waits_for_itself(holder);
        }
    }

    /// Hands out a grant only while its deadline has not passed, and one without end only after the store has made
    /// it so (F6). Until then dropping the guard releases it.
    async fn hand_out(
        &mut self,
        held: Arc<LeaseState>,
        now: Duration,
        has_keeper: bool,
        limit: Duration,
    ) -> Result<Result<Guard, Blocked>> {
        let keeper = &self.inner.keeper;
        if !matches!(held.status(now), HoldStatus::Held(_)) {
            keeper.release([Cleanup::of_held(&held)]);
            return Ok(Err(self.blocked(WaitCause::GrantedTooLate)));
        }
        let guard = Guard::new(held, &self.inner.keeper, has_keeper);
        if self.spec.policy.term.is_never() {
            Box::pin(make_endless(&guard, &*keeper.clock, limit)).await?;
            if !guard.is_held() {
                return Ok(Err(self.blocked(WaitCause::GrantedTooLate)));
            }
        }
        Ok(Ok(guard))
    }

    /// Reserves an id once nothing else uses it.
    async fn reserve(&mut self, id: &LeaseId, last: bool) -> Result<Arc<IdReservation>> {
        let (ids, clock) = (&self.inner.keeper.ids, &*self.inner.keeper.clock);
        let (claims, caller) = (&self.spec.claims, self.spec.policy.caller);
        let mut reservation = ids.try_reserve(id, claims, caller, clock.now()).ok();
        if reservation.is_none() && !last && self.spec.wait != Wait::No {
            reservation = tokio::select! {
                biased;
                reservation = ids.reserve(id, claims, caller, clock) => Some(reservation),
                () = self.time_out.over() => None,
            };
        }
        reservation.ok_or_else(id_in_use)
    }

    fn blocked(&self, cause: WaitCause) -> Blocked {
        let key = self.spec.claims.first().key.clone();
        let poll_within = (!matches!(cause, WaitCause::Held)).then_some(LONGEST_PAUSE);
        Blocked { key, cause, retry_after: None, poll_within, nodes: NodeReports::default() }
    }

    /// After a first refusal: subscribes, if the store can notify; true if a try must follow at once (C12). The
    /// subscription continues for as long as it takes, but what frees a key meanwhile is not missed.
    async fn subscribe(&mut self, blocked: &Blocked) -> bool {
        let keeper = Arc::clone(&self.inner.keeper);
        let wanted = keeper.can.notifications
            && matches!(self.known().hints, Hints::None)
            && blocked.poll_within.is_none()
            && !matches!(self.spec.wait, Wait::Attempts(_));
        if !wanted {
            return false;
        }
        let keys: Vec<Key> = self.spec.claims.keys().cloned().collect();
        let clock = Arc::clone(&keeper.clock);
        let subscription = async move {
            let subscribed = keeper.limited("subscribe", keeper.store.subscribe(&keys));
            subscribed.await
        };
        self.known().hints = Hints::Subscribing(subscription.boxed());
        let patience = blocked.retry_after.map_or(LONGEST_PAUSE, |at| at.min(LONGEST_PAUSE));
        let time_out = self.time_out;
        tokio::select! {
            biased;
            () = self.woken(true) => !matches!(self.known().hints, Hints::None),
            () = clock.sleep_until(clock.now().saturating_add(patience)) => true,
            () = time_out.over() => false,
        }
    }

    /// Waits for the first of a hint, `retry_after`, the poll, and the end of the wait.
    async fn pause(&mut self, blocked: &Blocked) -> Pause {
        let time_out = self.time_out;
        let clock = time_out.clock;
        let poll = self.next_poll(blocked);
        let Some(poll) = poll else { return Pause::Exhausted };
        let next = clock.now().saturating_add(blocked.retry_after.map_or(poll, |at| at.min(poll)));
        let pause = tokio::select! {
            biased;
            () = self.woken(blocked.poll_within.is_none()) => Pause::Over,
            () = clock.sleep_until(next) => Pause::Over,
            () = time_out.over() => Pause::TimeOut,
        };
        // One try answers every hint that has arrived.
        while self.woken(true).now_or_never().is_some() {}
        // A pause of zero must let other tasks run.
        tokio::task::yield_now().await;
        if time_out.is_over() { Pause::TimeOut } else { pause }
    }

    /// The longest wait before the next try without a hint.
    fn next_poll(&mut self, blocked: &Blocked) -> Option<Duration> {
        let subscribed = matches!(self.known().hints, Hints::Subscribed(_));
        if blocked.poll_within.is_none() && self.own_backoff.is_none() && subscribed {
            return Some(pushed_poll(&mut Random::seeded()));
        }
        let retry = self.pauses;
        self.pauses = self.pauses.saturating_add(1);
        match &mut self.own_backoff {
            Some(own) => own.next(retry),
            None => {
                let waited = self.inner.keeper.clock.now().saturating_sub(self.started);
                match blocked.poll_within {
                    Some(longest) => usual_backoff(longest).next(retry),
                    None => pause(retry, waited),
                }
            }
        }
    }

    /// Ends when a key may be free, as this `Locker` knows, or the store too if it is listened to.
    async fn woken(&mut self, listens: bool) {
        match &mut self.place {
            Some(place) => place.woken(listens).await,
            None if listens => self.known.hints.next().await,
            None => std::future::pending().await,
        }
    }

    /// Reports to the caller why the wait continues.
    fn tell_blocked(&mut self, blocked: &Blocked) {
        if let Some(on_blocked) = self.on_blocked.clone() {
            let report = self.report(blocked.key.clone(), blocked.cause.clone());
            on_blocked.call(&report);
            self.holder = report.holder;
        }
    }

    /// What the wait has come to; takes the holder.
    fn report(&mut self, key: Key, cause: WaitCause) -> WaitReport {
        let waited = self.inner.keeper.clock.now().saturating_sub(self.started);
        let holder = self.holder.take();
        let is_here = holder.as_deref().and_then(held_here).is_some();
        WaitReport::new(key, waited, self.tries, cause).with_holder(holder, is_here)
    }

    fn failure(&mut self, blocked: Blocked) -> Error {
        let error = match (self.spec.wait, blocked.cause) {
            (Wait::No, WaitCause::Store(error)) => return error,
            (Wait::No, WaitCause::Held) => Error::held(self.report(blocked.key, WaitCause::Held)),
            (_, cause) => Error::timed_out(self.report(blocked.key, cause)),
        };
        let error = error.with_nodes(blocked.nodes);
        match blocked.retry_after {
            Some(after) => error.with_retry_after(after),
            None => error,
        }
    }
}

/// Repeats the request until the store answers, the finite term ends, or the limit passes.
async fn make_endless(guard: &Guard, clock: &dyn Clock, limit: Duration) -> Result<()> {
    let mut pause = Duration::from_millis(10);
    loop {
        let error = match guard.renew_until(limit).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Lost => return Ok(()),
            Err(error) => error,
        };
        let next = clock.now().saturating_add(pause);
        if !error.is_retryable() || next >= limit || !guard.is_held() {
            return Err(error);
        }
        clock.sleep_until(next).await;
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}
