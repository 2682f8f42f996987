//! The only file that reads the machine's clocks.
#![expect(clippy::disallowed_methods, reason = "this is the clock file")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_core::{BoxFuture, Clock};
use tokio::time::Instant;

/// The machine's clocks: boot time, which continues while the machine sleeps, and UTC.
///
/// Boot time is `CLOCK_BOOTTIME` on Linux and `CLOCK_MONOTONIC_RAW` on Apple systems. Elsewhere it is the
/// monotonic clock, which may stop while the machine sleeps. Timers are tokio's; after the machine has slept they
/// may fire up to 5 s late, so compare with [`now`](Clock::now) when you wake.
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
            }
        })
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

    #[tokio::test]
    async fn system_sleep_ends_no_earlier_than_asked() {
        let at = SystemClock.now() + Duration::from_millis(5);
        SystemClock.sleep_until(at).await;
        assert!(SystemClock.now() >= at);
    }
}
