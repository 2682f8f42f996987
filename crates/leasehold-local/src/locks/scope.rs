use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use super::error::LockError;
use super::frame::{self, Frame};
use super::guard::Guard;
use super::keys::{Claims, Keys};
use super::local_locks::LocalLocks;
use super::nest::{Missing, Nest, OUTERMOST};
use super::options::Options;
use super::table::LockKey;

/// What a closure returned that ran under locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a pair")]
pub struct Scoped<R> {
    /// What the closure returned.
    pub value: R,
    /// A lock of the scope had gone stale, or was ended by force, before the closure ended.
    pub was_stale: bool,
}

/// The handle of a scope: what a closure under locks takes further locks with.
///
/// A further key must be above all keys that the scope holds, in key order: so two scopes never wait for each other
/// in a circle. Keys that it holds already are not waited for. All further locks end with the scope.
///
/// ```
/// use leasehold_local::locks::{LocalLocks, LockError, Options};
///
/// let locks = LocalLocks::<&str>::new();
/// let options = Options::new();
/// let done = locks.with_locks_blocking("account:1", &options, |scope| {
///     assert!(locks.in_scope());
///     scope.lock_blocking(["account:1", "account:2"], &options)?;
///     assert_eq!(scope.lock_blocking("account:0", &options), Err(LockError::OutOfOrder));
///     Ok::<_, LockError>("moved")
/// })?;
/// assert_eq!((done.value?, done.was_stale), ("moved", false));
/// # Ok::<(), LockError>(())
/// ```
pub struct Scope<K: LockKey> {
    locks: LocalLocks<K>,
    nest: Arc<Nest<K>>,
    number: u64,
}

impl<K: LockKey> LocalLocks<K> {
    /// Runs `f` under locks on the calling thread, and releases them when it returns or panics.
    ///
    /// # Errors
    /// As [`acquire_blocking`](Self::acquire_blocking); then `f` does not run.
    pub fn with_locks_blocking<R>(
        &self,
        keys: impl Into<Keys<K>>,
        options: &Options,
        f: impl FnOnce(&Scope<K>) -> R,
    ) -> Result<Scoped<R>, LockError> {
        Ok(Scope::outermost(self, self.acquire_blocking(keys, options)?).run_blocking(f))
    }

    /// Runs the future that `f` makes under locks, and releases them when it ends, panics or is dropped.
    ///
    /// The scope follows the future through its `.await`s, but not into threads and tasks that it starts.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), leasehold_local::locks::LockError> {
    /// use leasehold_local::locks::{LocalLocks, Options};
    ///
    /// let locks = LocalLocks::<&str>::new();
    /// let done = locks.with_locks(["a", "b"], &Options::new(), async |_scope| 1 + 1).await?;
    /// assert_eq!(done.value, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); then `f` is not called.
    ///
    /// # Cancel safety
    /// May be dropped at any time: it drops the future of `f` and releases the locks.
    pub async fn with_locks<R, F: Future<Output = R>>(
        &self,
        keys: impl Into<Keys<K>>,
        options: &Options,
        f: impl FnOnce(Scope<K>) -> F,
    ) -> Result<Scoped<R>, LockError> {
        Ok(Scope::outermost(self, self.acquire(keys, options).await?).run(f).await)
    }

    /// Runs `f` alone: no key is locked by others meanwhile.
    ///
    /// # Errors
    /// As [`acquire_all_blocking`](Self::acquire_all_blocking); then `f` does not run.
    pub fn with_all_blocking<R>(
        &self,
        options: &Options,
        f: impl FnOnce(&Scope<K>) -> R,
    ) -> Result<Scoped<R>, LockError> {
        Ok(Scope::outermost(self, self.acquire_all_blocking(options)?).run_blocking(f))
    }

    /// Runs the future that `f` makes alone: no key is locked by others meanwhile.
    ///
    /// # Errors
    /// As [`acquire_all`](Self::acquire_all); then `f` is not called.
    ///
    /// # Cancel safety
    /// As [`with_locks`](Self::with_locks).
    pub async fn with_all<R, F: Future<Output = R>>(
        &self,
        options: &Options,
        f: impl FnOnce(Scope<K>) -> F,
    ) -> Result<Scoped<R>, LockError> {
        Ok(Scope::outermost(self, self.acquire_all(options).await?).run(f).await)
    }

    /// True inside a closure or future that runs under locks of this table.
    ///
    /// A scope is what [`with_locks`](Self::with_locks) and its kin run, on the thread or in the task that called
    /// them. Threads and tasks started from there are not in it, and a lock that was taken with a guard makes none.
    pub fn in_scope(&self) -> bool {
        frame::innermost(self.table()).is_some()
    }

    /// The handle of the innermost scope that [`in_scope`](Self::in_scope) tells of, for a function that was not given it.
    ///
    /// ```
    /// use leasehold_local::locks::{LocalLocks, LockError, Options};
    ///
    /// fn audit(locks: &LocalLocks<&'static str>) -> Result<(), LockError> {
    ///     match locks.scope() {
    ///         Some(scope) => scope.lock_blocking("audit", &Options::new()),
    ///         None => locks.acquire_blocking("audit", &Options::new()).map(drop),
    ///     }
    /// }
    ///
    /// let locks = LocalLocks::new();
    /// locks.with_locks_blocking("account:1", &Options::new(), |_| audit(&locks))?.value?;
    /// # Ok::<(), LockError>(())
    /// ```
    pub fn scope(&self) -> Option<Scope<K>> {
        let (nest, number) = frame::innermost(self.table())?;
        Some(Scope { locks: self.clone(), nest, number })
    }
}

impl<K: LockKey> Scope<K> {
    fn outermost(locks: &LocalLocks<K>, guard: Guard<K>) -> OpenScope<K> {
        let nest = Arc::new(Nest::new(guard));
        OpenScope(Self { locks: locks.clone(), nest, number: OUTERMOST })
    }

    /// Locks further keys until the scope ends; the calling thread parks while it waits.
    ///
    /// # Errors
    /// [`LockError::OutOfOrder`] if the scope holds a key above a requested one, or another request of it waits;
    /// [`LockError::ScopeEnded`] if it has ended; else as
    /// [`acquire_blocking`](LocalLocks::acquire_blocking).
    pub fn lock_blocking(
        &self,
        keys: impl Into<Keys<K>>,
        options: &Options,
    ) -> Result<(), LockError> {
        let Missing::Keys(claims) = self.begin(keys)? else { return Ok(()) };
        let request = Request { scope: self };
        let guard = self.locks.claim_blocking(claims, options)?;
        request.granted(guard)
    }

    /// Locks further keys until the scope ends.
    ///
    /// # Errors
    /// As [`lock_blocking`](Self::lock_blocking).
    ///
    /// # Cancel safety
    /// As [`acquire`](LocalLocks::acquire).
    pub async fn lock(&self, keys: impl Into<Keys<K>>, options: &Options) -> Result<(), LockError> {
        let Missing::Keys(claims) = self.begin(keys)? else { return Ok(()) };
        let request = Request { scope: self };
        let guard = self.locks.claim(claims, options).await?;
        request.granted(guard)
    }

    /// Runs `f` under further locks, in a scope inside this one. They end with `f`.
    ///
    /// # Errors
    /// As [`lock_blocking`](Self::lock_blocking).
    pub fn with_locks_blocking<R>(
        &self,
        keys: impl Into<Keys<K>>,
        options: &Options,
        f: impl FnOnce(&Self) -> R,
    ) -> Result<Scoped<R>, LockError> {
        let inner = self.open()?;
        inner.0.lock_blocking(keys, options)?;
        Ok(inner.run_blocking(f))
    }

    /// Runs the future that `f` makes under further locks, in a scope inside this one. They end with the future.
    ///
    /// # Errors
    /// As [`lock_blocking`](Self::lock_blocking).
    ///
    /// # Cancel safety
    /// As [`with_locks`](LocalLocks::with_locks).
    pub async fn with_locks<R, F: Future<Output = R>>(
        &self,
        keys: impl Into<Keys<K>>,
        options: &Options,
        f: impl FnOnce(Self) -> F,
    ) -> Result<Scoped<R>, LockError> {
        let inner = self.open()?;
        inner.0.lock(keys, options).await?;
        Ok(inner.run(f).await)
    }

    /// Runs `f` in a scope inside this one, if this one holds the whole table.
    ///
    /// # Errors
    /// [`LockError::HeldByThisScope`] if it holds only keys: what locks everything must begin with
    /// [`LocalLocks::with_all_blocking`]. [`LockError::ScopeEnded`] if it has ended.
    pub fn with_all_blocking<R>(&self, f: impl FnOnce(&Self) -> R) -> Result<Scoped<R>, LockError> {
        Ok(self.open_whole()?.run_blocking(f))
    }

    /// Runs the future that `f` makes in a scope inside this one, if this one holds the whole table.
    ///
    /// # Errors
    /// As [`with_all_blocking`](Self::with_all_blocking).
    ///
    /// # Cancel safety
    /// As [`with_locks`](LocalLocks::with_locks).
    pub async fn with_all<R, F: Future<Output = R>>(
        &self,
        f: impl FnOnce(Self) -> F,
    ) -> Result<Scoped<R>, LockError> {
        Ok(self.open_whole()?.run(f).await)
    }

    fn open_whole(&self) -> Result<OpenScope<K>, LockError> {
        let inner = self.open()?;
        if self.nest.holds_whole() { Ok(inner) } else { Err(LockError::HeldByThisScope) }
    }

    fn begin(&self, keys: impl Into<Keys<K>>) -> Result<Missing<K>, LockError> {
        let claims = Claims::new(keys.into(), &self.locks.table().hasher)?;
        self.nest.begin(self.number, claims)
    }

    fn open(&self) -> Result<OpenScope<K>, LockError> {
        let number = self.nest.open(self.number)?;
        Ok(OpenScope(Self { locks: self.locks.clone(), nest: self.nest.clone(), number }))
    }
}

/// A nested request; its drop ends it.
struct Request<'a, K: LockKey> {
    scope: &'a Scope<K>,
}

impl<K: LockKey> Request<'_, K> {
    fn granted(self, guard: Guard<K>) -> Result<(), LockError> {
        self.scope.nest.end(self.scope.number, Some(guard))
    }
}

impl<K: LockKey> Drop for Request<'_, K> {
    fn drop(&mut self) {
        // Without a lock there is nothing to refuse.
        self.scope.nest.end(self.scope.number, None).unwrap_or_default();
    }
}

/// A scope that is closed by its drop.
struct OpenScope<K: LockKey>(Scope<K>);

impl<K: LockKey> OpenScope<K> {
    fn run_blocking<R>(self, f: impl FnOnce(&Scope<K>) -> R) -> Scoped<R> {
        let inside = Frame::enter(&self.0.nest, self.0.number);
        let value = f(&self.0);
        drop(inside);
        Scoped { value, was_stale: self.0.nest.close(self.0.number) }
    }

    async fn run<R, F: Future<Output = R>>(self, f: impl FnOnce(Scope<K>) -> F) -> Scoped<R> {
        let Scope { nest, number, .. } = self.0.clone();
        let future = {
            let _inside = Frame::enter(&nest, number);
            f(self.0.clone())
        };
        let mut future = pin!(future);
        let value =
            std::future::poll_fn(|context| Frame::poll(&nest, number, future.as_mut(), context))
                .await;
        Scoped { value, was_stale: nest.close(number) }
    }
}

impl<K: LockKey> Drop for OpenScope<K> {
    fn drop(&mut self) {
        self.0.nest.close(self.0.number);
    }
}

impl<K: LockKey> Clone for Scope<K> {
    fn clone(&self) -> Self {
        Self { locks: self.locks.clone(), nest: self.nest.clone(), number: self.number }
    }
}

impl<K: LockKey> fmt::Debug for Scope<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("number", &self.number).finish_non_exhaustive()
    }
}
