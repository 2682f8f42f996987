//! The channels that a server notifies: changed one at a time, and restored after a connection was lost.

use std::iter::successors;
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold_core::Result;
use leasehold_driver::Listeners;
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;

use super::exchange::Request;
use super::open::Connected;
use super::{Connections, Inner};
use crate::{scripts, trace};

/// The limits of the first pause after which a connection on which anyone listens is tried.
const FIRST_WATCH: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(2));
/// The longest such pause: a waiter tries every 10 s anyway.
const LONGEST_WATCH: Duration = Duration::from_secs(20);
/// How far apart those who get the same message try, on average, if they are up to `FEW`; more of them wait longer in
/// proportion, for it takes longer until the last one has the next message.
const EACH: Duration = Duration::from_micros(250);
const FEW: u32 = 32;
/// Those who are hinted within this time do not try one after the other.
const AT_ONCE: Duration = Duration::from_millis(1);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Connections {
    /// Whether the last message of this channel made its listeners try one after the other.
    pub(crate) fn is_crowded(&self, channel: &str) -> bool {
        self.0.listeners.hinted_within(channel) > AT_ONCE
    }

    /// Subscribes to these channels and waits for the server's confirmation.
    pub(crate) async fn listen(&self, channels: &[String]) -> Result<()> {
        let send = move |mut connected: Connected| async move {
            let _turn = self.0.ordering.lock().await;
            let with_listener = self.0.listeners.with_listener(channels);
            // First, so that a connection that replaces this one subscribes to them too.
            self.0.subscribed().extend(with_listener.iter().cloned());
            connected.subscribe("SSUBSCRIBE", &with_listener).await
        };
        self.exchange(&Request::reads(), send).await?;
        self.watch();
        Ok(())
    }

    /// In the background, while anyone listens: notices a connection that is dead on one side, and a master that has become a
    /// replica, by which no message would arrive. A replica refuses the script.
    fn watch(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let Ok(turn) = Arc::clone(&self.0.watching).try_lock_owned() else { return };
        runtime.spawn(watch(Arc::downgrade(&self.0), self.0.options.timeout, turn));
    }

    /// Removes the listener of this number from these channels. Unsubscribes in the background from those without
    /// a listener.
    pub(crate) fn leave(&self, number: u64, channels: &[String]) {
        let left = self.0.listeners.leave(number, channels);
        if !left.is_empty() {
            self.stop_listening(left);
        }
    }

    fn stop_listening(&self, channels: Vec<String>) {
        // Without a runtime the connection has ended too.
        let Ok(runtime) = Handle::try_current() else { return };
        let this = self.clone();
        runtime.spawn(async move {
            let _turn = this.0.ordering.lock().await;
            let left = this.0.listeners.without_listener(channels);
            for channel in &left {
                this.0.subscribed().remove(channel);
            }
            let current = this.0.current();
            if let (false, Some(mut connected)) = (left.is_empty(), current) {
                // If it fails, hints arrive that nobody reads.
                let unsubscribed = connected.subscribe("SUNSUBSCRIBE", &left);
                drop(tokio::time::timeout(this.0.options.timeout, unsubscribed).await);
            }
        });
    }

    /// In the background, while anyone waits to be woken: connects and subscribes again to what was lost.
    pub(crate) fn heal(&self, lost: Vec<String>) {
        self.0.lost().extend(lost);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(heal(Arc::downgrade(&self.0)));
        }
    }
}

/// How the message begins that a key was taken; its term in milliseconds follows.
pub(crate) const TAKEN: &str = "taken ";

/// Passes on a message of the server: a channel, and how many connections get the message, or for how long the key was taken.
pub(super) fn hint(listeners: &Listeners, message: &[Value]) {
    let Some(channel) = channel_of(message) else { return };
    let text = message.get(1).and_then(text_of).unwrap_or_default();
    match text.strip_prefix(TAKEN).and_then(|term| term.parse().ok()) {
        Some(term) => listeners.taken(channel, Duration::from_millis(term)),
        None => listeners.hint(channel, within(text.parse().unwrap_or(1))),
    }
}

/// Within which time this many try one after the other.
fn within(count: u32) -> Duration {
    EACH.saturating_mul(count).saturating_mul(count.max(FEW)) / FEW
}

/// The channel of a message.
pub(super) fn channel_of(message: &[Value]) -> Option<&str> {
    message.first().and_then(text_of)
}

fn text_of(part: &Value) -> Option<&str> {
    match part {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// The pauses before a connection is tried again and again, if an exchange may take `limit`.
fn watch_pauses(limit: Duration) -> impl Iterator<Item = Duration> {
    let first = limit.clamp(FIRST_WATCH.0, FIRST_WATCH.1);
    successors(Some(first), |pause| Some((*pause * 2).min(LONGEST_WATCH)))
}

async fn watch(inner: Weak<Inner>, limit: Duration, turn: OwnedMutexGuard<()>) {
    for pause in watch_pauses(limit) {
        tokio::time::sleep(pause).await;
        let Some(this) = inner.upgrade().map(Connections) else { return };
        if this.listeners().is_empty() {
            drop(turn);
            // One who has come since then saw that the connection was watched.
            if !this.listeners().is_empty() {
                this.watch();
            }
            return;
        }
        if let Err(error) = this.run(&scripts::LIST, &[], &[], false, &Request::reads()).await {
            trace::no_wakeups(&error);
        }
    }
}

async fn heal(inner: Weak<Inner>) {
    let mut pause = FIRST_PAUSE;
    loop {
        let Some(this) = inner.upgrade().map(Connections) else { return };
        let is_well = this.0.current().is_some() && this.0.lost().is_empty();
        if is_well || this.listeners().is_empty() {
            return;
        }
        // The task that holds it looks again afterwards.
        let Ok(_turn) = Arc::clone(&this.0.healing).try_lock_owned() else { return };
        let lost: Vec<_> = this.0.lost().drain().collect();
        match this.listen(&lost).await {
            // Anything may have happened meanwhile.
            Ok(()) => this.listeners().hint_at_once(&lost),
            Err(error) => {
                trace::no_wakeups(&error);
                this.0.lost().extend(lost);
                this.0.alarm();
            }
        }
        drop(this);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_tried_less_and_less_often() {
        let seconds = |limit| -> Vec<_> {
            watch_pauses(limit).take(6).map(|pause| pause.as_secs_f64()).collect()
        };
        assert_eq!(seconds(Duration::from_millis(50)), [1.0, 2.0, 4.0, 8.0, 16.0, 20.0]);
        assert_eq!(seconds(Duration::from_secs(5)), [2.0, 4.0, 8.0, 16.0, 20.0, 20.0]);
    }

    #[test]
    fn many_waiters_try_further_apart() {
        let each = |count| within(count) / count;
        assert_eq!([1, 4, 32].map(each), [EACH; 3]);
        assert_eq!([64, 320].map(each), [2 * EACH, 10 * EACH]);
        assert!(within(u32::MAX) > Duration::from_secs(1_000));
    }
}
