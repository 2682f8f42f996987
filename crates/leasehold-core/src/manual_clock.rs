use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::{BoxFuture, Clock};

/// A clock that moves only when a test moves it, so that expiry and time-outs are tested without sleeping.
///
/// Clones share their time. Starts one hour after its zero, at 2026-01-01 00:00 UTC.
///
/// ```
/// use leasehold_core::{Clock, ManualClock};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(clock.now() - before, Duration::from_secs(5));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    boot: Duration,
    wall_micros: u64,
    sleepers: Vec<Sleeper>,
    last_id: u64,
    watchers: Vec<Waker>,
}

#[derive(Debug)]
struct Sleeper {
    id: u64,
    at: Duration,
    waker: Waker,
}

impl Default for State {
    fn default() -> Self {
        Self {
            boot: Duration::from_secs(3_600),
            wall_micros: 1_767_225_600_000_000,
            sleepers: Vec::new(),
            last_id: 0,
            watchers: Vec::new(),
        }
    }
}

impl ManualClock {
    /// A new clock, independent of any other.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves both clocks forward and wakes every task whose sleep has ended.
    pub fn advance(&self, by: Duration) {
        let mut state = self.state();
        state.boot += by;
        state.wall_micros += crate::term::micros_down(by);
        let now = state.boot;
        let (due, later) = state.sleepers.drain(..).partition(|sleeper| sleeper.at <= now);
        state.sleepers = later;
        drop(state);
        let due: Vec<Sleeper> = due;
        due.into_iter().for_each(|sleeper| sleeper.waker.wake());
    }

    /// Sets the wall clock, forward or back, as an administrator would.
    pub fn set_wall_micros(&self, wall_micros: u64) {
        self.state().wall_micros = wall_micros;
    }

    /// The earliest instant that a task sleeps until.
    pub fn next_wake(&self) -> Option<Duration> {
        self.state().sleepers.iter().map(|sleeper| sleeper.at).min()
    }

    /// Waits until a task sleeps until exactly `at`; ends at once if one does already, and never if none ever does.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn slept_until(&self, at: Duration) {
        std::future::poll_fn(|context| {
            let mut state = self.state();
            if state.sleepers.iter().any(|sleeper| sleeper.at == at) {
                return Poll::Ready(());
            }
            state.watchers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        self.state().boot
    }

    fn wall_micros(&self) -> u64 {
        self.state().wall_micros
    }

    fn sleep_until(&self, at: Duration) -> BoxFuture<'static, ()> {
        Box::pin(Sleep { clock: self.clone(), at, id: None })
    }

    fn park_limit(&self, _at: Duration) -> Option<Duration> {
        None
    }
}

struct Sleep {
    clock: ManualClock,
    at: Duration,
    id: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        let mut state = clock.state();
        if state.boot >= self.at {
            return Poll::Ready(());
        }
        let id = *self.id.get_or_insert_with(|| {
            state.last_id += 1;
            state.last_id
        });
        let sleeper = Sleeper { id, at: self.at, waker: context.waker().clone() };
        match state.sleepers.iter_mut().find(|sleeper| sleeper.id == id) {
            Some(known) => *known = sleeper,
            None => state.sleepers.push(sleeper),
        }
        let watchers = std::mem::take(&mut state.watchers);
        drop(state);
        watchers.into_iter().for_each(Waker::wake);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.clock.state().sleepers.retain(|sleeper| sleeper.id != id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    use super::*;
    use crate::Now;

    #[test]
    fn a_sleeper_wakes_at_its_instant_and_a_dropped_one_is_forgotten() {
        let clock = ManualClock::new();
        let at = clock.now() + Duration::from_secs(2);
        let mut context = Context::from_waker(Waker::noop());
        let mut sleep = clock.sleep_until(at);
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        assert_eq!(clock.next_wake(), Some(at));
        clock.advance(Duration::from_millis(1_999));
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        clock.advance(Duration::from_millis(1));
        assert!(sleep.as_mut().poll(&mut context).is_ready());
        let mut other = clock.sleep_until(at + Duration::from_secs(1));
        assert!(other.as_mut().poll(&mut context).is_pending());
        drop(other);
        assert_eq!(clock.next_wake(), None);
    }

    #[test]
    fn both_clocks_advance_and_the_wall_clock_can_be_set() {
        let clock = ManualClock::new();
        let before = Now::read(&clock);
        assert_eq!(before.boot, Duration::from_secs(3_600));
        assert_eq!(before.wall_micros, 1_767_225_600_000_000);
        clock.clone().advance(Duration::from_millis(5));
        assert_eq!(clock.now() - before.boot, Duration::from_millis(5));
        assert_eq!(clock.wall_micros() - before.wall_micros, 5_000);
        clock.set_wall_micros(7);
        assert_eq!((clock.wall_micros(), clock.now() - before.boot), (7, Duration::from_millis(5)));
    }

    /// Counts how often it woke its task.
    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Wakes {
        fn poll<T>(self: &Arc<Self>, future: &mut BoxFuture<'_, T>) -> Poll<T> {
            future.as_mut().poll(&mut Context::from_waker(&Waker::from(self.clone())))
        }

        fn count(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn each_sleeper_is_woken_once_at_its_instant() {
        let clock = ManualClock::new();
        let second = Duration::from_secs(1);
        let at = |seconds| clock.now() + seconds * second;
        let (first, last) = (at(1), at(3));
        let wakes = [(); 2].map(|()| Arc::new(Wakes::default()));
        let mut sleeps = [clock.sleep_until(last), clock.sleep_until(first)];
        for _ in 0..2 {
            for (wakes, sleep) in wakes.iter().zip(&mut sleeps) {
                assert!(wakes.poll(sleep).is_pending());
            }
        }
        assert_eq!(clock.next_wake(), Some(first));
        let counts = |by: u32| {
            clock.advance(by * second);
            wakes.each_ref().map(|wakes| wakes.count())
        };
        assert_eq!(
            [counts(0), counts(1), counts(1), counts(2), counts(9)],
            [[0, 0], [0, 1], [0, 1], [1, 1], [1, 1]]
        );
        assert!(wakes[0].poll(&mut sleeps[0]).is_ready());
    }

    #[test]
    fn a_test_can_wait_until_a_task_sleeps() {
        let clock = ManualClock::new();
        let at = clock.now() + Duration::from_secs(2);
        let wakes = Arc::new(Wakes::default());
        let mut waits: BoxFuture<'_, ()> = Box::pin(clock.slept_until(at));
        assert!(wakes.poll(&mut waits).is_pending());
        let mut context = Context::from_waker(Waker::noop());
        let mut other = clock.sleep_until(at + Duration::from_secs(1));
        assert!(other.as_mut().poll(&mut context).is_pending());
        assert_eq!(wakes.count(), 1);
        assert!(wakes.poll(&mut waits).is_pending());
        let mut sleep = clock.sleep_until(at);
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        assert_eq!(wakes.count(), 2);
        assert!(wakes.poll(&mut waits).is_ready());
        drop(sleep);
        assert_eq!(clock.next_wake(), Some(at + Duration::from_secs(1)));
    }
}
