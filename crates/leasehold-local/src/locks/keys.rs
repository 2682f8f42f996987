use std::borrow::Cow;
use std::hash::{BuildHasher, Hash};

use leasehold_core::Mode;

use super::error::LockError;
use super::sync::Hasher;

/// The keys of one request, each with its mode.
///
/// A key, an array, a slice or a vector of keys asks for exclusive locks, a vector of pairs for each key in its mode. A
/// key that is named twice counts once.
///
/// ```
/// use leasehold_core::Mode;
/// use leasehold_local::locks::{Keys, LocalLocks, Options};
///
/// let locks = LocalLocks::<&str>::new();
/// let both = locks.try_acquire(Keys::exclusive("a").and("b", Mode::SHARED), &Options::new())?;
/// let reader = locks.try_acquire(Keys::shared("b"), &Options::new())?;
/// let readers = locks.try_acquire(Keys::all_shared(["b", "d"]), &Options::new())?;
/// assert!(locks.try_acquire(["c", "b"], &Options::new()).is_err());
/// # Ok::<(), leasehold_local::locks::LockError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Keys<K>(Wanted<K>);

#[derive(Debug, Clone)]
enum Wanted<K> {
    One(K, Mode),
    /// Not hashed yet.
    Many(Vec<Claim<K>>),
}

impl<K> Keys<K> {
    /// One key, held alone.
    pub fn exclusive(key: K) -> Self {
        Self::one(key, Mode::Exclusive)
    }

    /// One key, held beside other shared holders.
    pub fn shared(key: K) -> Self {
        Self::one(key, Mode::SHARED)
    }

    /// One key in the given mode.
    pub fn one(key: K, mode: Mode) -> Self {
        Self(Wanted::One(key, mode))
    }

    /// Several keys, each held beside other shared holders.
    pub fn all_shared(keys: impl IntoIterator<Item = K>) -> Self {
        Self::all(keys, Mode::SHARED)
    }

    /// Several keys in one mode.
    pub fn all(keys: impl IntoIterator<Item = K>, mode: Mode) -> Self {
        Self(Wanted::Many(keys.into_iter().map(|key| unhashed(key, mode)).collect()))
    }

    /// Adds a key in the given mode.
    #[must_use]
    pub fn and(self, key: K, mode: Mode) -> Self {
        let mut many = match self.0 {
            Wanted::One(first, mode) => vec![unhashed(first, mode)],
            Wanted::Many(many) => many,
        };
        many.push(unhashed(key, mode));
        Self(Wanted::Many(many))
    }
}

impl<K> From<K> for Keys<K> {
    fn from(key: K) -> Self {
        Self::exclusive(key)
    }
}

impl<K, const N: usize> From<[K; N]> for Keys<K> {
    fn from(keys: [K; N]) -> Self {
        Self::all(keys, Mode::Exclusive)
    }
}

impl<K> From<Vec<K>> for Keys<K> {
    fn from(keys: Vec<K>) -> Self {
        Self::all(keys, Mode::Exclusive)
    }
}

impl<K: Clone> From<&[K]> for Keys<K> {
    fn from(keys: &[K]) -> Self {
        Self::all(keys.iter().cloned(), Mode::Exclusive)
    }
}

impl<K> From<Vec<(K, Mode)>> for Keys<K> {
    fn from(keys: Vec<(K, Mode)>) -> Self {
        Self(Wanted::Many(keys.into_iter().map(|(key, mode)| unhashed(key, mode)).collect()))
    }
}

impl<K> FromIterator<K> for Keys<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        Self::all(keys, Mode::Exclusive)
    }
}

/// One key of a checked request.
#[derive(Debug, Clone)]
pub(super) struct Claim<K> {
    pub(super) key: K,
    pub(super) hash: u64,
    pub(super) mode: Mode,
}

fn unhashed<K>(key: K, mode: Mode) -> Claim<K> {
    Claim { key, hash: 0, mode }
}

/// What a lock locks: keys in key order, each once, or the whole table.
#[derive(Debug, Clone)]
pub(super) enum Claims<K> {
    One([Claim<K>; 1]),
    Many(Box<[Claim<K>]>),
    Whole,
}

impl<K: Ord + Hash> Claims<K> {
    /// Sorts the keys and drops those named twice.
    #[inline]
    pub(super) fn new(keys: Keys<K>, hasher: &Hasher) -> Result<Self, LockError> {
        match keys.0 {
            Wanted::One(key, mode) => {
                Ok(Self::One([Claim { hash: hasher.hash_one(&key), key, mode }]))
            }
            Wanted::Many(many) => Self::sorted(many, hasher),
        }
    }

    fn sorted(mut many: Vec<Claim<K>>, hasher: &Hasher) -> Result<Self, LockError> {
        many.sort_unstable_by(|one, other| (&one.key, one.mode).cmp(&(&other.key, other.mode)));
        many.dedup_by(|one, other| (&one.key, one.mode) == (&other.key, other.mode));
        if let Some(pair) = many.windows(2).find(|pair| pair[0].key == pair[1].key) {
            return Err(LockError::Invalid(Cow::Owned(format!(
                "a key is named twice, as {} and as {}; name each key once",
                pair[0].mode, pair[1].mode
            ))));
        }
        if many.is_empty() {
            return Err(LockError::no_keys());
        }
        for claim in &mut many {
            claim.hash = hasher.hash_one(&claim.key);
        }
        Ok(Self::of(many))
    }
}

impl<K> Claims<K> {
    /// At least one claim, sorted, each key once.
    pub(super) fn of(claims: Vec<Claim<K>>) -> Self {
        match <[_; 1]>::try_from(claims) {
            Ok(one) => Self::One(one),
            Err(many) => Self::Many(many.into()),
        }
    }

    /// The keys; none for the whole table.
    pub(super) fn keyed(&self) -> &[Claim<K>] {
        match self {
            Self::One(one) => one,
            Self::Many(many) => many,
            Self::Whole => &[],
        }
    }
}
