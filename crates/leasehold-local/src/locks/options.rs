use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Backoff, Fixed};

use super::error::LockError;
use super::holder::{NEVER, nanos};
use super::owner::Owner;
use super::request::Terms;

/// How a lock is asked for: how long the request waits, and when the lock goes stale.
///
/// By default a request makes 4 attempts, 10 to 20 ms apart, and its lock goes stale 30 s after it was granted.
///
/// A request that waits keeps its place in the queue between its attempts, and is granted the lock as soon as it is
/// free. So attempts only say how long it waits, unless they are [exact](Self::exact_attempts).
///
/// ```
/// use leasehold_local::locks::{LocalLocks, Options};
/// use std::time::Duration;
///
/// let locks = LocalLocks::<&str>::new();
/// let patient = Options::new().retry_forever().deadline(Duration::from_secs(5)).never_stale();
/// let guard = locks.acquire_blocking("report", &patient)?;
/// # drop(guard);
/// let growing = Options::new().retries(5).interval_by(|attempt| Duration::from_millis(1 << attempt));
/// let guard = locks.acquire_blocking("report", &growing)?;
/// # Ok::<(), leasehold_local::locks::LockError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(super) retries: Option<u32>,
    pub(super) interval: Interval,
    pub(super) deadline: Option<Duration>,
    pub(super) exact: bool,
    /// In nanoseconds.
    timeout: u64,
    owner: Option<Owner>,
}

#[derive(Clone)]
pub(super) enum Interval {
    Fixed(Duration),
    By(Arc<dyn Fn(u32) -> Duration + Send + Sync>),
}

impl Interval {
    /// The pause after the attempt with this number, which begins with 0.
    pub(super) fn after(&self, attempt: u32) -> Duration {
        match self {
            Self::Fixed(pause) => Fixed::new(*pause).next(attempt).unwrap_or(*pause),
            Self::By(interval) => interval(attempt),
        }
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(pause) => write!(f, "{pause:?}"),
            Self::By(_) => f.write_str("a function"),
        }
    }
}

impl Options {
    /// 3 retries, 10 ms apart with jitter; stale after 30 s.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes this many attempts more after the first. With 0 the request does not wait.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = Some(retries);
        self
    }

    /// Waits until the lock is free, or until the deadline.
    #[must_use]
    pub fn retry_forever(mut self) -> Self {
        self.retries = None;
        self
    }

    /// Pauses between `interval` and twice as long after each attempt; zero means no pause.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = Interval::Fixed(interval);
        self
    }

    /// Pauses after each attempt for what `interval` says. Its argument is the attempt's number, which begins with 0.
    ///
    /// A request that waits for ever does not ask it, unless its attempts are exact.
    #[must_use]
    pub fn interval_by(
        mut self,
        interval: impl Fn(u32) -> Duration + Send + Sync + 'static,
    ) -> Self {
        self.interval = Interval::By(Arc::new(interval));
        self
    }

    /// Ends the wait this long after the call, whatever attempts are left.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Makes each attempt at the end of its interval and not before. In between, the request has no place in a
    /// queue, so others overtake it.
    ///
    /// With [`retry_forever`](Self::retry_forever), an interval of less than 1 ms counts as 1 ms.
    #[must_use]
    pub fn exact_attempts(mut self) -> Self {
        self.exact = true;
        self
    }

    /// Lets the lock go stale this long after it was granted: then others may take it. It must be above zero.
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = nanos(timeout);
        self
    }

    /// Lets the lock go stale only with its owner. Such a lock reads no clock, unless its table is to know
    /// [ages](super::LocksConfig::ages).
    #[must_use]
    pub fn never_stale(mut self) -> Self {
        self.timeout = NEVER;
        self
    }

    /// Lets the lock go stale when its owner dies.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<Owner>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    #[inline]
    pub(super) fn terms(&self) -> Result<Terms, LockError> {
        if self.timeout == 0 {
            return Err(LockError::no_timeout());
        }
        Ok(Terms { timeout: self.timeout, owner: self.owner.clone() })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            retries: Some(3),
            interval: Interval::Fixed(Duration::from_millis(10)),
            deadline: None,
            exact: false,
            timeout: nanos(Duration::from_secs(30)),
            owner: None,
        }
    }
}
