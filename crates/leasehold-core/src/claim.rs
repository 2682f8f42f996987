use std::sync::Arc;

use crate::{Error, InvalidValue, Key, LeaseId, Mode};

/// One key and the mode in which a lease holds or requests it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(clippy::exhaustive_structs, reason = "a pair")]
pub struct Claim {
    /// The key.
    pub key: Key,
    /// The mode.
    pub mode: Mode,
}

impl Claim {
    /// The error of a request for this claim by a lease that holds its key in the other mode, `held` (C3).
    pub fn conflict(&self, id: &LeaseId, held: Mode) -> Error {
        Error::invalid_input(format!(
            "the lease {id} holds {:?} as {held}, but is requested as {}; release it first",
            self.key, self.mode
        ))
    }
}

/// The keys of one lease with their modes: at least one key, each key once, in key order.
///
/// Every store locks in this order, so two callers never wait for each other in a circle. Cheap to clone.
///
/// ```
/// use leasehold_core::{Claims, Key, Mode};
///
/// let claims = Claims::all([Key::new("b")?, Key::new("a")?], Mode::Exclusive)?;
/// assert_eq!(claims.first().key.as_str(), "a");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claims(Arc<[Claim]>);

impl Claims {
    /// Sorts the claims by key and merges equal ones.
    ///
    /// # Errors
    /// Fails if there are no claims, or if one key is named in two modes.
    pub fn new(claims: impl IntoIterator<Item = Claim>) -> Result<Self, InvalidValue> {
        let mut claims: Vec<_> = claims.into_iter().collect();
        claims.sort_unstable();
        claims.dedup();
        if claims.is_empty() {
            return Err(InvalidValue::new("no key was given; a lock needs at least one key"));
        }
        if let Some(pair) = claims.windows(2).find(|pair| pair[0].key == pair[1].key) {
            return Err(InvalidValue::new(format!(
                "the key {:?} is named twice, as {} and as {}; name each key once",
                pair[0].key, pair[0].mode, pair[1].mode
            )));
        }
        Ok(Self(claims.into()))
    }

    /// One key.
    pub fn one(key: Key, mode: Mode) -> Self {
        Self(Arc::new([Claim { key, mode }]))
    }

    /// Several keys in one mode; a key named twice counts once.
    ///
    /// # Errors
    /// Fails if there are no keys.
    pub fn all(keys: impl IntoIterator<Item = Key>, mode: Mode) -> Result<Self, InvalidValue> {
        Self::new(keys.into_iter().map(|key| Claim { key, mode }))
    }

    /// The claim whose key is first in key order.
    pub fn first(&self) -> &Claim {
        &self.0[0]
    }

    /// The claims in key order.
    pub fn iter(&self) -> std::slice::Iter<'_, Claim> {
        self.0.iter()
    }

    /// The keys in key order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Key> {
        self.0.iter().map(|claim| &claim.key)
    }

    /// How many keys there are, at least one.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

impl<'a> IntoIterator for &'a Claims {
    type Item = &'a Claim;
    type IntoIter = std::slice::Iter<'a, Claim>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(key: &str, mode: Mode) -> Claim {
        Claim { key: Key::new(key).unwrap(), mode }
    }

    #[test]
    fn sorted_and_merged() {
        let x = Mode::Exclusive;
        let claims = Claims::new([claim("b", x), claim("a", x), claim("b", x)]).unwrap();
        assert_eq!(claims.keys().map(Key::as_str).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn empty_or_contradictory_is_refused() {
        assert!(Claims::new([]).unwrap_err().to_string().contains("at least one key"));
        let error =
            Claims::new([claim("a", Mode::Exclusive), claim("a", Mode::SHARED)]).unwrap_err();
        assert!(error.to_string().contains("as exclusive and as shared"), "{error}");
    }

    #[test]
    fn a_lease_has_each_key_once_in_key_order() {
        let keys = || ["c", "a", "b", "a"].map(|key| Key::new(key).unwrap());
        let claims = Claims::all(keys(), Mode::SHARED).unwrap();
        assert_eq!((claims.len(), claims.first()), (3, &claim("a", Mode::SHARED)));
        let expected = ["a", "b", "c"].map(|key| claim(key, Mode::SHARED));
        assert!(claims.into_iter().eq(&expected));
        let one = Claims::one(Key::new("a").unwrap(), Mode::SHARED);
        assert_eq!((one.len(), one.first()), (1, &expected[0]));
    }
}
