use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use leasehold_core::Mode;

use super::owner::Owner;

/// Names a lock of one table. Numbers are never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockId(pub(super) NonZeroU64);

impl LockId {
    /// The number.
    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// The index of the shard that minted it, of so many: their number is a power of two.
    pub(super) fn shard(self, shards: usize) -> usize {
        usize::try_from((self.get() - 1) & 0xffff).unwrap_or(0) & (shards - 1)
    }
}

impl std::fmt::Display for LockId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// An instant of the table's clock in nanoseconds.
pub(super) type Instant = u64;

/// An instant that never comes, and a time-out that never ends.
pub(super) const NEVER: u64 = u64::MAX;

/// A time-out that never ends, of a lock whose age is to be known.
pub(super) const AGED: u64 = NEVER - 1;

/// `duration` in nanoseconds; 584 years and more count as [`NEVER`].
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}

/// When a lock goes stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Term {
    /// Never 0, so that an optional term takes no more room.
    ends: NonZeroU64,
    /// When the lock was granted; [`NEVER`] if the clock was not read for it.
    began: Instant,
}

impl Term {
    pub(super) const NEVER: Self = Self { ends: NonZeroU64::MAX, began: NEVER };

    /// A term that begins at the instant that `now` reads, which is not read without need.
    pub(super) fn start(length: u64, now: impl FnOnce() -> Instant) -> Self {
        if length == NEVER {
            return Self::NEVER;
        }
        let began = now();
        let ends = if length == AGED { NEVER } else { began.saturating_add(length) };
        Self { ends: NonZeroU64::new(ends).unwrap_or(NonZeroU64::MIN), began }
    }

    /// When it ends; [`NEVER`] if it does not.
    pub(super) fn ends(self) -> Instant {
        self.ends.get()
    }

    /// When it began, if the clock was read for it.
    pub(super) fn began(self) -> Option<Instant> {
        (self.began != NEVER).then_some(self.began)
    }

    /// How long it is, if it ends.
    pub(super) fn length(self) -> Option<Duration> {
        let ends = self.ends();
        (ends != NEVER).then(|| Duration::from_nanos(ends.saturating_sub(self.began)))
    }
}

/// One lock on one key.
///
/// Its mode is kept in parts, which leave the room for its state.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    pub(super) id: LockId,
    pub(super) term: Term,
    pub(super) owner: Option<Owner>,
    max: Option<NonZeroU32>,
    is_shared: bool,
    pub(super) state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// A waiter for several keys has this one and waits for a later one.
    Reserved,
    /// It is held.
    Held,
    /// It is held, and the table knows its keys by its id.
    Kept,
}

impl Holder {
    pub(super) fn new(
        id: LockId,
        mode: Mode,
        term: Term,
        owner: Option<Owner>,
        state: State,
    ) -> Self {
        let (is_shared, max) = match mode {
            Mode::Exclusive => (false, None),
            Mode::Shared { max } => (true, max),
        };
        Self { id, term, owner, max, is_shared, state }
    }

    pub(super) fn mode(&self) -> Mode {
        if self.is_shared { Mode::Shared { max: self.max } } else { Mode::Exclusive }
    }

    /// True if it no longer excludes others: its term or its owner has ended (C6: at exactly its term).
    pub(super) fn is_stale(&self, now: impl FnOnce() -> Instant) -> bool {
        self.state != State::Reserved
            && (self.owner.as_ref().is_some_and(|owner| !owner.is_alive())
                || (self.term.ends() != NEVER && self.term.ends() <= now()))
    }
}

/// The holders of one key, at least one. Nearly always it is one, which needs no memory of its own.
#[derive(Debug)]
pub(super) enum Holders {
    One(Holder),
    Many(Vec<Holder>),
}

impl Holders {
    pub(super) fn push(&mut self, holder: Holder) {
        let mut many = match std::mem::replace(self, Self::Many(Vec::new())) {
            Self::One(first) => vec![first],
            Self::Many(many) => many,
        };
        many.push(holder);
        *self = Self::Many(many);
    }

    pub(super) fn all(&self) -> &[Holder] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }

    pub(super) fn all_mut(&mut self) -> &mut [Holder] {
        match self {
            Self::One(one) => std::slice::from_mut(one),
            Self::Many(many) => many,
        }
    }

    /// C9: whether one more may hold the key in this mode.
    pub(super) fn admit(&self, mode: Mode) -> bool {
        let Mode::Shared { max } = mode else { return false };
        let all = self.all();
        let below = |max: NonZeroU32| usize::try_from(max.get()).is_ok_and(|max| all.len() < max);
        all.first().is_some_and(|holder| holder.is_shared) && max.is_none_or(below)
    }

    /// Keeps the holders that `keep` selects; true if none is left, and then the whole is to be dropped.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Holder) -> bool) -> bool {
        match self {
            Self::One(one) => !keep(one),
            Self::Many(many) => {
                many.retain(keep);
                many.is_empty()
            }
        }
    }

    /// When the first of them goes stale by its term.
    pub(super) fn first_end(&self) -> Instant {
        self.all().iter().map(|holder| holder.term.ends()).min().unwrap_or(NEVER)
    }
}
