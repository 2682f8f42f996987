//! How keys are named in Redis.

use leasehold_core::{Error, Key, Result};

/// What the names of companions begin with; no key may.
const OURS: &str = "lh:";
/// What the name of a book begins with.
const BOOK: &str = "lh:lock:";
/// What the name of a channel begins with.
const CHANNEL: &str = "lh:wake:";

/// What stands before every key of a store.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    prefix: String,
}

/// The names of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    /// The plain key.
    pub(crate) plain: String,
    /// Its companion.
    pub(crate) book: String,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The names of `key`.
    ///
    /// # Errors
    /// `InvalidInput` if it begins as only companions do.
    pub(crate) fn of(&self, key: &Key) -> Result<Name> {
        let plain = format!("{}{key}", self.prefix);
        if plain.starts_with(OURS) {
            return Err(Error::invalid_input(format!(
                "the key {plain:?} begins with {OURS:?}, as what Leasehold keeps beside its keys does; give it another \
                 name, or the store a prefix"
            )));
        }
        let book = format!("{BOOK}{}", tagged(&plain));
        Ok(Name { plain, book })
    }

    /// The key that has this plain name.
    pub(crate) fn key(&self, plain: &[u8]) -> Option<Key> {
        let text = std::str::from_utf8(plain).ok()?.strip_prefix(&self.prefix)?;
        Key::new(text).ok()
    }

    /// The pattern of SCAN that all books of keys with this prefix match, and more.
    pub(crate) fn pattern(&self, prefix: &str) -> String {
        let mut pattern = format!("{BOOK}{{*}}:");
        for character in self.prefix.chars().chain(prefix.chars()) {
            if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^') {
                pattern.push('\\');
            }
            pattern.push(character);
        }
        pattern.push('*');
        pattern
    }
}

impl Name {
    /// Where it is told that the key may be free.
    pub(crate) fn channel(&self) -> String {
        format!("{CHANNEL}{}", tagged(&self.plain))
    }
}

/// The plain key behind a hash tag that puts it into the same slot.
fn tagged(plain: &str) -> String {
    let tag = match hash_tag(plain) {
        Some(tag) => tag,
        // Then no tag gives the same slot, and a cluster does not take the key.
        None if plain.contains('}') => "",
        None => plain,
    };
    format!("{{{tag}}}:{plain}")
}

/// The part of a key that decides its slot: between the first `{` and the next `}`, unless that is nothing.
fn hash_tag(plain: &str) -> Option<&str> {
    let (_, after) = plain.split_once('{')?;
    let (tag, _) = after.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(key: &str) -> Name {
        Names::new("").of(&Key::new(key).unwrap()).unwrap()
    }

    #[test]
    fn companions_share_the_slot_of_their_key() {
        for (key, book) in [
            ("job", "lh:lock:{job}:job"),
            ("a{b}c", "lh:lock:{b}:a{b}c"),
            ("{}x", "lh:lock:{}:{}x"),
            ("a}b", "lh:lock:{}:a}b"),
            ("a{b", "lh:lock:{a{b}:a{b"),
            ("{b}{c}", "lh:lock:{b}:{b}{c}"),
        ] {
            assert_eq!(name(key).book, book);
        }
        assert_eq!(name("a{b}c").channel(), "lh:wake:{b}:a{b}c");
    }

    #[test]
    fn no_key_is_a_companion() {
        let error = Names::new("").of(&Key::new("lh:lock:{a}:a").unwrap()).unwrap_err();
        assert!(error.to_string().contains("begins with \"lh:\""), "{error}");
        assert!(Names::new("l").of(&Key::new("h:x").unwrap()).is_err());
        let name = Names::new("app:").of(&Key::new("lh:x").unwrap()).unwrap();
        assert_eq!(name.plain, "app:lh:x");
    }

    #[test]
    fn names_lead_back_to_keys() {
        let names = Names::new("app:");
        let key = Key::new("a{b}c").unwrap();
        assert_eq!(names.key(names.of(&key).unwrap().plain.as_bytes()), Some(key));
        assert_eq!(names.key(b"other:x"), None);
        assert_eq!(names.key(b"app:\xff"), None);
        assert_eq!(names.pattern("a*"), "lh:lock:{*}:app:a\\**");
    }
}
