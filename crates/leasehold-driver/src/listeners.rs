//! Which waiters of this process listen for which key.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold_core::{Key, Wakeups};

use crate::hints::Hinter;

/// The listeners at one server, by the name under which it notifies them: of a channel, or of a key.
#[derive(Debug, Default)]
pub struct Listeners(Mutex<ByName>);

type ByName = HashMap<String, Named>;

/// The listeners of one name.
#[derive(Debug, Default)]
struct Named {
    listeners: Vec<Listener>,
    /// Within which time they got the last hint.
    within: Duration,
}

/// A subscription that waits for hints about one of its keys.
#[derive(Debug)]
pub struct Listener {
    subscription: u64,
    key: Key,
    hinter: Hinter,
}

impl Listener {
    /// A new subscription: a listener for each key, in their order, and the hints that they get. When those are dropped,
    /// `leave` is called with the number of the subscription.
    pub fn subscribe(
        keys: &[Key],
        leave: impl FnOnce(u64) + Send + 'static,
    ) -> (Vec<Self>, Wakeups) {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let subscription = LAST.fetch_add(1, Ordering::Relaxed);
        let (hinter, wakeups) = Hinter::new(move || leave(subscription));
        let listener = |key: &Key| Self { subscription, key: key.clone(), hinter: hinter.clone() };
        (keys.iter().map(listener).collect(), wakeups)
    }

    /// The number of its subscription.
    pub fn subscription(&self) -> u64 {
        self.subscription
    }
}

impl Listeners {
    fn by_name(&self) -> MutexGuard<'_, ByName> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is no listener.
    pub fn is_empty(&self) -> bool {
        self.by_name().is_empty()
    }

    /// All names with a listener.
    pub fn names(&self) -> Vec<String> {
        self.by_name().keys().cloned().collect()
    }

    /// Whether one of these names has a listener.
    pub fn has_any<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> bool {
        let by_name = self.by_name();
        !by_name.is_empty() && names.any(|name| by_name.contains_key(name))
    }

    /// Those of the `names` that have a listener.
    pub fn with_listener(&self, names: &[String]) -> Vec<String> {
        let by_name = self.by_name();
        names.iter().filter(|name| by_name.contains_key(*name)).cloned().collect()
    }

    /// Those of the `names` that have none.
    pub fn without_listener(&self, mut names: Vec<String>) -> Vec<String> {
        let by_name = self.by_name();
        names.retain(|name| !by_name.contains_key(name));
        names
    }

    /// Hints to the listeners of `name` that their keys may be free, each at a random moment within this time.
    pub fn hint(&self, name: &str, within: Duration) {
        if let Some(named) = self.by_name().get_mut(name) {
            named.within = within;
            named.hint(within);
        }
    }

    /// Hints at once to the listeners of these names: anything may have happened.
    pub fn hint_at_once(&self, names: &[String]) {
        let by_name = self.by_name();
        names.iter().filter_map(|name| by_name.get(name)).for_each(|of| of.hint(Duration::ZERO));
    }

    /// Within which time the listeners of `name` got the last hint; zero if it has none.
    pub fn hinted_within(&self, name: &str) -> Duration {
        self.by_name().get(name).map_or(Duration::ZERO, |named| named.within)
    }

    /// Puts off what has not reached the listeners of `name` by this term, for which their keys were taken.
    pub fn taken(&self, name: &str, term: Duration) {
        for listener in self.by_name().get(name).iter().flat_map(|named| &named.listeners) {
            listener.hinter.taken(&listener.key, term);
        }
    }

    /// Adds listeners to `name`.
    pub fn add(&self, name: &str, listeners: Vec<Listener>) {
        if !listeners.is_empty() {
            self.by_name().entry(name.to_owned()).or_default().listeners.extend(listeners);
        }
    }

    /// Removes the listeners of `name`, which listen elsewhere from now on.
    pub fn take(&self, name: &str) -> Vec<Listener> {
        self.by_name().remove(name).unwrap_or_default().listeners
    }

    /// Removes the listeners of a subscription, and returns the names that have none any more.
    pub fn leave(&self, subscription: u64, names: &[String]) -> Vec<String> {
        let mut by_name = self.by_name();
        let mut left = Vec::new();
        for name in names {
            if let Some(Named { listeners, .. }) = by_name.get_mut(name) {
                listeners.retain(|listener| listener.subscription != subscription);
                if listeners.is_empty() {
                    by_name.remove(name);
                    left.push(name.clone());
                }
            }
        }
        left
    }
}

impl Named {
    fn hint(&self, within: Duration) {
        self.listeners.iter().for_each(|listener| listener.hinter.hint(&listener.key, within));
    }
}
