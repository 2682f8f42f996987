//! Subscriptions, and when their hints arrive.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use leasehold_core::{Key, Random, Result, Wakeups};
use tokio::runtime::{self, Handle};
use tokio::sync::mpsc;
use tokio::time::Sleep;

use crate::listeners::{Hint, Listener};
use crate::servers::Servers;

/// Of many who hear that a key is free, one can have it: they try one after the other, on average this far apart.
const EACH: Duration = Duration::from_micros(250);
/// Too short to wait for: timers count milliseconds.
const AT_ONCE: Duration = Duration::from_millis(1);
/// No hint is put off for longer, whatever the message says.
const LONGEST: Duration = Duration::from_secs(1);

/// More hints than these become one: a waiter tries for all its keys.
const PENDING: usize = 64;

/// Hints for `keys`, each with its channel, from the moment that this ends.
pub(crate) async fn subscribe(servers: &Servers, keys: Vec<(Key, String)>) -> Result<Wakeups> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let (sender, hints) = mpsc::channel(PENDING);
    let channels: Vec<String> = keys.iter().map(|(_, channel)| channel.clone()).collect();
    let heard = Hints {
        hints,
        later: None,
        random: Random::seeded(),
        number,
        channels,
        servers: servers.clone(),
    };
    let listeners = keys
        .into_iter()
        .map(|(key, channel)| (channel, Listener { number, key, hints: sender.clone() }));
    servers.listen(listeners.collect()).await?;
    Ok(Wakeups::new(heard))
}

/// The hints of one subscription.
struct Hints {
    hints: mpsc::Receiver<Hint>,
    /// A hint that was put off so that not all who heard it try at once.
    later: Option<Later>,
    random: Random,
    number: u64,
    channels: Vec<String>,
    servers: Servers,
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
        while let Poll::Ready(heard) = self.hints.poll_recv(context) {
            let Some(Hint { key, hearers }) = heard else { return Poll::Ready(None) };
            match (put_off(&mut self.random, hearers), here) {
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

/// How long to put off a hint that `hearers` connections heard; `None` for not at all.
fn put_off(random: &mut Random, hearers: u32) -> Option<Duration> {
    let pause = random.up_to(EACH.saturating_mul(hearers).min(LONGEST));
    (pause > AT_ONCE).then_some(pause)
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.servers.leave(self.number, &self.channels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hearers_of_a_hint_try_one_after_the_other() {
        let mut random = Random::from_seed(1);
        let mut draws =
            |hearers| -> Vec<_> { (0..10_000).map(|_| put_off(&mut random, hearers)).collect() };
        for few in [0, 1, 4] {
            assert!(draws(few).iter().all(Option::is_none), "{few}");
        }
        let of_hundred = draws(100);
        let at_once = of_hundred.iter().filter(|pause| pause.is_none()).count();
        assert!((300..500).contains(&at_once), "{at_once} of 10,000");
        assert!(of_hundred.iter().flatten().all(|pause| *pause <= 100 * EACH));
        assert!(draws(u32::MAX).iter().flatten().all(|pause| *pause <= LONGEST));
    }
}
