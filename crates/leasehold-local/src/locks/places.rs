use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures_util::Stream;
use leasehold_core::{AcquireReply, AcquireRequest, Claims as LeaseClaims, Key, Result};
use tokio::sync::broadcast;

use super::decide::{Acquired, Place};
use super::keys::Claims;
use super::request::News;
use super::table::Table;

/// The places of refused requests in the queues of the table.
///
/// A refused request is gone; who made it comes again with the same claims. It keeps a place if somebody listens for its
/// keys, and loses it when nobody does. Once it is its turn, its keys are reserved for it for a while, and who listens is
/// woken.
#[derive(Clone)]
pub(super) struct Places(Arc<Inner>);

struct Inner {
    table: Arc<Table<Key>>,
    freed: broadcast::Sender<Key>,
    listened: Mutex<HashMap<Box<[Key]>, Listened>>,
}

/// Keys that somebody listens for.
#[derive(Default)]
struct Listened {
    listeners: usize,
    places: Vec<(LeaseClaims, Place)>,
}

impl Places {
    pub(super) fn new(table: Arc<Table<Key>>, freed: broadcast::Sender<Key>) -> Self {
        Self(Arc::new(Inner { table, freed, listened: Mutex::default() }))
    }

    pub(super) fn acquire(
        &self,
        request: &AcquireRequest,
        claims: &Claims<Key>,
    ) -> Result<AcquireReply> {
        let (known, joins) = match self.listened().get(&*keys_of(request.claims())) {
            Some(listened) => (listened.place(request.claims()), true),
            None => (None, false),
        };
        let Acquired { reply, is_place_used, place } =
            self.0.table.acquire_lease(request, claims, known.as_ref(), joins);
        if let Some(used) = known.filter(|_| is_place_used) {
            if let Some(listened) = self.listened().get_mut(&*keys_of(request.claims())) {
                listened.places.retain(|(_, place)| !Arc::ptr_eq(place, &used));
            }
        }
        if let Some(place) = place {
            self.keep(request.claims(), place);
        }
        reply
    }

    /// Keeps a new place, unless nobody listens any more or the claims have another.
    fn keep(&self, claims: &LeaseClaims, place: Place) {
        let is_kept = match self.listened().get_mut(&*keys_of(claims)) {
            Some(listened) if listened.place(claims).is_none() => {
                listened.places.push((claims.clone(), place.clone()));
                true
            }
            _ => false,
        };
        if !is_kept {
            return self.0.table.leave(&place);
        }
        let waker = self.waker(&place);
        // It may be its turn by now.
        if matches!(place.check(&waker), News::Granted) {
            waker.wake();
        }
    }

    /// Wakes who listens for the keys of a place.
    fn waker(&self, place: &Place) -> Waker {
        let key = place.claims.keyed().first().map(|claim| claim.key.clone());
        Waker::from(Arc::new(Hint { key, freed: self.0.freed.clone() }))
    }

    fn listened(&self) -> MutexGuard<'_, HashMap<Box<[Key]>, Listened>> {
        self.0.listened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listened {
    fn place(&self, claims: &LeaseClaims) -> Option<Place> {
        let place = self.places.iter().find(|(of, _)| of == claims);
        place.map(|(_, place)| place.clone())
    }
}

fn keys_of(claims: &LeaseClaims) -> Box<[Key]> {
    claims.keys().cloned().collect()
}

/// Wakes listeners.
struct Hint {
    key: Option<Key>,
    freed: broadcast::Sender<Key>,
}

impl Wake for Hint {
    fn wake(self: Arc<Self>) {
        if let Some(key) = &self.key {
            // Having no listener is not a failure: a wake-up is a hint.
            self.freed.send(key.clone()).unwrap_or_default();
        }
    }
}

/// Hints for somebody who listens. Its drop gives the places up that nobody listens for.
pub(super) struct Listening<S> {
    hints: S,
    keys: Box<[Key]>,
    places: Places,
}

impl<S> Listening<S> {
    pub(super) fn new(hints: S, keys: &[Key], places: Places) -> Self {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();
        let keys = keys.into_boxed_slice();
        places.listened().entry(keys.clone()).or_default().listeners += 1;
        Self { hints, keys, places }
    }
}

impl<S: Stream + Unpin> Stream for Listening<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        Pin::new(&mut self.hints).poll_next(context)
    }
}

impl<S> Drop for Listening<S> {
    fn drop(&mut self) {
        let mut all = self.places.listened();
        let Some(listened) = all.get_mut(&self.keys) else { return };
        listened.listeners -= 1;
        if listened.listeners > 0 {
            return;
        }
        let given_up = all.remove(&self.keys);
        drop(all);
        for (_, place) in given_up.into_iter().flat_map(|listened| listened.places) {
            self.places.0.table.leave(&place);
        }
    }
}
