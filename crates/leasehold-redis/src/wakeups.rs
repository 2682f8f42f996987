//! Who in this process waits for which key.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::Stream;
use leasehold_core::{Key, Result, Wakeups};
use redis::Value;
use tokio::sync::mpsc;

use crate::connection::Connections;

/// Who listens to which channel.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Mutex<Channels>);

#[derive(Debug, Default)]
struct Channels {
    by_name: HashMap<String, Vec<Listener>>,
    next: u64,
}

#[derive(Debug)]
struct Listener {
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
        self.channels_now().by_name.is_empty()
    }

    /// All that somebody listens to.
    pub(crate) fn channels(&self) -> Vec<String> {
        self.channels_now().by_name.keys().cloned().collect()
    }

    /// Those of `channels` that nobody listens to.
    pub(crate) fn unheard(&self, channels: Vec<String>) -> Vec<String> {
        let now = self.channels_now();
        channels.into_iter().filter(|channel| !now.by_name.contains_key(channel)).collect()
    }

    /// The server told this: a channel and what was published there.
    pub(crate) fn hint(&self, told: &[Value]) {
        let Some(Value::BulkString(channel)) = told.first() else { return };
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        for listener in self.channels_now().by_name.get(channel).into_iter().flatten() {
            listener.hint();
        }
    }

    /// Anything may have happened.
    pub(crate) fn hint_all(&self) {
        self.channels_now().by_name.values().flatten().for_each(Listener::hint);
    }

    /// Listens for `keys`, each with its channel.
    fn join(&self, keys: &[(Key, String)]) -> (u64, mpsc::Receiver<Key>) {
        let (sender, receiver) = mpsc::channel(PENDING);
        let mut now = self.channels_now();
        now.next += 1;
        let number = now.next;
        for (key, channel) in keys {
            let listener = Listener { number, key: key.clone(), hints: sender.clone() };
            now.by_name.entry(channel.clone()).or_default().push(listener);
        }
        (number, receiver)
    }

    /// Says which channels nobody listens to any more.
    fn leave(&self, number: u64, channels: &[String]) -> Vec<String> {
        let mut now = self.channels_now();
        let mut unheard = Vec::new();
        for channel in channels {
            if let Some(listeners) = now.by_name.get_mut(channel) {
                listeners.retain(|listener| listener.number != number);
                if listeners.is_empty() {
                    now.by_name.remove(channel);
                    unheard.push(channel.clone());
                }
            }
        }
        unheard
    }
}

impl Listener {
    fn hint(&self) {
        // It has hints that it has not looked at, or is about to go.
        drop(self.hints.try_send(self.key.clone()));
    }
}

/// Hints for `keys`, each with its channel, from the moment that this ends.
pub(crate) async fn subscribe(server: &Connections, keys: &[(Key, String)]) -> Result<Wakeups> {
    let channels: Vec<String> = keys.iter().map(|(_, channel)| channel.clone()).collect();
    let (number, hints) = server.listeners().join(keys);
    let heard = Hints { hints, number, channels, server: server.clone() };
    server.listen(&heard.channels).await?;
    Ok(Wakeups::new(heard))
}

/// The hints of one subscription.
struct Hints {
    hints: mpsc::Receiver<Key>,
    number: u64,
    channels: Vec<String>,
    server: Connections,
}

impl Stream for Hints {
    type Item = Key;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Key>> {
        self.hints.poll_recv(context)
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        let unheard = self.server.listeners().leave(self.number, &self.channels);
        if !unheard.is_empty() {
            self.server.stop_listening(unheard);
        }
    }
}
