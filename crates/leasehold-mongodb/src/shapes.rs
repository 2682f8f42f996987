//! What was last seen of the documents of keys, so that a batch sends the shortest update that is likely to fit them. It may be out of date,
//! and decides no outcome.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::Key;
use leasehold_core::table::State;

use crate::document::Stored;
use crate::record::no_token;

/// The most keys that are remembered: 32 KiB.
const PLACES: usize = 4_096;

/// What a key's document is like, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// It has nothing but one exclusive lease of ours, or not even that.
    Simple,
    Other,
}

/// One place for many keys, each of which has the hash of the last one; its lowest bit tells the shape.
pub(crate) struct Shapes {
    hasher: RandomState,
    places: Box<[AtomicU64]>,
}

impl Shapes {
    pub(crate) fn new() -> Self {
        let places = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { hasher: RandomState::new(), places }
    }

    /// The shape of a key's document; `None` if none was seen lately.
    pub(crate) fn of(&self, key: &Key) -> Option<Shape> {
        let (place, hash) = self.place(key);
        let seen = place.load(Ordering::Relaxed);
        let shape = if seen & 1 == 1 { Shape::Simple } else { Shape::Other };
        (seen & !1 == hash).then_some(shape)
    }

    pub(crate) fn note(&self, key: &Key, stored: &Stored) {
        let (place, hash) = self.place(key);
        let is_simple = stored.entry.holders.iter().all(|holder| {
            holder.state == State::Held && !holder.mode.is_shared() && holder.token != no_token()
        });
        place.store(hash | u64::from(is_simple), Ordering::Relaxed);
    }

    /// The place of a key, and its hash there. An empty place has no key's hash.
    fn place(&self, key: &Key) -> (&AtomicU64, u64) {
        let hash = self.hasher.hash_one(key) | 2;
        let place = usize::try_from(hash >> 32).unwrap_or_default() % PLACES;
        (&self.places[place], hash & !1)
    }
}
