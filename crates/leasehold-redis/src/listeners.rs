//! Which waiters of this process listen for which key.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::Key;
use leasehold_driver::Hinter;
use redis::Value;

/// How far apart those who hear the same message try, on average.
const EACH: Duration = Duration::from_micros(250);

/// The listeners of each channel of one server.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Mutex<Channels>);

type Channels = HashMap<String, Vec<Listener>>;

#[derive(Debug)]
pub(crate) struct Listener {
    /// The number of its subscription.
    pub(crate) number: u64,
    pub(crate) key: Key,
    pub(crate) hinter: Hinter,
}

impl Listeners {
    fn channels_now(&self) -> MutexGuard<'_, Channels> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.channels_now().is_empty()
    }

    /// All channels with a listener.
    pub(crate) fn channels(&self) -> Vec<String> {
        self.channels_now().keys().cloned().collect()
    }

    /// Whether a channel has a listener.
    pub(crate) fn has(&self, channel: &str) -> bool {
        self.channels_now().contains_key(channel)
    }

    /// The `channels` without a listener.
    pub(crate) fn unheard(&self, channels: Vec<String>) -> Vec<String> {
        let now = self.channels_now();
        channels.into_iter().filter(|channel| !now.contains_key(channel)).collect()
    }

    /// The `channels` with a listener.
    pub(crate) fn heard(&self, channels: &[String]) -> Vec<String> {
        let now = self.channels_now();
        channels.iter().filter(|channel| now.contains_key(*channel)).cloned().collect()
    }

    /// The channel of a message, if it has a listener.
    pub(crate) fn heard_at(&self, told: &[Value]) -> Option<String> {
        let channel = channel_of(told)?;
        self.channels_now().contains_key(channel).then(|| channel.to_owned())
    }

    /// Passes on a message of the server: a channel and what was published there.
    pub(crate) fn hint(&self, told: &[Value]) {
        let Some(channel) = channel_of(told) else { return };
        let hearers = told.get(1).and_then(text_of).and_then(|text| text.parse().ok()).unwrap_or(1);
        for listener in self.channels_now().get(channel).into_iter().flatten() {
            listener.hinter.hint(&listener.key, EACH.saturating_mul(hearers));
        }
    }

    /// Hints at these channels: anything may have happened.
    pub(crate) fn hint_at(&self, channels: &[String]) {
        let now = self.channels_now();
        let listeners = channels.iter().filter_map(|channel| now.get(channel)).flatten();
        listeners.for_each(|listener| listener.hinter.hint(&listener.key, Duration::ZERO));
    }

    /// Adds listeners to `channel`.
    pub(crate) fn add(&self, channel: &str, listeners: Vec<Listener>) {
        if !listeners.is_empty() {
            self.channels_now().entry(channel.to_owned()).or_default().extend(listeners);
        }
    }

    /// Removes the listeners of `channel`, which listen elsewhere from now on.
    pub(crate) fn take(&self, channel: &str) -> Vec<Listener> {
        self.channels_now().remove(channel).unwrap_or_default()
    }

    /// Removes a listener and returns the channels that now have none.
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

/// The channel of a message.
fn channel_of(told: &[Value]) -> Option<&str> {
    told.first().and_then(text_of)
}

fn text_of(told: &Value) -> Option<&str> {
    match told {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

#[cfg(test)]
impl Listener {
    /// A listener whose hints nobody reads.
    pub(crate) fn unread(number: u64) -> Self {
        let key = Key::new("unread").unwrap();
        Self { number, key, hinter: Hinter::new(|| ()).0 }
    }
}
