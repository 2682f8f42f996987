use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, mem};

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use leasehold_core::{BoxFuture, Claims, Key, Record, Result, Wakeups};
use tokio::sync::{Notify, Semaphore};

use crate::telemetry;

/// Queues the callers of one `Locker` with equal claims: only the first of each queue sends a request (F1).
#[derive(Default)]
pub(crate) struct Queues {
    by_key: Mutex<BTreeMap<Key, Vec<Arc<Queue>>>>,
}

struct Queue {
    claims: Claims,
    /// The number of its places; it changes only while the map is locked.
    places: AtomicUsize,
    /// For one caller only, which waits in its own way and is still woken by what this `Locker` frees.
    alone: bool,
    /// The permit of the first, who takes it along into the queue that it opens. Fair: in the order of arrival.
    turn: Semaphore,
    /// What the last first left, until the next takes it.
    left: Mutex<QueueState>,
    /// A key of the queue may be free, as this `Locker` knows.
    freed: Notify,
    /// The lease that last refused the first of the queue.
    holder: Mutex<Option<Box<Record>>>,
}

/// What the first of a queue knows, and leaves to the next.
#[derive(Default)]
pub(crate) struct QueueState {
    /// The store's hints for the keys of the queue.
    pub(crate) hints: Hints,
    /// Someone in the queue was granted the keys in a mode that excludes the next.
    pub(crate) taken: Option<Taken>,
}

impl Queue {
    fn left(&self) -> MutexGuard<'_, QueueState> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The store's hints, once there is a subscription.
#[derive(Default)]
pub(crate) enum Hints {
    #[default]
    None,
    Subscribing(BoxFuture<'static, Result<Wakeups>>),
    Subscribed(Wakeups),
}

impl Hints {
    /// Ends when the store hints that a key may be free, or the subscription has begun or failed; never, if there is
    /// none.
    ///
    /// # Cancel safety
    /// May be dropped; a subscription in progress continues at the next call.
    pub(crate) async fn next(&mut self) {
        match self {
            Self::None => std::future::pending().await,
            Self::Subscribed(wakeups) => drop(wakeups.next().await),
            Self::Subscribing(subscription) => match subscription.await {
                Ok(wakeups) => *self = Self::Subscribed(wakeups),
                Err(error) => {
                    telemetry::no_wakeups(&error);
                    *self = Self::None;
                }
            },
        }
    }
}

/// A lease that keeps the keys of a queue taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    /// Until when the store counts it, if known; `None` for ever.
    pub(crate) until: Option<Duration>,
}

/// A place in a queue; dropping it leaves the queue.
pub(crate) struct Place<'a> {
    queues: &'a Queues,
    queue: Arc<Queue>,
    /// `Some` if it is the first.
    known: Option<QueueState>,
}

impl Queues {
    /// Joins the queue for `claims` at its end, or a new one for this caller alone.
    pub(crate) fn join(&self, claims: &Claims, alone: bool) -> Place<'_> {
        let mut by_key = self.by_key();
        let is_same = |queue: &&Arc<Queue>| !alone && !queue.alone && queue.claims == *claims;
        let queues = by_key.get(&claims.first().key);
        if let Some(queue) = queues.and_then(|queues| queues.iter().find(is_same)) {
            queue.places.fetch_add(1, Ordering::Relaxed);
            return Place { queues: self, queue: Arc::clone(queue), known: None };
        }
        let queue = Arc::new(Queue {
            claims: claims.clone(),
            places: AtomicUsize::new(1),
            alone,
            turn: Semaphore::new(0),
            left: Mutex::default(),
            freed: Notify::new(),
            holder: Mutex::default(),
        });
        for key in claims.keys() {
            by_key.entry(key.clone()).or_default().push(Arc::clone(&queue));
        }
        Place { queues: self, queue, known: Some(QueueState::default()) }
    }

    /// Wakes the first of every queue that waits for one of `keys`.
    pub(crate) fn released<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) {
        let by_key = self.by_key();
        for key in keys {
            for queue in by_key.get(key).into_iter().flatten() {
                queue.freed.notify_one();
            }
        }
    }

    fn by_key(&self) -> MutexGuard<'_, BTreeMap<Key, Vec<Arc<Queue>>>> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queues")
    }
}

impl Place<'_> {
    /// Whether this place is the first, as that of a new queue is.
    pub(crate) fn is_first(&self) -> bool {
        self.known.is_some()
    }

    /// Ends when this place is the first.
    ///
    /// # Cancel safety
    /// The place is lost if the future is dropped; drop the `Place` too.
    pub(crate) async fn first(&mut self) {
        if self.known.is_none() {
            self.queue.turn.acquire().await.expect("nobody closes it").forget();
            self.known = Some(mem::take(&mut self.queue.left()));
        }
    }

    /// Ends when a key of the queue may have become free since the last call: this `Locker` freed it, or, for the
    /// first in the queue if it `listens`, the store hints so.
    pub(crate) async fn woken(&mut self, listens: bool) {
        let queue = Arc::clone(&self.queue);
        let known = self.known().filter(|_| listens);
        let hint = OptionFuture::from(known.map(|known| known.hints.next()));
        tokio::select! {
            biased;
            () = queue.freed.notified() => {}
            Some(()) = hint => {}
        }
    }

    /// The lease that last refused the first of the queue, for those behind it.
    pub(crate) fn holder(&self) -> Option<Box<Record>> {
        self.queue.holder.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Passes on to those behind it which lease refused it.
    pub(crate) fn refused_by(&self, holder: Option<&Record>) {
        let mut known = self.queue.holder.lock().unwrap_or_else(PoisonError::into_inner);
        *known = holder.cloned().map(Box::new);
    }

    /// What the first knows; `None` for the others.
    pub(crate) fn known(&mut self) -> Option<&mut QueueState> {
        self.known.as_mut()
    }

    /// Reports to the next in the queue, if there is one, that the keys are taken. Hints that came before are out of
    /// date.
    pub(crate) fn leave_taken(&mut self, taken: Taken) {
        if self.queue.places.load(Ordering::Relaxed) == 1 {
            return;
        }
        while self.woken(true).now_or_never().is_some() {}
        if let Some(known) = self.known() {
            known.taken = Some(taken);
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut by_key = self.queues.by_key();
        if self.queue.places.fetch_sub(1, Ordering::Relaxed) == 1 {
            for key in self.queue.claims.keys() {
                if let Some(queues) = by_key.get_mut(key) {
                    queues.retain(|other| !Arc::ptr_eq(other, &self.queue));
                    if queues.is_empty() {
                        by_key.remove(key);
                    }
                }
            }
            return;
        }
        drop(by_key);
        if let Some(mut known) = self.known.take() {
            // A subscription in progress belongs to the runtime of the caller who began it.
            if matches!(known.hints, Hints::Subscribing(_)) {
                known.hints = Hints::None;
            }
            *self.queue.left() = known;
            self.queue.turn.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Mode;

    use super::*;

    #[test]
    fn a_queue_that_all_leave_at_once_is_removed() {
        let claims = Claims::one(Key::new("k").unwrap(), Mode::Exclusive);
        for _ in 0..5_000 {
            let queues = Arc::new(Queues::default());
            let places = [queues.join(&claims, false), queues.join(&claims, false)];
            std::thread::scope(|scope| {
                for place in places {
                    scope.spawn(move || drop(place));
                }
            });
            assert!(queues.by_key().is_empty());
        }
    }
}
