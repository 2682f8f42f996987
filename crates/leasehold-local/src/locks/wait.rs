use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold_core::{BoxFuture, Clock};

use super::access::Entered;
use super::error::LockError;
use super::holder::{Instant, LockId, NEVER, Term, nanos};
use super::keys::Claims;
use super::options::Options;
use super::request::{News, Terms, Waiting};
use super::sync::Parker;
use super::table::{LockKey, Table};
use super::timer;

/// The granted lock.
pub(super) type Grant = (LockId, Term);

/// A request from its first attempt to its last. Its drop gives up, and passes on what it had got.
#[derive(Debug)]
pub(super) struct Wait<K: LockKey> {
    table: Arc<Table<K>>,
    claims: Claims<K>,
    terms: Terms,
    options: Options,
    /// Its place in the queues.
    place: Option<Arc<Waiting<K>>>,
    attempts: u32,
    started: Option<Instant>,
    /// When the next attempt is due.
    next: Instant,
}

impl<K: LockKey> Wait<K> {
    pub(super) fn new(
        table: Arc<Table<K>>,
        claims: Claims<K>,
        terms: Terms,
        options: Options,
    ) -> Self {
        let (place, started) = (None, None);
        Self { table, claims, terms, options, place, attempts: 0, started, next: 0 }
    }

    fn poll(&mut self, waker: &Waker) -> Poll<Result<Grant, LockError>> {
        loop {
            let Some(place) = self.place.clone() else {
                if self.attempts > 0 && self.table.now() < self.due() {
                    return Poll::Pending;
                }
                if let Some(answer) = self.attempt() {
                    return Poll::Ready(answer);
                }
                continue;
            };
            match place.check(waker) {
                Some(News::Granted(term)) => {
                    self.place = None;
                    return Poll::Ready(Ok((place.id, term)));
                }
                Some(News::MayTry) => {
                    self.table.try_again(&place);
                    continue;
                }
                None => {}
            }
            let due = self.due();
            if due == NEVER || self.table.now() < due {
                return Poll::Pending;
            }
            self.table.look(&place);
            if let Some(answer) = self.after_look() {
                return Poll::Ready(answer);
            }
        }
    }

    /// Asks for the lock: for the first time, or again if it has no place in a queue.
    fn attempt(&mut self) -> Option<Result<Grant, LockError>> {
        let now = self.table.now();
        self.started.get_or_insert(now);
        if self.attempts > 0 && self.deadline() <= now {
            return Some(Err(self.timed_out(now)));
        }
        self.attempts = self.attempts.saturating_add(1);
        let waits = !self.options.exact && self.has_retries() && self.deadline() > now;
        match self.table.enter(&self.claims, &self.terms, waits) {
            Entered::Granted(id, term) => return Some(Ok((id, term))),
            Entered::Refused => {}
            Entered::Waiting(place) => self.place = Some(place),
        }
        self.plan(now)
    }

    /// Counts an attempt if one was due, and plans the next. The lock may have been granted meanwhile: that is for
    /// the next check to see.
    fn after_look(&mut self) -> Option<Result<Grant, LockError>> {
        let now = self.table.now();
        if self.deadline() <= now {
            return self.give_up(now);
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
            return self.give_up(now);
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

    fn give_up(&mut self, now: Instant) -> Option<Result<Grant, LockError>> {
        if let Some(place) = self.place.take() {
            if let Some(term) = self.table.cancel(&place) {
                return Some(Ok((place.id, term)));
            }
        }
        Some(Err(self.timed_out(now)))
    }

    fn timed_out(&self, now: Instant) -> LockError {
        let waited = now.saturating_sub(self.started.unwrap_or(now));
        LockError::TimedOut { attempts: self.attempts, waited: Duration::from_nanos(waited) }
    }

    fn has_retries(&self) -> bool {
        self.options.retries.is_none_or(|retries| self.attempts <= retries)
    }

    fn deadline(&self) -> Instant {
        match (self.options.deadline, self.started) {
            (Some(deadline), Some(started)) => started.saturating_add(nanos(deadline)),
            _ => NEVER,
        }
    }

    /// When it is to be polled even if nobody wakes it.
    fn due(&self) -> Instant {
        let looks_at = self.place.as_ref().map_or(NEVER, |place| place.signal().looks_at);
        looks_at.min(self.next).min(self.deadline())
    }

    /// Waits on the calling thread.
    pub(super) fn block(mut self) -> Result<Grant, LockError> {
        let parker = Parker::new();
        let waker = parker.waker();
        loop {
            if let Poll::Ready(answer) = self.poll(&waker) {
                return answer;
            }
            park_until(&*self.table.clock, self.due(), &parker, &waker);
        }
    }
}

impl<K: LockKey> Drop for Wait<K> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            if self.table.cancel(&place).is_some() {
                self.table.remove(&self.claims, |holder| holder.id == place.id);
            }
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

/// The same wait by a task.
pub(super) struct AsyncWait<K: LockKey> {
    wait: Wait<K>,
    /// Ends when the wait is due.
    timer: Option<(Instant, BoxFuture<'static, ()>)>,
}

impl<K: LockKey> AsyncWait<K> {
    pub(super) fn new(wait: Wait<K>) -> Self {
        Self { wait, timer: None }
    }
}

// Nothing of it is pinned.
impl<K: LockKey> Unpin for AsyncWait<K> {}

impl<K: LockKey> Future for AsyncWait<K> {
    type Output = Result<Grant, LockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            if let Poll::Ready(answer) = this.wait.poll(context.waker()) {
                return Poll::Ready(answer);
            }
            let due = this.wait.due();
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
