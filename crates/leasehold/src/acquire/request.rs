use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    Backoff, BoxFuture, Claims, Error, ErrorKind, GroupName, Key, Lease, LeaseId, Level, Mode,
    Result, Ttl, Wait, WaitCause, WaitReport,
};

use super::options::{AttemptObserver, Keepalive, LockOptions, LockTarget, OnBlocked, Pauses};
use super::spec::LockSpec;
use super::{resume, run};
use crate::guard::Guard;
use crate::lease::ids::Caller;
use crate::lease::release_report::ReleaseReport;
use crate::locker::Locker;
use crate::telemetry;

/// A request for a lock: set its options, then await it, or [`take`](Self::take) it in [blocking](crate::blocking)
/// code.
///
/// By default the lock is exclusive, its lease has a TTL of 30 s and renews itself, and the request waits up to 30
/// s. The await fails with the first invalid argument before anything is sent.
///
/// # Errors
/// - `Held` if a key is held and the wait is [`Wait::No`]; `TimedOut`, with a [`WaitReport`](crate::WaitReport),
///   if the wait ended first.
/// - `InvalidInput` and `Unsupported` before anything is sent.
/// - `Closed` if the `Locker` was closed; `Unexpected` outside a tokio runtime with timers. Tokio reports only by a
///   panic that a runtime has none; it is caught, and the program's panic hook sees it.
/// - Otherwise the store's error.
///
/// # Cancel safety
/// Nothing is sent before the first poll. You may drop it at any time: a lock won after that is released in the
/// background ([F6](crate::contract)).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
/// # let locks = leasehold::Locker::new(leasehold::LocalStore::new());
/// use leasehold::Wait;
///
/// // At most three holders at a time; one try.
/// let slot = locks.lock("gpu").permits(3).wait(Wait::No).await?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is locked until it is awaited, or taken where the caller blocks"]
pub struct LockRequest<T = Guard> {
    pub(crate) locks: Locker,
    /// Boxed, because it is large and every call of the builder moves it.
    options: Result<Box<LockOptions>>,
    gives: PhantomData<fn() -> T>,
}

impl Locker {
    /// Locks `key`. Await the builder; see [`LockRequest`].
    pub fn lock<K: TryInto<Key, Error: Into<Error>>>(&self, key: K) -> LockRequest<Guard> {
        self.acquiring(key.try_into().map(LockTarget::Key))
    }

    /// Tries once to lock `key`: `None` if it is held. To learn who holds it, [`lock`](Locker::lock) with [`Wait::No`],
    /// which is the same one try: the error, of kind `Held`, [names the holder](crate::WaitReport::holder).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::Locker::new(leasehold::LocalStore::new());
    /// use leasehold::Wait;
    ///
    /// let _nightly = locks.lock("report").comment("nightly").await?;
    /// assert!(locks.try_lock("report").await?.is_none());
    ///
    /// let error = locks.lock("report").wait(Wait::No).await.unwrap_err();
    /// let holder = error.wait_report().and_then(|report| report.holder.as_deref());
    /// assert_eq!(holder.and_then(|holder| holder.note.comment()), Some("nightly"));
    /// # Ok(()) }
    /// ```
    pub fn try_lock<K: TryInto<Key, Error: Into<Error>>>(
        &self,
        key: K,
    ) -> LockRequest<Option<Guard>> {
        LockRequest::once(self, key.try_into().map(LockTarget::Key).map_err(Into::into))
    }

    /// Locks all `keys` or none, under one guard and one token ([F8](crate::contract)).
    ///
    /// Fails as `Unsupported` where the store cannot do that atomically; the keys are never locked one by one.
    pub fn lock_all<K: TryInto<Key, Error: Into<Error>>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> LockRequest<Guard> {
        let keys: Result<Vec<Key>, K::Error> = keys.into_iter().map(TryInto::try_into).collect();
        self.acquiring(keys.map(LockTarget::Keys))
    }

    /// Locks several keys, each in its own mode.
    pub fn lock_claims(&self, claims: Claims) -> LockRequest<Guard> {
        self.acquiring(Ok::<_, Error>(LockTarget::Claims(claims)))
    }

    /// Continues `lease` if the store still has it, otherwise locks its keys again with the options of the
    /// builder; [`Guard::is_fresh`] states which. Keys, TTL and group are the lease's.
    ///
    /// It first renews the lease. Only if the store reports that the lease has ended does it request a new one, under
    /// a new id unless [`lease_id`](LockRequest::lease_id) sets one.
    pub fn acquire_or_renew(&self, lease: Lease) -> LockRequest<Guard> {
        self.acquiring(Ok::<_, Error>(LockTarget::Resume(Box::new(lease))))
    }

    /// Adopts a lease that another guard [handed over](Guard::detach), here or in another process: renews it once and
    /// counts its term from that. Waits, up to the limit of one operation, for requests of the last guard that are
    /// still in flight.
    ///
    /// A lease is a bearer's: if two processes adopt the same one, both hold it.
    ///
    /// # Errors
    /// `Lost` if the store no longer has it; `Unavailable` if a guard of this `Locker` still holds it or its release is
    /// not finished; else as any operation, and the lease is unchanged.
    ///
    /// # Cancel safety
    /// May be dropped; the lease may have been renewed.
    pub async fn adopt(&self, lease: Lease) -> Result<Guard> {
        resume::adopt(&self.0, lease).await
    }

    /// Releases a lease that a guard [handed over](Guard::detach), here or in another process, or whose holder is dead. Its keys stay
    /// taken for `keep`, counted from now. Nothing is renewed: a release that fails leaves the lease its term.
    ///
    /// A lease is a bearer's: if its holder lives, it loses it.
    ///
    /// # Errors
    /// `Unsupported` if `keep` is not zero and the store cannot keep keys taken; `Unavailable` if a guard of this
    /// `Locker` holds it; else as any operation. It may then be called again: a repetition changes nothing. After a release
    /// that was not answered, do not request a lease with the same id before the term of this one is over.
    ///
    /// # Cancel safety
    /// A release that was begun is completed in the background.
    pub async fn release(&self, lease: &Lease, keep: Duration) -> Result<ReleaseReport> {
        resume::release(&self.0, lease, keep).await
    }

    fn acquiring<E: Into<Error>>(&self, what: Result<LockTarget, E>) -> LockRequest<Guard> {
        LockRequest::new(self, what.map_err(Into::into))
    }
}

impl<T> LockRequest<T> {
    fn with_wait(locks: &Locker, what: Result<LockTarget>, wait: Wait) -> Self {
        let options = what.map(|what| Box::new(LockOptions::of(what, wait)));
        Self { locks: locks.clone(), options, gives: PhantomData }
    }

    /// The same request with another result type.
    pub(crate) fn giving<U>(self) -> LockRequest<U> {
        LockRequest { locks: self.locks, options: self.options, gives: PhantomData }
    }

    /// Requests shared mode: any number of shared holders may hold the keys at the same time, and no exclusive
    /// one.
    pub fn shared(self) -> Self {
        self.set(Ok::<_, Error>(()), |options, ()| {
            options.mode.get_or_insert(Mode::SHARED);
        })
    }

    /// Requests shared mode with at most `max` holders, this one included. The limit applies to this request only:
    /// it is granted only while fewer than `max` others hold the key.
    pub fn permits(self, max: u32) -> Self {
        let max = NonZeroU32::new(max)
            .ok_or_else(|| Error::invalid_input("permits is 0; it must be at least 1"));
        self.set(max, |options, max| options.mode = Some(Mode::Shared { max: Some(max) }))
    }

    /// Sets how long the lease lives unless it is renewed, 10 ms to 10 years or [`Ttl::NEVER`]; by default 30 s. A
    /// shorter TTL than the store's minimum is raised to the minimum, as `lease().ttl` shows.
    pub fn ttl<D: TryInto<Ttl, Error: Into<Error>>>(self, ttl: D) -> Self {
        self.set(ttl.try_into(), |options, ttl| options.ttl = Some(ttl))
    }

    /// Sets how long to wait for a lock that is held; by default up to 30 s.
    pub fn wait(self, wait: impl Into<Wait>) -> Self {
        self.set(Ok::<_, Error>(wait.into()), |options, wait| options.wait = wait)
    }

    /// Sets the pauses between tries. They are used as given, also where the store wakes its waiters.
    pub fn backoff(self, backoff: impl Backoff) -> Self {
        self.set(Ok::<_, Error>(Pauses::new(backoff)), |options, backoff| {
            options.backoff = Some(backoff);
        })
    }

    /// Calls `call` after each try that is not granted, if the wait continues: with what the last try met, the last
    /// known holder, and the number of tries. So a program can state why it waits: the key is held, or the store fails.
    ///
    /// It is called inside the wait and must not block. A request that is behind another of the same [`Locker`] in the
    /// queue makes no try until its turn ([F1](crate::contract)), and so no call. No call follows the end of the wait,
    /// nor the drop of its future. A clone of the request shares `call`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> leasehold::Result<()> {
    /// # let locks = leasehold::Locker::new(leasehold::LocalStore::new());
    /// use leasehold::WaitCause;
    ///
    /// let request = locks.lock("report").on_blocked(|wait| match &wait.cause {
    ///     WaitCause::Store(error) => eprintln!("waiting for the store: {error}"),
    ///     _ => eprintln!("waiting for {:?}, held by {:?}", wait.key, wait.holder),
    /// });
    /// let guard = request.await?;
    /// # Ok(()) }
    /// ```
    pub fn on_blocked(self, call: impl FnMut(&WaitReport) + Send + 'static) -> Self {
        self.set(Ok::<_, Error>(()), |options, ()| {
            options.on_blocked = Some(OnBlocked::new(call));
        })
    }

    /// Sets when the lease is renewed.
    pub fn keepalive(self, keepalive: Keepalive) -> Self {
        let checked = match keepalive {
            Keepalive::Every(Duration::ZERO) => Err(Error::invalid_input(
                "the renewal interval is 0 s; give an interval below the TTL, or Keepalive::Off",
            )),
            other => Ok(other),
        };
        self.set(checked, |options, keepalive| options.keepalive = keepalive)
    }

    /// Keeps the keys taken for this long after the grant, even after an early release or a crash. Fails as
    /// `Unsupported` where the store cannot do that.
    pub fn min_hold(self, min: Duration) -> Self {
        let min = if min <= Ttl::MAX {
            Ok(min)
        } else {
            Err(Error::invalid_input(format!(
                "min_hold is {min:?}; it must be at most 10 years (3650 days)"
            )))
        };
        self.set(min, |options, min| options.min_hold = min)
    }

    /// Ends the hold after this long, so that a holder that hangs loses its lease.
    pub fn max_hold(self, max: Duration) -> Self {
        let max = if max.is_zero() {
            Err(Error::invalid_input("max_hold is 0 s; it must be longer"))
        } else {
            Ok(max)
        };
        self.set(max, |options, max| options.max_hold = Some(max))
    }

    /// Keeps the keys taken in the store for this much longer than the holder may trust its lease, so that work
    /// begun before a loss can finish. A release by the holder is not delayed.
    pub fn lock_delay(self, delay: Duration) -> Self {
        self.set(Ok::<_, Error>(delay), |options, delay| options.lock_delay = delay)
    }

    /// Sets the host that a listing shows, in place of the one in the `Locker`'s note.
    pub fn host(self, host: &str) -> Self {
        self.set(Ok::<_, Error>(host.to_owned()), |options, host| options.host = Some(host))
    }

    /// Sets the process id that a listing shows, in place of the one in the `Locker`'s note: that of the process for which the lease
    /// is acquired.
    pub fn pid(self, pid: u32) -> Self {
        self.set(Ok::<_, Error>(pid), |options, pid| options.pid = Some(pid))
    }

    /// Sets the program that a listing shows, in place of the one in the `Locker`'s note.
    pub fn program(self, program: &str) -> Self {
        self.set(Ok::<_, Error>(program.to_owned()), |options, program| {
            options.program = Some(program);
        })
    }

    /// Sets the comment that a listing shows.
    pub fn comment(self, comment: &str) -> Self {
        self.set(Ok::<_, Error>(comment.to_owned()), |options, comment| {
            options.comment = Some(comment);
        })
    }

    /// Sets the group the lease is listed under; see [`Locker::group`].
    pub fn group<O: TryInto<GroupName, Error: Into<Error>>>(self, group: O) -> Self {
        self.set(group.try_into(), |options, group| options.group = Some(group))
    }

    /// Sets the `label` of this lock's metrics. Use a small, fixed set of labels, never keys.
    pub fn label(self, label: &str) -> Self {
        self.set(Ok::<_, Error>(label.into()), |options, label| options.label = Some(label))
    }

    /// Uses the caller's own lease id for every try. One id may name several leases of different keys.
    ///
    /// A new try starts only when every earlier request of this `Locker` that names the id for one of its keys has been
    /// answered; with [`Wait::No`] it otherwise fails as `Unavailable`. If a renewal or release was never answered, and
    /// the store does not distinguish leases of one id ([`Capabilities::compares_tokens`]), that lasts until the term
    /// has passed. Two processes that use the same id do not exclude each other.
    ///
    /// [`Capabilities::compares_tokens`]: leasehold_core::Capabilities::compares_tokens
    pub fn lease_id<I: TryInto<LeaseId, Error: Into<Error>>>(self, id: I) -> Self {
        self.set(id.try_into(), |options, id| options.lease_id = Some(id))
    }

    /// Requires that the store reaches `level` for this lock's term: fails as `Unsupported` if it does not. Unless its
    /// last check reports it, the store is checked again.
    pub fn require(self, level: Level) -> Self {
        self.set(Ok::<_, Error>(level), |options, level| options.level = level)
    }

    /// Requires a fencing token: fails as `Unsupported` on a store that has none, before anything is sent, so that
    /// [`Guard::fencing_token`] of what it returns never fails. Whether a crash of the store may set
    /// tokens back is a matter of its level: [`require`](LockRequest::require) L2 too.
    pub fn fenced(self) -> Self {
        self.set(Ok::<_, Error>(()), |options, ()| options.fenced = true)
    }

    /// Lets `observer` follow the tries.
    pub(crate) fn observer(self, observer: Arc<dyn AttemptObserver>) -> Self {
        self.set(Ok::<_, Error>(observer), |options, observer| options.observer = Some(observer))
    }

    /// Names this thread or task as the caller; another one awaits the request.
    pub(crate) fn called_here(self) -> Self {
        self.set(Ok::<_, Error>(Caller::current()), |options, caller| options.caller = Some(caller))
    }

    /// The checked request; nothing is sent (C11).
    pub(crate) fn spec(&self) -> Result<LockSpec> {
        LockSpec::new(&self.locks.0, self.options.clone()?)
    }

    async fn acquire(self) -> Result<Guard> {
        let options = self.options?;
        let (store, label) = (self.locks.0.keeper.can.name, options.label.clone());
        // Pinned first: the future is large, and is not moved into the span.
        let acquiring = pin!(run::acquire(&self.locks.0, options));
        telemetry::in_acquire(store, label.as_deref(), acquiring).await
    }

    pub(crate) fn set<V, E: Into<Error>>(
        mut self,
        value: Result<V, E>,
        set: impl FnOnce(&mut LockOptions, V),
    ) -> Self {
        if let Ok(options) = &mut self.options {
            match value {
                Ok(value) => set(options, value),
                Err(error) => self.options = Err(error.into()),
            }
        }
        self
    }
}

impl LockRequest<Guard> {
    pub(crate) fn new(locks: &Locker, what: Result<LockTarget>) -> Self {
        Self::with_wait(locks, what, Wait::default())
    }
}

impl LockRequest<Option<Guard>> {
    pub(crate) fn once(locks: &Locker, what: Result<LockTarget>) -> Self {
        Self::with_wait(locks, what, Wait::No)
    }
}

impl IntoFuture for LockRequest<Guard> {
    type Output = Result<Guard>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

impl IntoFuture for LockRequest<Option<Guard>> {
    type Output = Result<Option<Guard>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.acquire().await {
                Ok(guard) => Ok(Some(guard)),
                Err(error) if is_contention(&error) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }
}

fn is_contention(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Held | ErrorKind::TimedOut)
        && error.wait_report().is_some_and(|report| matches!(report.cause, WaitCause::Held))
}

impl<T> Clone for LockRequest<T> {
    fn clone(&self) -> Self {
        Self { locks: self.locks.clone(), options: self.options.clone(), gives: PhantomData }
    }
}

impl<T> fmt::Debug for LockRequest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = self.options.as_ref().map(|options| &options.what);
        f.debug_struct("LockRequest").field("what", &what).finish_non_exhaustive()
    }
}
