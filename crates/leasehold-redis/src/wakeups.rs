//! Who in this process waits for which key.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::Stream;
use leasehold_core::{Key, Result, Wakeups};
use redis::Value;
use tokio::sync::mpsc;

use crate::servers::Servers;

/// Who listens to which channel of one server.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Mutex<Channels>);

type Channels = HashMap<String, Vec<Listener>>;

#[derive(Debug)]
pub(crate) struct Listener {
    number: u64,
    key: Key,
    hints: mpsc::Sender<Key>,
}

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

    /// Whether somebody listens to the channel that the server told of.
    pub(crate) fn is_heard(&self, told: &[Value]) -> bool {
        channel_of(told).is_some_and(|channel| self.channels_now().contains_key(channel))
    }

    /// The server told this: a channel and what was published there.
    pub(crate) fn hint(&self, told: &[Value]) {
        let Some(channel) = channel_of(told) else { return };
        for listener in self.channels_now().get(channel).into_iter().flatten() {
            listener.hint();
        }
    }

    /// Anything may have happened.
    pub(crate) fn hint_all(&self) {
        self.channels_now().values().flatten().for_each(Listener::hint);
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
    match told.first() {
        Some(Value::BulkString(channel)) => std::str::from_utf8(channel).ok(),
        _ => None,
    }
}

impl Listener {
    fn hint(&self) {
        // It has hints that it has not looked at, or is about to go.
        drop(self.hints.try_send(self.key.clone()));
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
    let heard = Hints { hints, number, channels, servers: servers.clone() };
    let listeners = keys
        .into_iter()
        .map(|(key, channel)| (channel, Listener { number, key, hints: sender.clone() }));
    servers.listen(listeners.collect()).await?;
    Ok(Wakeups::new(heard))
}

/// The hints of one subscription.
struct Hints {
    hints: mpsc::Receiver<Key>,
    number: u64,
    channels: Vec<String>,
    servers: Servers,
}

impl Stream for Hints {
    type Item = Key;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Key>> {
        self.hints.poll_recv(context)
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.servers.leave(self.number, &self.channels);
    }
}
