//! Who in this process waits for which key.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use leasehold_core::{Key, Random, Result, Wakeups};
use redis::Value;
use tokio::runtime::{self, Handle};
use tokio::sync::mpsc;
use tokio::time::Sleep;

use crate::servers::Servers;

/// Who listens to which channel of one server.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Mutex<Channels>);

type Channels = HashMap<String, Vec<Listener>>;

#[derive(Debug)]
pub(crate) struct Listener {
    number: u64,
    key: Key,
    hints: mpsc::Sender<Hint>,
}

/// A key that may be free.
#[derive(Debug)]
struct Hint {
    key: Key,
    /// How many connections were told.
    hearers: u32,
}

/// Of many who are told that a key is free one can have it: they try one after the other, so far apart on average.
const EACH: Duration = Duration::from_micros(250);
/// Too short to be waited for: timers count milliseconds.
const AT_ONCE: Duration = Duration::from_millis(1);
/// No hint is put off for longer, whatever was told.
const LONGEST: Duration = Duration::from_secs(1);

/// More hints than these are one: whoever is told tries for all its keys.
const PENDING: usize = 64;

impl Listeners {
    fn channels_now(&self) -> MutexGuard<'_, Channels> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.channels_now().is_empty()
    }

    /// All that somebody listens to.
    pub(crate) fn channels(&self) -> Vec<String> {
        self.channels_now().keys().cloned().collect()
    }

    /// Those of `channels` that nobody listens to.
    pub(crate) fn unheard(&self, channels: Vec<String>) -> Vec<String> {
        let now = self.channels_now();
        channels.into_iter().filter(|channel| !now.contains_key(channel)).collect()
    }

    /// Those of `channels` that somebody listens to.
    pub(crate) fn heard(&self, channels: &[String]) -> Vec<String> {
        let now = self.channels_now();
        channels.iter().filter(|channel| now.contains_key(*channel)).cloned().collect()
    }

    /// The channel that the server told of, if somebody listens to it.
    pub(crate) fn heard_at(&self, told: &[Value]) -> Option<String> {
        let channel = channel_of(told)?;
        self.channels_now().contains_key(channel).then(|| channel.to_owned())
    }

    /// The server told this: a channel and what was published there.
    pub(crate) fn hint(&self, told: &[Value]) {
        let Some(channel) = channel_of(told) else { return };
        let hearers = told.get(1).and_then(text_of).and_then(|text| text.parse().ok()).unwrap_or(1);
        for listener in self.channels_now().get(channel).into_iter().flatten() {
            listener.hint(hearers);
        }
    }

    /// Anything may have happened at these channels.
    pub(crate) fn hint_at(&self, channels: &[String]) {
        let now = self.channels_now();
        let listeners = channels.iter().filter_map(|channel| now.get(channel)).flatten();
        listeners.for_each(|listener| listener.hint(1));
    }

    /// Anything may have happened.
    pub(crate) fn hint_all(&self) {
        self.channels_now().values().flatten().for_each(|listener| listener.hint(1));
    }

    /// Whoever listens to `channel` does so here from now on.
    pub(crate) fn add(&self, channel: &str, listeners: Vec<Listener>) {
        if !listeners.is_empty() {
            self.channels_now().entry(channel.to_owned()).or_default().extend(listeners);
        }
    }

    /// Whoever listens to `channel` does so elsewhere from now on.
    pub(crate) fn take(&self, channel: &str) -> Vec<Listener> {
        self.channels_now().remove(channel).unwrap_or_default()
    }

    /// Says which channels nobody listens to any more.
    pub(crate) fn leave(&self, number: u64, channels: &[String]) -> Vec<String> {
        let mut now = self.channels_now();
        let mut unheard = Vec::new();
        for channel in channels {
            if let Some(listeners) = now.get_mut(channel) {
                listeners.retain(|listener| listener.number != number);
                if listeners.is_empty() {
                    now.remove(channel);
                    unheard.push(channel.clone());
                }
            }
        }
        unheard
    }
}

/// The channel that the server told of.
fn channel_of(told: &[Value]) -> Option<&str> {
    told.first().and_then(text_of)
}

fn text_of(told: &Value) -> Option<&str> {
    match told {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

impl Listener {
    fn hint(&self, hearers: u32) {
        // It has hints that it has not looked at, or is about to go.
        drop(self.hints.try_send(Hint { key: self.key.clone(), hearers }));
    }
}

#[cfg(test)]
impl Listener {
    /// One whose hints nobody reads.
    pub(crate) fn unread(number: u64) -> Self {
        let key = Key::new("unread").unwrap();
        Self { number, key, hints: mpsc::channel(1).0 }
    }
}

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
    /// One that was put off so that not all who heard it try at once.
    later: Option<Later>,
    random: Random,
    number: u64,
    channels: Vec<String>,
    servers: Servers,
}

/// A hint that waits.
struct Later {
    key: Key,
    pause: Pin<Box<Sleep>>,
    /// Whose timer that is: it is of no use in another, and of none once this one has ended.
    runtime: runtime::Id,
}

impl Stream for Hints {
    type Item = Key;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Key>> {
        let here = Handle::try_current().ok().map(|runtime| runtime.id());
        while let Poll::Ready(heard) = self.hints.poll_recv(context) {
            let Some(Hint { key, hearers }) = heard else { return Poll::Ready(None) };
            match (put_off(&mut self.random, hearers), here) {
                // Whoever waits already does not wait longer for being told again.
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

/// How long to put off a hint that so many have heard; `None` is not at all.
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
    fn of_many_who_hear_a_hint_few_act_at_once() {
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
