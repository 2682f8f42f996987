//! Hints on their way to a waiter, and when they arrive.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use leasehold_core::{Key, Random, Wakeups};
use tokio::runtime::{self, Handle};
use tokio::sync::mpsc;
use tokio::time::Sleep;

/// Too short to wait for: timers count milliseconds.
const AT_ONCE: Duration = Duration::from_millis(1);
/// No hint is put off for longer, whatever the message states.
const LONGEST: Duration = Duration::from_secs(1);

/// More hints than these become one: a waiter tries for all its keys.
const PENDING: usize = 64;

/// Gives hints to one subscription. Clones share it.
#[derive(Debug, Clone)]
pub struct Hinter(mpsc::Sender<Hint>);

/// What a subscription learns of a key.
#[derive(Debug)]
struct Hint {
    key: Key,
    event: Event,
}

#[derive(Debug)]
enum Event {
    /// It may be free: to be hinted at a random moment within this time.
    Free(Duration),
    /// It was taken, for this long.
    Taken(Duration),
}

impl Hinter {
    /// A subscription, and what gives it hints. When the subscription is dropped, `leave` is called.
    pub fn new(leave: impl FnOnce() + Send + 'static) -> (Self, Wakeups) {
        let (sender, hints) = mpsc::channel(PENDING);
        let random = Random::seeded();
        let hints = Hints { hints, later: None, random, leave: Some(Box::new(leave)) };
        (Self(sender), Wakeups::new(hints))
    }

    /// Hints that `key` may be free, at a random moment within this time: of many waiters that receive it one can have it, so they try
    /// one after the other.
    pub fn hint(&self, key: &Key, within: Duration) {
        self.tell(key, Event::Free(within));
    }

    /// Puts off a hint for `key` that has not reached the waiter by this term: another waiter took the key for so long.
    pub fn taken(&self, key: &Key, term: Duration) {
        // If there is no room for a later hint, the last that is unread must be one.
        if self.0.capacity() > PENDING / 2 {
            self.tell(key, Event::Taken(term));
        }
    }

    fn tell(&self, key: &Key, event: Event) {
        // It has unread hints, or is about to leave.
        drop(self.0.try_send(Hint { key: key.clone(), event }));
    }
}

/// The hints of one subscription.
struct Hints {
    hints: mpsc::Receiver<Hint>,
    /// A hint that was put off so that not all waiters that received it try at once.
    later: Option<Later>,
    random: Random,
    leave: Option<Box<dyn FnOnce() + Send>>,
}

/// A hint that is put off.
struct Later {
    key: Key,
    pause: Pin<Box<Sleep>>,
    /// The runtime of the timer: it works in no other, and not after this one has ended.
    runtime: runtime::Id,
}

impl Later {
    /// If it is a hint for `key`: until it has been taken for this term; `None` if that never ends.
    fn put_off_further(
        mut self,
        key: &Key,
        term: Duration,
        here: Option<runtime::Id>,
    ) -> Option<Self> {
        if self.key == *key && here == Some(self.runtime) {
            let until = self.pause.deadline().checked_add(term)?;
            self.pause.as_mut().reset(until);
        }
        Some(self)
    }
}

impl Stream for Hints {
    type Item = Key;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Key>> {
        let here = Handle::try_current().ok().map(|runtime| runtime.id());
        while let Poll::Ready(received) = self.hints.poll_recv(context) {
            let Some(Hint { key, event }) = received else { return Poll::Ready(None) };
            let within = match event {
                Event::Free(within) => within,
                Event::Taken(term) => {
                    let later = self.later.take();
                    self.later = later.and_then(|later| later.put_off_further(&key, term, here));
                    continue;
                }
            };
            match (put_off(&mut self.random, within), here) {
                (Some(pause), Some(runtime)) => {
                    let pause = Box::pin(tokio::time::sleep(pause));
                    // A waiter that is already waiting does not wait longer for another hint.
                    let is_sooner = |later: &Later| later.pause.deadline() <= pause.deadline();
                    if !self.later.as_ref().is_some_and(is_sooner) {
                        self.later = Some(Later { key, pause, runtime });
                    }
                }
                _ => {
                    self.later = None;
                    return Poll::Ready(Some(key));
                }
            }
        }
        let Some(later) = &mut self.later else { return Poll::Pending };
        if here == Some(later.runtime) {
            ready!(later.pause.as_mut().poll(context));
        }
        Poll::Ready(self.later.take().map(|later| later.key))
    }
}

/// How long to put off a hint; `None` for not at all.
fn put_off(random: &mut Random, within: Duration) -> Option<Duration> {
    let pause = random.up_to(within.min(LONGEST));
    (pause > AT_ONCE).then_some(pause)
}

impl Drop for Hints {
    fn drop(&mut self) {
        if let Some(leave) = self.leave.take() {
            leave();
        }
    }
}

impl fmt::Debug for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hints")
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::time::Instant;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "the paused clock of the timers")]
    async fn a_hint_comes_after_the_term_of_another_waiter() {
        let [key, other] = ["k", "other"].map(|key| Key::new(key).unwrap());
        let (hinter, mut wakeups) = Hinter::new(|| {});
        let started = Instant::now();
        let is_put_off = async |wakeups: &mut Wakeups| loop {
            hinter.hint(&key, SECOND);
            // The random delay may be zero.
            if wakeups.next().now_or_never().is_none() {
                break;
            }
        };
        is_put_off(&mut wakeups).await;
        hinter.taken(&other, 30 * SECOND);
        assert_eq!(wakeups.next().await, key);
        assert!(started.elapsed() <= 2 * SECOND, "another key was taken");

        is_put_off(&mut wakeups).await;
        hinter.taken(&key, 30 * SECOND);
        assert_eq!(wakeups.next().await, key);
        assert!(started.elapsed() > 30 * SECOND);

        is_put_off(&mut wakeups).await;
        hinter.taken(&key, 30 * SECOND);
        assert!(wakeups.next().now_or_never().is_none());
        hinter.hint(&key, SECOND);
        assert_eq!(wakeups.next().await, key, "it is free before the end of the term");
        assert!(started.elapsed() < 40 * SECOND);

        for _ in 0..PENDING {
            hinter.hint(&key, SECOND);
            hinter.taken(&key, 30 * SECOND);
        }
        assert_eq!(wakeups.next().await, key, "it is free, and there was no room for the hint");
        assert!(started.elapsed() < 45 * SECOND);

        is_put_off(&mut wakeups).await;
        hinter.taken(&key, Duration::MAX);
        assert!(wakeups.next().now_or_never().is_none());
        hinter.hint(&key, Duration::ZERO);
        assert_eq!(wakeups.next().await, key, "it is free before the end of a term without end");
    }

    #[test]
    fn waiters_with_a_hint_try_one_after_the_other() {
        let mut random = Random::from_seed(1);
        let mut draws =
            |within| -> Vec<_> { (0..10_000).map(|_| put_off(&mut random, within)).collect() };
        for short in [Duration::ZERO, AT_ONCE] {
            assert!(draws(short).iter().all(Option::is_none), "{short:?}");
        }
        let of_hundred = draws(25 * AT_ONCE);
        let at_once = of_hundred.iter().filter(|pause| pause.is_none()).count();
        assert!((300..500).contains(&at_once), "{at_once} of 10,000");
        assert!(of_hundred.iter().flatten().all(|pause| *pause <= 25 * AT_ONCE));
        assert!(draws(Duration::MAX).iter().flatten().all(|pause| *pause <= LONGEST));
    }
}
