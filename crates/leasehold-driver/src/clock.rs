//! The only file that reads the machine's clocks.
#![expect(clippy::disallowed_methods, reason = "this is the clock file")]

use std::future::Future;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{BoxFuture, Clock};
use tokio::time::Instant;

/// The machine's clocks: boot time, which continues while the machine sleeps, and UTC.
///
/// Boot time is `CLOCK_BOOTTIME` on Linux and `CLOCK_MONOTONIC_RAW` on Apple systems. Elsewhere it is the
/// monotonic clock, which may stop while the machine sleeps. Timers are tokio's; after the machine has slept they
/// may fire up to 5 s late, so compare with [`now`](Clock::now) when you wake.
///
/// `tokio::time::pause` does not stop it: a wait then takes as long as it would, and blocks the runtime meanwhile. Use
/// [`TokioClock`] there.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct SystemClock;

impl SystemClock {
    /// The machine's clocks.
    pub fn new() -> Self {
        Self
    }
}

/// The longest sleep without reading the clock.
const LOOK: Duration = Duration::from_secs(5);

/// The pause before the clock is read again where timers measure no time.
const NAP: Duration = Duration::from_millis(1);

/// True if tokio's time is paused on this runtime and `clock` runs on, so that timers do not measure its time.
pub fn is_beside_paused_time(clock: &dyn Clock) -> bool {
    let (paused, before) = (Instant::now(), clock.now());
    let real = std::time::Instant::now();
    while std::time::Instant::now() == real {}
    Instant::now() == paused && clock.now() != before
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        boot_time()
    }

    fn wall_micros(&self) -> u64 {
        wall_micros()
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let left = at.saturating_sub(boot_time());
                if left.is_zero() {
                    return;
                }
                // Timers stop while the machine sleeps: the clock is read soon after it resumes.
                tokio::time::sleep(left.min(LOOK)).await;
                if is_beside_paused_time(&Self) {
                    // Its timers end at once: without a nap this would spin.
                    std::thread::sleep(left.min(NAP));
                }
            }
        })
    }

    fn park_limit(&self, at: Duration) -> Option<Duration> {
        Some(at.saturating_sub(boot_time()).min(LOOK))
    }
}

/// Tokio's time, so that tests run under `tokio::time::pause`.
///
/// Use it where every timer of a test is tokio's; everything else is as with [`SystemClock`].
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    start: Instant,
    wall_micros: u64,
}

impl TokioClock {
    /// Starts at one hour, so that earlier instants can be represented.
    pub fn new() -> Self {
        Self { start: Instant::now(), wall_micros: wall_micros() }
    }

    const ZERO: Duration = Duration::from_secs(3_600);
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Duration {
        Self::ZERO + self.start.elapsed()
    }

    fn wall_micros(&self) -> u64 {
        self.wall_micros + leasehold_core::term::micros_down(self.start.elapsed())
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        match self.start.checked_add(at.saturating_sub(Self::ZERO)) {
            Some(at) => Box::pin(tokio::time::sleep_until(at)),
            None => Box::pin(std::future::pending()),
        }
    }
}

/// The moment halfway through an exchange, at which the server is taken to have read its clock.
#[derive(Debug, Clone, Copy)]
pub struct Halfway {
    micros: u64,
}

impl Halfway {
    /// Runs an exchange, and returns with its result when it was half over.
    pub async fn of<T>(exchange: impl Future<Output = T>) -> (T, Self) {
        let before = wall_micros();
        let result = exchange.await;
        (result, Self { micros: before + wall_micros().saturating_sub(before) / 2 })
    }

    /// By how much a clock was ahead of this machine's that then showed `micros` since 1970-01-01 UTC.
    pub fn ahead(self, micros: i64) -> i64 {
        micros - i64::try_from(self.micros).unwrap_or(i64::MAX)
    }
}

fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    leasehold_core::term::micros_down(since)
}

#[cfg(unix)]
fn boot_time() -> Duration {
    use nix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
    #[cfg(target_vendor = "apple")]
    const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC_RAW;
    #[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
    const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

    clock_gettime(CLOCK).expect("the clock exists on this system").into()
}

#[cfg(not(unix))]
fn boot_time() -> Duration {
    use std::sync::OnceLock;

    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boot_time_runs() {
        let before = SystemClock.now();
        assert!(before > Duration::ZERO);
        assert!(SystemClock.now() >= before);
        assert!(SystemClock.wall_micros() > 1_700_000_000_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn tokio_clock_follows_paused_time() {
        let clock = TokioClock::new();
        let at = clock.now() + Duration::from_secs(7);
        clock.sleep_until(at).await;
        assert_eq!(clock.now(), at);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_system_clock_runs_beside_paused_time() {
        assert!(is_beside_paused_time(&SystemClock));
        assert!(!is_beside_paused_time(&TokioClock::new()));
        tokio::time::resume();
        assert!(!is_beside_paused_time(&SystemClock));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test(start_paused = true)]
    async fn system_sleep_beside_paused_time_does_not_spin() {
        use nix::time::{ClockId, clock_gettime};
        let worked = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
        let (before, at) = (worked(), SystemClock.now() + Duration::from_millis(500));
        SystemClock.sleep_until(at).await;
        assert!(SystemClock.now() >= at);
        let spent = worked() - before;
        assert!(spent < Duration::from_millis(150), "{spent:?} of 500 ms");
    }

    #[tokio::test]
    async fn system_sleep_ends_no_earlier_than_requested() {
        let at = SystemClock.now() + Duration::from_millis(5);
        SystemClock.sleep_until(at).await;
        assert!(SystemClock.now() >= at);
    }
}
