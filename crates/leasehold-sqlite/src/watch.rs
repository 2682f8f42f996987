//! The waiters of each key, and the thread that notices what other connections commit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use leasehold_core::{Key, Wakeups};
use leasehold_driver::Hinter;
use tokio::sync::oneshot;

use crate::changes::{Changes, Waker};
use crate::view::{Holders, View};

/// A commit becomes visible some time after its write to the log, and without an event: the looks after a write are so
/// many milliseconds apart.
const LOOKS: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// The waiters for keys of a file. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch(Arc<Mutex<Watched>>);

#[derive(Debug, Default)]
struct Watched {
    keys: HashMap<Key, Vec<Waiter>>,
    last: u64,
    /// That of the thread, while one runs.
    waker: Option<Waker>,
    /// Ends when the last thread has closed its view.
    closed: Option<oneshot::Receiver<()>>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    hinter: Hinter,
}

impl Watch {
    /// Hints for these keys from now on. `None` unless a thread looks, or can be started with this view.
    pub(crate) fn listen(&self, keys: &[Key], view: Option<View>) -> Option<Wakeups> {
        let mut watched = self.watched();
        if watched.waker.is_none() {
            let view = view?;
            let changes = Changes::of(view.log())?;
            let (watch, waker) = (self.clone(), changes.waker());
            let (closing, closed) = oneshot::channel();
            let run = move || {
                watch.run(&view, changes);
                drop(view);
                drop(closing);
            };
            thread::Builder::new().name("leasehold-watch".to_owned()).spawn(run).ok()?;
            (watched.waker, watched.closed) = (Some(waker), Some(closed));
        }
        watched.last += 1;
        let (number, left, left_keys) = (watched.last, self.clone(), keys.to_vec());
        let (hinter, wakeups) = Hinter::new(move || left.leave(number, &left_keys));
        for key in keys {
            let waiter = Waiter { number, hinter: hinter.clone() };
            watched.keys.entry(key.clone()).or_default().push(waiter);
        }
        Some(wakeups)
    }

    /// Waits until the thread has closed its view of the file, unless somebody still waits for a key.
    pub(crate) async fn closed(&self) {
        let closed = {
            let mut watched = self.watched();
            if watched.keys.is_empty() { watched.closed.take() } else { None }
        };
        if let Some(closed) = closed {
            // It never sends: it drops its end.
            drop(closed.await);
        }
    }

    fn leave(&self, number: u64, keys: &[Key]) {
        let mut watched = self.watched();
        for key in keys {
            if let Some(waiters) = watched.keys.get_mut(key) {
                waiters.retain(|waiter| waiter.number != number);
                if waiters.is_empty() {
                    watched.keys.remove(key);
                }
            }
        }
        if let (true, Some(waker)) = (watched.keys.is_empty(), &watched.waker) {
            waker.wake();
        }
    }

    /// Looks whenever something may have been committed, as long as anybody waits.
    fn run(&self, view: &View, mut changes: Changes) {
        let mut known = Known::default();
        let mut looks = LOOKS[..0].iter();
        loop {
            // Before the look: what is written from now on ends the wait.
            changes.watch();
            let mut watched = self.watched();
            if watched.keys.is_empty() {
                watched.waker = None;
                return;
            }
            let keys: Vec<Key> = watched.keys.keys().cloned().collect();
            drop(watched);
            for key in known.look(view, &keys) {
                self.hint(&key);
            }
            match looks.next() {
                Some(pause) => changes.pause(Duration::from_millis(*pause)),
                None if changes.wait() => looks = LOOKS.iter(),
                None => {}
            }
        }
    }

    fn hint(&self, key: &Key) {
        for waiter in self.watched().keys.get(key).into_iter().flatten() {
            waiter.hinter.hint(key, Duration::ZERO);
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the last look found.
#[derive(Default)]
struct Known {
    version: Option<i64>,
    holders: HashMap<Key, Holders>,
}

impl Known {
    /// The keys that may have become free since the last look that included them. What cannot be read now is looked at
    /// again: the next try reports why.
    fn look(&mut self, view: &View, keys: &[Key]) -> Vec<Key> {
        let Ok(version) = view.version() else { return Vec::new() };
        if self.version == Some(version) && keys.iter().all(|key| self.holders.contains_key(key)) {
            return Vec::new();
        }
        let holders: HashMap<Key, Holders> =
            keys.iter().filter_map(|key| Some((key.clone(), view.holders(key).ok()?))).collect();
        let has_changed = |key: &Key, now: &Holders| self.holders.get(key) != Some(now);
        let freed = holders
            .iter()
            .filter(|(key, now)| now.may_admit() && has_changed(key, now))
            .map(|(key, _)| key.clone())
            .collect();
        (self.version, self.holders) = (Some(version), holders);
        freed
    }
}
