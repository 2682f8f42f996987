//! The names of keys in Redis.

use crc::{CRC_16_XMODEM, Crc};
use leasehold_core::{Error, Key, Result};

/// The start of the names of metadata keys; no key may begin with it.
const OURS: &str = "lh:";
/// The start of the name of a metadata key.
const METADATA: &str = "lh:lock:";
/// The start of the name of a channel.
const CHANNEL: &str = "lh:wake:";

/// The prefix of every key of a store.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    prefix: String,
    /// Keys are spread over slots, and a metadata key must share its key's slot.
    in_slots: bool,
}

/// The names of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    metadata: String,
    /// Where in the metadata key's name the plain key begins, which ends it.
    plain: usize,
}

impl Names {
    pub(crate) fn new(prefix: &str, in_slots: bool) -> Self {
        Self { prefix: prefix.to_owned(), in_slots }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The names of `key`.
    ///
    /// # Errors
    /// `InvalidInput` if it begins like a metadata key, or if in a cluster no metadata key could share its slot.
    pub(crate) fn of(&self, key: &Key) -> Result<Name> {
        let prefixed;
        let plain = if self.prefix.is_empty() {
            key.as_str()
        } else {
            prefixed = [self.prefix.as_str(), key.as_str()].concat();
            &prefixed
        };
        if plain.starts_with(OURS) {
            return Err(Error::invalid_input(format!(
                "the key {plain:?} begins with {OURS:?}, like Leasehold's own keys; use another name, or give the \
                 store a prefix"
            )));
        }
        if self.in_slots && plain.contains('}') && hash_tag(plain).is_none() {
            return Err(Error::invalid_input(format!(
                "the key {plain:?} has a }} but no hash tag, so in a Redis Cluster its metadata key cannot be in its \
                 slot; leave the }} out, or put a tag before it, as in {{tag}}:name"
            )));
        }
        let metadata = tagged(METADATA, plain);
        Ok(Name { plain: metadata.len() - plain.len(), metadata })
    }

    /// The key with this plain name; its text where it is none, and `None` if it is of another prefix.
    pub(crate) fn key(&self, plain: &[u8]) -> Option<Result<Key, String>> {
        let text = String::from_utf8_lossy(plain.strip_prefix(self.prefix.as_bytes())?);
        Some(match std::str::from_utf8(plain).map(|_| Key::new(&text)) {
            Ok(Ok(key)) => Ok(key),
            _ => Err(text.into_owned()),
        })
    }

    /// A SCAN pattern that matches every metadata key with this prefix, and more.
    pub(crate) fn pattern(&self, prefix: &str) -> String {
        let mut pattern = format!("{METADATA}{{*}}:");
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
    /// The plain key.
    pub(crate) fn plain(&self) -> &str {
        &self.metadata[self.plain..]
    }

    /// The name of its metadata key.
    pub(crate) fn metadata(&self) -> &str {
        &self.metadata
    }

    /// The length of both names in bytes.
    pub(crate) fn len(&self) -> usize {
        self.plain().len() + self.metadata.len()
    }

    /// Its slot in a cluster.
    pub(crate) fn slot(&self) -> u16 {
        slot(self.plain())
    }

    /// The channel of hints that the key may be free.
    pub(crate) fn channel(&self) -> String {
        tagged(CHANNEL, self.plain())
    }
}

/// The plain key after `ours` and a hash tag that puts it into the same slot.
fn tagged(ours: &str, plain: &str) -> String {
    let tag = match hash_tag(plain) {
        Some(tag) => tag,
        // No tag gives the same slot then, and a cluster does not accept the key.
        None if plain.contains('}') => "",
        None => plain,
    };
    [ours, "{", tag, "}:", plain].concat()
}

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a name in a cluster.
pub(crate) fn slot(name: &str) -> u16 {
    const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
    CRC.checksum(hash_tag(name).unwrap_or(name).as_bytes()) % SLOTS
}

/// The part of a key that decides its slot: between the first `{` and the next `}`, unless it is empty.
fn hash_tag(plain: &str) -> Option<&str> {
    let (_, after) = plain.split_once('{')?;
    let (tag, _) = after.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(key: &str) -> Name {
        Names::new("", false).of(&Key::new(key).unwrap()).unwrap()
    }

    #[test]
    fn metadata_keys_share_their_keys_slot() {
        for (key, metadata) in [
            ("job", "lh:lock:{job}:job"),
            ("a{b}c", "lh:lock:{b}:a{b}c"),
            ("{}x", "lh:lock:{}:{}x"),
            ("a}b", "lh:lock:{}:a}b"),
            ("a{b", "lh:lock:{a{b}:a{b"),
            ("{b}{c}", "lh:lock:{b}:{b}{c}"),
        ] {
            assert_eq!(name(key).metadata(), metadata);
        }
        assert_eq!(name("a{b}c").channel(), "lh:wake:{b}:a{b}c");
    }

    #[test]
    fn slots_are_those_of_the_servers() {
        // As CLUSTER KEYSLOT answers.
        for (name, expected) in [("job", 2_906), ("a{b}c", 3_300), ("b", 3_300), ("", 0)] {
            assert_eq!(slot(name), expected, "{name}");
        }
        let name = name("a{b}c");
        assert_eq!((slot(name.metadata()), slot(&name.channel())), (3300, 3_300));
        let names = Names::new("", true);
        let error = names.of(&Key::new("a}b").unwrap()).unwrap_err();
        assert!(error.to_string().contains("no hash tag"), "{error}");
        names.of(&Key::new("{a}b}").unwrap()).unwrap();
        Names::new("{t}", true).of(&Key::new("a}b").unwrap()).unwrap();
    }

    #[test]
    fn no_key_can_be_a_metadata_key() {
        let error = Names::new("", false).of(&Key::new("lh:lock:{a}:a").unwrap()).unwrap_err();
        assert!(error.to_string().contains("begins with \"lh:\""), "{error}");
        assert!(Names::new("l", false).of(&Key::new("h:x").unwrap()).is_err());
        let name = Names::new("app:", false).of(&Key::new("lh:x").unwrap()).unwrap();
        assert_eq!(name.plain(), "app:lh:x");
    }

    #[test]
    fn names_convert_back_to_keys() {
        let names = Names::new("app:", false);
        let key = Key::new("a{b}c").unwrap();
        assert_eq!(names.key(names.of(&key).unwrap().plain().as_bytes()), Some(Ok(key)));
        assert_eq!(names.key(b"other:x"), None);
        assert_eq!(names.key(b"app:\xff"), Some(Err("\u{fffd}".to_owned())));
        assert_eq!(names.key(b"app:a\n"), Some(Err("a\n".to_owned())));
        assert_eq!(names.pattern("a*"), "lh:lock:{*}:app:a\\**");
    }
}
