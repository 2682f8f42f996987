//! From the builder to the guard: tries, pauses, the line, the time-out (F1).

mod order;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Backoff, Clock, Effect, Error, ErrorKind, Exponential, Key, Lease, LeaseId, LeaseRenewed,
    LostReason, Random, Renewal, Result, Store, Wait, WaitCause, WaitReport, Wakeups, Why,
};

pub(crate) use self::order::Order;
use crate::acquiring::{Options, What};
use crate::attempt::{Tried, attempt};
use crate::guard::Guard;
use crate::held::{Held, Verdict};
use crate::keeper::Releasing;
use crate::line::Place;
use crate::locker::{Inner, Locker};
use crate::own_ids::Named;
use crate::telemetry;

/// How often a waiter looks by itself although the store would wake it.
const PUSHED_POLL: Duration = Duration::from_secs(10);

/// Asks for a lock until it is granted or the wait is over.
pub(crate) async fn acquire(inner: &Arc<Inner>, mut options: Options) -> Result<Guard> {
    let started = inner.keeper.clock.now();
    let backoff = options.backoff.take();
    let order = Order::new(inner, &options)?;
    inner.ready().await?;
    let mut waiting = Waiting::new(inner, order, backoff, started);
    let resumed = match options.what {
        What::Resume(lease) => waiting.resume(&lease).await,
        What::Keys(_) | What::Claims(_) => Ok(None),
    };
    let outcome = match resumed {
        Ok(None) => waiting.acquire().await,
        Ok(Some(guard)) => Ok(guard),
        Err(error) => Err(error),
    };
    let name = match outcome.as_ref().map_err(Error::kind) {
        Ok(_) => "granted",
        Err(ErrorKind::Held) => "held",
        Err(ErrorKind::TimedOut) => "timed_out",
        Err(_) => "failed",
    };
    let waited = inner.keeper.clock.now().saturating_sub(started);
    telemetry::waited(inner.can.name, waiting.order.label.as_ref(), name, waited);
    outcome
}

/// Renews a lease once and counts from that; says why if it has ended.
pub(crate) async fn resume(
    inner: &Arc<Inner>,
    lease: Lease,
    order: &Order,
) -> Result<Result<Guard, LostReason>> {
    let keeper = &inner.keeper;
    let mut renewal = Renewal::extend(lease.id.clone(), lease.claims.clone(), order.plan.term);
    if let Some(owner) = &lease.owner {
        renewal = renewal.with_owner(owner.clone());
    }
    match keeper.renew_one(renewal).await? {
        (_, LeaseRenewed::Lost(reason)) => Ok(Err(reason.unwrap_or(LostReason::Gone))),
        (_, LeaseRenewed::Failed(error)) => Err(error),
        (sent, LeaseRenewed::Held(remaining)) => {
            let plan = order.plan_from(sent);
            let held = Held::new(lease, false, plan, None, sent, remaining);
            let guard = Guard::new(held, Locker(Arc::clone(inner)));
            match guard.verdict() {
                Verdict::Lost { reason, .. } => Ok(Err(reason)),
                Verdict::Held(_) | Verdict::Released => Ok(Ok(guard)),
            }
        }
    }
}

/// One caller's wait.
struct Waiting<'a> {
    inner: &'a Arc<Inner>,
    order: Order,
    started: Duration,
    time_out: TimeOut,
    own_backoff: bool,
    backoff: Box<dyn Backoff>,
    random: Random,
    tries: u32,
    pauses: u32,
    wakeups: Option<Wakeups>,
}

/// When the wait ends; never, if `at` is `None`.
#[derive(Clone)]
struct TimeOut {
    clock: Arc<dyn Clock>,
    at: Option<Duration>,
}

impl TimeOut {
    fn is_over(&self) -> bool {
        self.at.is_some_and(|at| at <= self.clock.now())
    }

    async fn over(&self) {
        match self.at {
            Some(at) => self.clock.sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

/// What a try that did not succeed leaves to be waited for.
struct Miss {
    key: Key,
    cause: WaitCause,
    retry_after: Option<Duration>,
}

/// What ended a pause.
#[derive(PartialEq, Eq)]
enum Pause {
    Over,
    TimeOut,
    Exhausted,
}

impl<'a> Waiting<'a> {
    fn new(
        inner: &'a Arc<Inner>,
        order: Order,
        backoff: Option<Box<dyn Backoff>>,
        started: Duration,
    ) -> Self {
        let at = match order.wait {
            Wait::UpTo(limit) => Some(started.saturating_add(limit)),
            Wait::No | Wait::Attempts(_) | Wait::Forever => None,
        };
        let time_out = TimeOut { clock: Arc::clone(&inner.keeper.clock), at };
        let own_backoff = backoff.is_some();
        let backoff = backoff.unwrap_or_else(|| {
            let first = Duration::from_millis(10);
            Box::new(Exponential::new(first).with_cap(Duration::from_secs(1)))
        });
        Self {
            inner,
            order,
            started,
            time_out,
            own_backoff,
            backoff,
            random: Random::seeded(),
            tries: 0,
            pauses: 0,
            wakeups: None,
        }
    }

    /// Goes on with a lease that still lives; `None` if it has ended.
    async fn resume(&mut self, lease: &Lease) -> Result<Option<Guard>> {
        loop {
            let error = match resume(self.inner, lease.clone(), &self.order).await {
                Ok(resumed) => return Ok(resumed.ok()),
                Err(error) => error,
            };
            if !error.is_retryable() || self.is_over() {
                return Err(error);
            }
            self.tries += 1;
            let miss = self.store_failed(error);
            if self.pause(&miss, None).await != Pause::Over {
                return Err(self.failure(miss));
            }
        }
    }

    async fn acquire(&mut self) -> Result<Guard> {
        let lines = &self.inner.keeper.lines;
        let mut place = self.order.stands_in_line().then(|| lines.join(&self.order.claims));
        let mut last = self.time_out.is_over();
        if let Some(place) = &mut place {
            tokio::select! {
                biased;
                () = place.first() => {}
                () = self.time_out.over() => last = true,
            }
        }
        loop {
            let miss = match self.try_once(last).await? {
                Ok(guard) => return Ok(guard),
                Err(miss) => miss,
            };
            if last || self.is_over() {
                return Err(self.failure(miss));
            }
            if self.subscribe(&miss).await {
                continue;
            }
            match self.pause(&miss, place.as_ref()).await {
                Pause::Over => {}
                Pause::TimeOut => last = true,
                Pause::Exhausted => {
                    return Err(self.failure(Miss { cause: WaitCause::Exhausted, ..miss }));
                }
            }
        }
    }

    /// True if no further try is to be made: the count is used up, or the time was over in flight.
    fn is_over(&self) -> bool {
        match self.order.wait {
            Wait::No => true,
            Wait::Attempts(n) => self.tries >= n,
            Wait::UpTo(_) | Wait::Forever => self.time_out.is_over(),
        }
    }

    /// Makes one try under an id of its own (C3). `Err` ends the wait.
    async fn try_once(&mut self, last: bool) -> Result<Result<Guard, Miss>> {
        let keeper = &self.inner.keeper;
        let (id, named) = match self.order.lease_id.clone() {
            None => (LeaseId::mint()?, None),
            Some(id) => match self.name_own_id(&id).await {
                Some(named) => (id, Some(named)),
                None => return Ok(Err(self.id_in_use())),
            },
        };
        self.tries += 1;
        let now = keeper.clock.now();
        let operation_end = now.saturating_add(keeper.limit);
        let limit = match self.time_out.at {
            Some(deadline) if !last => operation_end.min(deadline),
            _ => operation_end,
        };
        let request = self.order.request(id.clone(), now);
        let tried = attempt(keeper, request, named.clone(), limit).await;
        telemetry::tried(self.inner.can.name, self.order.label.as_ref(), &tried);
        match tried {
            Tried::Granted { granted, sent } => {
                let held = self.order.held(id, &granted, sent, named);
                // A grant is the caller's only while its deadline has not passed.
                if !matches!(held.verdict(keeper.clock.now()), Verdict::Held(_)) {
                    keeper.release(Releasing::of(&held, keeper.clock.now()));
                    return Ok(Err(self.validity_spent()));
                }
                let guard = Guard::new(held, Locker(Arc::clone(self.inner)));
                if !self.order.plan.term.is_never() {
                    return Ok(Ok(guard));
                }
                // F6: until the store has made it endless the guard is ours, and dropping it releases.
                match make_endless(&guard, &*keeper.clock).await {
                    Ok(()) if guard.is_held() => Ok(Ok(guard)),
                    Err(error) if error.kind() != ErrorKind::Lost => Err(error),
                    Ok(()) | Err(_) => Ok(Err(self.validity_spent())),
                }
            }
            Tried::Refused(refused) => Ok(Err(Miss {
                cause: WaitCause::Held(match refused.why {
                    Why::Held(holder) => holder,
                    Why::Busy | Why::Queued => None,
                }),
                key: refused.key,
                retry_after: refused.retry_after,
            })),
            // C10: a store failure is kept as such; only one that may pass is waited for.
            Tried::Failed(error) if error.is_retryable() => Ok(Err(self.store_failed(error))),
            Tried::Failed(error) => Err(error),
        }
    }

    /// Takes the caller's own id once nothing else names it; `None` if there is no time for that.
    async fn name_own_id(&mut self, id: &LeaseId) -> Option<Arc<Named>> {
        let ids = &self.inner.keeper.own_ids;
        if self.order.wait == Wait::No {
            return ids.try_name(id);
        }
        tokio::select! {
            biased;
            named = ids.name(id) => Some(named),
            () = self.time_out.over() => None,
        }
    }

    fn miss(&self, cause: WaitCause) -> Miss {
        Miss { key: self.order.claims.first().key.clone(), cause, retry_after: None }
    }

    fn store_failed(&self, error: Error) -> Miss {
        Miss { retry_after: error.retry_after(), ..self.miss(WaitCause::Store(error)) }
    }

    fn validity_spent(&self) -> Miss {
        self.miss(WaitCause::ValiditySpent)
    }

    fn id_in_use(&self) -> Miss {
        self.miss(WaitCause::Store(Error::unavailable(
            Effect::None,
            "an earlier request or lease with the same lease id is not finished; \
             release it, wait, or use another id",
        )))
    }

    /// After a first refusal: asks to be woken, if the store can; true if a try must follow at once (C12).
    async fn subscribe(&mut self, miss: &Miss) -> bool {
        let wanted = self.inner.can.push
            && self.wakeups.is_none()
            && matches!(miss.cause, WaitCause::Held(_))
            && !matches!(self.order.wait, Wait::Attempts(_));
        if !wanted {
            return false;
        }
        let keys: Vec<Key> = self.order.claims.keys().cloned().collect();
        let subscribed = tokio::select! {
            biased;
            subscribed = self.inner.keeper.store.subscribe(&keys) => subscribed,
            () = self.time_out.over() => return false,
        };
        match subscribed {
            Ok(wakeups) => {
                self.wakeups = Some(wakeups);
                true
            }
            Err(error) => {
                tracing::debug!(%error, "no wake-ups; polling instead");
                false
            }
        }
    }

    /// Waits for the earliest of a wake-up, `retry_after`, the poll, and the time-out.
    async fn pause(&mut self, miss: &Miss, place: Option<&Place>) -> Pause {
        let clock = Arc::clone(&self.inner.keeper.clock);
        let pushed =
            self.wakeups.is_some() && !self.own_backoff && matches!(miss.cause, WaitCause::Held(_));
        let poll = if pushed {
            let fifth = PUSHED_POLL / 5;
            Some(PUSHED_POLL - fifth / 2 + self.random.up_to(fifth))
        } else {
            let retry = self.pauses;
            self.pauses = self.pauses.saturating_add(1);
            self.backoff.next(retry)
        };
        let Some(poll) = poll else { return Pause::Exhausted };
        let next = clock.now().saturating_add(miss.retry_after.map_or(poll, |at| at.min(poll)));
        let pause = tokio::select! {
            biased;
            () = hint(self.wakeups.as_mut()) => Pause::Over,
            () = released(place) => Pause::Over,
            () = clock.sleep_until(next) => Pause::Over,
            () = self.time_out.over() => Pause::TimeOut,
        };
        if self.time_out.is_over() { Pause::TimeOut } else { pause }
    }

    fn failure(&self, miss: Miss) -> Error {
        let waited = self.inner.keeper.clock.now().saturating_sub(self.started);
        match (self.order.wait, miss.cause) {
            (Wait::No, WaitCause::Store(error)) => error,
            (Wait::No, cause @ WaitCause::Held(_)) => {
                Error::held(WaitReport::new(miss.key, waited, self.tries, cause))
            }
            (_, cause) => Error::timed_out(WaitReport::new(miss.key, waited, self.tries, cause)),
        }
    }
}

/// Asks until it is answered or the finite term is over.
async fn make_endless(guard: &Guard, clock: &dyn Clock) -> Result<()> {
    let mut pause = Duration::from_millis(10);
    loop {
        match guard.renew_to_never().await {
            Err(error) if error.is_retryable() && guard.is_held() => {
                clock.sleep_until(clock.now().saturating_add(pause)).await;
                pause = (pause * 2).min(Duration::from_secs(1));
                if !guard.is_held() {
                    return Err(error);
                }
            }
            other => return other,
        }
    }
}

async fn hint(wakeups: Option<&mut Wakeups>) {
    match wakeups {
        Some(wakeups) => drop(wakeups.next().await),
        None => std::future::pending().await,
    }
}

async fn released(place: Option<&Place>) {
    match place {
        Some(place) => place.released().await,
        None => std::future::pending().await,
    }
}
