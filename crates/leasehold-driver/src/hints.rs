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

#[derive(Debug)]
struct Hint {
    key: Key,
    within: Duration,
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
        // It has unread hints, or is about to leave.
        drop(self.0.try_send(Hint { key: key.clone(), within }));
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

impl Stream for Hints {
    type Item = Key;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Key>> {
        let here = Handle::try_current().ok().map(|runtime| runtime.id());
        while let Poll::Ready(received) = self.hints.poll_recv(context) {
            let Some(Hint { key, within }) = received else { return Poll::Ready(None) };
            match (put_off(&mut self.random, within), here) {
                // A waiter that is already waiting does not wait longer for another hint.
                (Some(pause), Some(runtime)) => {
                    let pause = || Box::pin(tokio::time::sleep(pause));
                    self.later.get_or_insert_with(|| Later { key, pause: pause(), runtime });
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
    use super::*;

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
