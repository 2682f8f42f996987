use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{FencingToken, Lease, LostReason, NodeReports, Remaining, Result};

use crate::lease::events::Event;
use crate::lease::release_report::ReleaseReport;
use crate::locker::Locker;

/// The right to be inside the critical section, until its own clock shows that the lease is over; see
/// [`crate::Guard`].
///
/// The lease renews itself on the `Locker`'s thread while the caller's thread works. You may send a guard to other
/// threads, share it, and drop it on any of them. Dropping it releases the lease in the background, best effort:
/// it never blocks, and it is **not immediate**.
///
/// Methods that send a request fail as any operation, and as [the module](crate::blocking) states.
#[derive(Debug)]
#[must_use = "the lock is released when its guard is dropped"]
pub struct Guard {
    /// Each thread that waits in a call shares it for that call only.
    guard: Arc<crate::Guard>,
    locks: Locker,
}

impl Guard {
    pub(super) fn new(guard: crate::Guard, locks: Locker) -> Self {
        Self { guard: Arc::new(guard), locks }
    }

    /// As [`crate::Guard::token`].
    pub fn token(&self) -> Option<FencingToken> {
        self.guard.token()
    }

    /// As [`crate::Guard::fencing_token`].
    ///
    /// # Errors
    /// As there.
    pub fn fencing_token(&self) -> Result<FencingToken> {
        self.guard.fencing_token()
    }

    /// What is held.
    pub fn lease(&self) -> &Lease {
        self.guard.lease()
    }

    /// As [`crate::Guard::is_fresh`].
    pub fn is_fresh(&self) -> bool {
        self.guard.is_fresh()
    }

    /// True until the lease is lost, by this process's clock, without I/O and without waiting for any other
    /// thread ([F4, F5](crate::contract)). Once false, for ever false.
    pub fn is_held(&self) -> bool {
        self.guard.is_held()
    }

    /// Fails unless the lease is held, as cheaply as [`is_held`](Guard::is_held): for use right before each
    /// side effect.
    ///
    /// # Errors
    /// As [`crate::Guard::ensure_held`].
    pub fn ensure_held(&self) -> Result<()> {
        self.guard.ensure_held()
    }

    /// How much longer the holder may trust the lease if no renewal succeeds; zero once it is lost.
    pub fn remaining(&self) -> Remaining {
        self.guard.remaining()
    }

    /// Waits until the lease is lost, at the local deadline at the latest, and states why ([F5](crate::contract)).
    /// Returns `None` if
    /// `timeout` passes first (`None` waits without one), or if its [`Group`](super::Group) releases the lease.
    ///
    /// # Errors
    /// As [the module](crate::blocking) states.
    pub fn lost(&self, timeout: impl Into<Option<Duration>>) -> Result<Option<LostReason>> {
        let timeout = timeout.into();
        self.call(move |guard| async move {
            let clock = &guard.keeper().clock;
            let Some(timeout) = timeout else { return Ok(guard.ended().await) };
            let until = clock.now().saturating_add(timeout);
            tokio::select! {
                biased;
                reason = guard.ended() => Ok(reason),
                () = clock.sleep_until(until) => Ok(None),
            }
        })
    }

    /// What each node of a quorum reported, as [`crate::Guard::nodes`].
    pub fn nodes(&self) -> NodeReports {
        self.guard.nodes()
    }

    /// The events of the lease from now on ([F14](crate::contract)): an iterator that waits for each.
    pub fn events(&self) -> Events {
        Events { events: self.guard.events(), locks: self.locks.clone() }
    }

    /// Checks with the store whether it still has the lease, on all its keys. If not, the lease is lost.
    ///
    /// # Errors
    /// As any operation; the lease is then held or not as before.
    pub fn verify(&self) -> Result<bool> {
        self.call(|guard| async move { guard.verify().await })
    }

    /// Renews now, independently of the renewals in the background, and states what remains.
    ///
    /// # Errors
    /// As [`crate::Guard::renew`].
    pub fn renew(&self) -> Result<Remaining> {
        self.call(|guard| async move { guard.renew().await })
    }

    /// Ends the lease and returns the store's answer ([C13](crate::contract)), as [`crate::Guard::release`].
    ///
    /// # Errors
    /// If the store did not answer. The release then continues in the background until it is answered or the term
    /// is over.
    pub fn release(self) -> Result<ReleaseReport> {
        let locks = self.locks.clone();
        let guard = self.into_inner();
        locks.0.thread()?.run(async move { guard.release().await })
    }

    /// As [`release`](Guard::release), and the keys stay taken for at least `keep`, as [`crate::Guard::release_keeping`].
    ///
    /// # Errors
    /// As there.
    pub fn release_keeping(self, keep: Duration) -> Result<ReleaseReport> {
        let locks = self.locks.clone();
        let guard = self.into_inner();
        locks.0.thread()?.run(async move { guard.release_keeping(keep).await })
    }

    /// Hands the lease over, as [`crate::Guard::detach`], without I/O.
    pub fn detach(self) -> Lease {
        self.into_inner().detach()
    }

    fn into_inner(self) -> crate::Guard {
        Arc::into_inner(self.guard).expect("a call drops its share before its caller continues")
    }

    fn call<T: Send + 'static, F>(&self, ask: impl FnOnce(Arc<crate::Guard>) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.locks.0.thread()?.run(ask(Arc::clone(&self.guard)))
    }
}

/// The events of one [`Guard`]; the iterator waits for each and ends after [`Event::Stopped`].
///
/// A reader that lags more than 64 events behind misses the oldest, never the last.
#[derive(Debug)]
pub struct Events {
    events: crate::Events,
    locks: Locker,
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let mut events = std::mem::replace(&mut self.events, crate::Events::ended());
        let next = async move {
            let event = events.next().await;
            Ok((events, event))
        };
        // If calls get no answer, no event comes either.
        let (events, event) = self.locks.0.thread().ok()?.run(next).ok()?;
        self.events = events;
        event
    }
}
