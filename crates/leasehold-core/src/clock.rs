use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// A boxed future that can be sent to another thread.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A source of time.
///
/// Terms are measured on [`now`](Clock::now), which must run at a steady rate, also while the machine sleeps.
/// Tokens and ages use [`wall_micros`](Clock::wall_micros).
pub trait Clock: Debug + Send + Sync + 'static {
    /// Time since a fixed point. It never goes back and includes the time that the machine sleeps.
    fn now(&self) -> Duration;

    /// Microseconds since 1970-01-01 UTC.
    fn wall_micros(&self) -> u64;

    /// Ends when [`now`](Clock::now) has reached `at`.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()>;

    /// How long a thread that waits for `at` without a runtime may park before it reads the clock again.
    ///
    /// `None` if the future of [`sleep_until`](Clock::sleep_until) needs no runtime: the thread polls it once with a
    /// waker that unparks it. Unless a clock says otherwise, it is read every 10 ms.
    fn park_limit(&self, at: Duration) -> Option<Duration> {
        Some(at.saturating_sub(self.now()).min(Duration::from_millis(10)))
    }
}

/// Both clocks at one instant, as a store's rules read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "a pair")]
pub struct Now {
    /// [`Clock::now`]: decides terms.
    pub boot: Duration,
    /// [`Clock::wall_micros`]: decides tokens and ages.
    pub wall_micros: u64,
}

impl Now {
    /// Reads both clocks.
    pub fn read(clock: &dyn Clock) -> Self {
        Self { boot: clock.now(), wall_micros: clock.wall_micros() }
    }
}
