use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::{BoxFuture, Clock};

use super::access::Entered;
use super::error::LockError;
use super::frame;
use super::holder::{Instant, NEVER, nanos};
use super::keys::Claims;
use super::lock::Grant;
use super::options::Options;
use super::request::{News, Terms};
use super::sync::Parker;
use super::table::{LockKey, Table};
use super::timer;
use super::waiter::Waiter;

/// A request from its first attempt to its last. Its drop gives up, and passes on what it had got.
#[derive(Debug)]
pub(super) struct Wait<'a, K: LockKey> {
    table: &'a Table<K>,
    claims: &'a Claims<K>,
    terms: &'a Terms,
    options: &'a Options,
    stage: Stage<K>,
    attempts: u32,
    started: Instant,
    /// When the next attempt is due.
    next: Instant,
}

/// Where a request is.
#[derive(Debug)]
enum Stage<K> {
    /// Between attempts.
    Away,
    /// In the queues.
    Queued(Waiter<K>),
}

/// How it goes on.
enum Progress {
    Over(Result<Grant, LockError>),
    /// It is to be polled then, even if nobody wakes it.
    Due(Instant),
}

impl<'a, K: LockKey> Wait<'a, K> {
    /// A request that was not granted at once.
    pub(super) fn new(
        table: &'a Table<K>,
        claims: &'a Claims<K>,
        terms: &'a Terms,
        options: &'a Options,
    ) -> Self {
        let stage = Stage::Away;
        Self { table, claims, terms, options, stage, attempts: 0, started: 0, next: 0 }
    }

    #[inline(always)]
    fn poll(&mut self, waker: &Waker) -> Progress {
        loop {
            let Stage::Queued(waiter) = &self.stage else {
                if self.attempts > 0 {
                    let due = self.due();
                    if self.table.now() < due {
                        return Progress::Due(due);
                    }
                }
                match self.attempt(waker) {
                    Some(progress) => return progress,
                    None => continue,
                }
            };
            if let Some(term) = waiter.granted(self.table, self.claims) {
                let id = waiter.id();
                self.stage = Stage::Away;
                return Progress::Over(Ok(Grant { id, term }));
            }
            match waiter.check(self.table, self.claims, waker) {
                News::Granted => {}
                News::Ended => {
                    // It ended before the waiter learned of it.
                    self.stage = Stage::Away;
                    if let Some(progress) = self.attempt(waker) {
                        return progress;
                    }
                }
                News::MayTry => waiter.try_again(self.table),
                News::LooksAt(looks_at) => {
                    let due = self.due().min(looks_at);
                    if due == NEVER || self.table.now() < due {
                        return Progress::Due(due);
                    }
                    waiter.look(self.table, self.claims);
                    if let Some(answer) = self.after_look() {
                        return Progress::Over(answer);
                    }
                }
            }
        }
    }

    /// Asks for the lock: for the first time, or again if it has no place in a queue.
    fn attempt(&mut self, waker: &Waker) -> Option<Progress> {
        // Who waits for ever needs no clock.
        let Options { retries, deadline, exact, .. } = self.options;
        let timed = retries.is_some() || deadline.is_some() || *exact;
        let now = if timed { self.table.now() } else { 0 };
        if self.attempts == 0 {
            self.started = now;
        } else if self.deadline() <= now {
            return Some(Progress::Over(Err(self.timed_out(now))));
        }
        let own = self.attempts == 0 && frame::holds(self.table, self.claims);
        self.attempts = self.attempts.saturating_add(1);
        let waits = !own && !self.options.exact && self.has_retries() && self.deadline() > now;
        let mut is_woken_until = None;
        match self.table.enter(self.claims, self.terms, waits.then(|| waker.clone())) {
            Entered::Granted(grant) => return Some(Progress::Over(Ok(grant))),
            Entered::Refused if own => {
                return Some(Progress::Over(Err(LockError::HeldByThisScope)));
            }
            Entered::Refused => {}
            Entered::Waiting(waiter, looks_at) => {
                is_woken_until = looks_at;
                self.stage = Stage::Queued(waiter);
            }
        }
        if let Some(answer) = self.plan(now) {
            return Some(Progress::Over(answer));
        }
        is_woken_until.map(|looks_at| Progress::Due(self.due().min(looks_at)))
    }

    /// Counts an attempt if one was due, and plans the next. The lock may have been granted meanwhile: that is for
    /// the next check to see.
    fn after_look(&mut self) -> Option<Result<Grant, LockError>> {
        let now = self.table.now();
        if self.deadline() <= now {
            return Some(self.give_up(now));
        }
        if self.next <= now {
            self.attempts = self.attempts.saturating_add(1);
            return self.plan(now);
        }
        None
    }

    /// Plans the attempt after the one just made, or gives up if it was the last.
    fn plan(&mut self, now: Instant) -> Option<Result<Grant, LockError>> {
        if !self.has_retries() || self.deadline() <= now {
            return Some(self.give_up(now));
        }
        self.next = match (self.options.retries, self.options.exact) {
            (None, false) => NEVER,
            (retries, _) => {
                let pause = self.options.interval.after(self.attempts - 1);
                let least = Duration::from_millis(u64::from(retries.is_none()));
                now.saturating_add(nanos(pause.max(least)))
            }
        };
        None
    }

    fn give_up(&mut self, now: Instant) -> Result<Grant, LockError> {
        self.leave().ok_or_else(|| self.timed_out(now))
    }

    /// Ends the wait; returns the lock if it was granted meanwhile.
    fn leave(&mut self) -> Option<Grant> {
        let stage = std::mem::replace(&mut self.stage, Stage::Away);
        let Stage::Queued(waiter) = stage else { return None };
        let term = waiter.cancel(self.table, self.claims)?;
        Some(Grant { id: waiter.id(), term })
    }

    fn timed_out(&self, now: Instant) -> LockError {
        let waited = Duration::from_nanos(now.saturating_sub(self.started));
        LockError::TimedOut { attempts: self.attempts, waited }
    }

    fn has_retries(&self) -> bool {
        self.options.retries.is_none_or(|retries| self.attempts <= retries)
    }

    fn deadline(&self) -> Instant {
        let deadline = self.options.deadline;
        deadline.map_or(NEVER, |deadline| self.started.saturating_add(nanos(deadline)))
    }

    /// When its next attempt is due, or its deadline.
    fn due(&self) -> Instant {
        self.next.min(self.deadline())
    }

    /// Waits on the calling thread.
    pub(super) fn block(mut self) -> Result<Grant, LockError> {
        let parker = Parker::new();
        let waker = parker.waker();
        loop {
            match self.poll(&waker) {
                Progress::Over(answer) => return answer,
                Progress::Due(due) => park_until(&*self.table.clock, due, &parker, &waker),
            }
        }
    }
}

impl<K: LockKey> Drop for Wait<'_, K> {
    fn drop(&mut self) {
        if let Some(grant) = self.leave() {
            self.table.release(self.claims, grant.id);
        }
    }
}

/// Parks the thread until its waker is woken, or the clock shows `at`; it may also return before.
fn park_until(clock: &dyn Clock, at: Instant, parker: &Parker, waker: &Waker) {
    if at == NEVER {
        return parker.park(None);
    }
    let at = Duration::from_nanos(at);
    match clock.park_limit(at) {
        Some(limit) => parker.park(Some(limit)),
        None => {
            let mut sleep = clock.sleep_until(at);
            if sleep.as_mut().poll(&mut Context::from_waker(waker)).is_pending() {
                parker.park(None);
            }
        }
    }
}

/// A request of a task.
pub(super) struct AsyncWait<'a, K: LockKey> {
    wait: Wait<'a, K>,
    /// Ends when the wait is due.
    timer: Option<(Instant, BoxFuture<'static, ()>)>,
}

impl<'a, K: LockKey> AsyncWait<'a, K> {
    pub(super) fn new(wait: Wait<'a, K>) -> Self {
        Self { wait, timer: None }
    }
}

// Nothing of it is pinned.
impl<K: LockKey> Unpin for AsyncWait<'_, K> {}

impl<K: LockKey> Future for AsyncWait<'_, K> {
    type Output = Result<Grant, LockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            let due = match this.wait.poll(context.waker()) {
                Progress::Over(answer) => return Poll::Ready(answer),
                Progress::Due(due) => due,
            };
            if due == NEVER {
                this.timer = None;
                return Poll::Pending;
            }
            if this.timer.as_ref().is_none_or(|(at, _)| *at != due) {
                this.timer = Some((due, timer::sleep_until(&this.wait.table.clock, due)));
            }
            if let Some((_, timer)) = &mut this.timer {
                if timer.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                this.timer = None;
            }
        }
    }
}
