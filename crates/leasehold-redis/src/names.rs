//! The names of keys in Redis.

use std::borrow::Cow;
use std::sync::LazyLock;

use crc::{CRC_16_XMODEM, Crc};
use leasehold_core::{Error, Key, Result};

/// The start of the names of metadata keys; no key may begin with it.
const OURS: &str = "lh:";
/// The start of the name of a metadata key.
const METADATA: &str = "lh:lock:";
/// The name of the mark of all tokens of a server; in a cluster each slot has one, with a number behind it.
const MARK: &str = "lh:token";

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
    plain: String,
    metadata: String,
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
        let plain = [self.prefix.as_str(), key.as_str()].concat();
        // Another prefix may be the beginning of this one, or none.
        let is_metadata = plain.contains(&[METADATA, "{"].concat());
        if plain.starts_with(OURS) || key.as_str().starts_with(OURS) || is_metadata {
            return Err(Error::invalid_input(format!(
                "the key {plain:?} begins with {OURS:?} or has {METADATA:?} and a {{ in it, like Leasehold's own keys; use another name, or give the \
                 store a prefix"
            )));
        }
        if self.in_slots && plain.contains('}') && hash_tag(&plain).is_none() {
            return Err(Error::invalid_input(format!(
                "the key {plain:?} has a }} but no hash tag, so in a Redis Cluster its metadata key cannot be in its \
                 slot; leave the }} out, or put a tag before it, as in {{tag}}:name"
            )));
        }
        let metadata = tagged(&self.prefix, &plain);
        if self.in_slots && slot(&metadata) != slot(&plain) {
            return Err(Error::invalid_input(format!(
                "the prefix {:?} has a {{ without a }}, so in a Redis Cluster no metadata key can be in the slot of its \
                 key; complete the tag, or leave the {{ out",
                self.prefix
            )));
        }
        Ok(Name { plain, metadata })
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
        format!("{}{METADATA}{{*}}:{}*", literal(&self.prefix), literal(prefix))
    }
}

impl Name {
    /// The plain key.
    pub(crate) fn plain(&self) -> &str {
        &self.plain
    }

    /// The name of its metadata key, and of the channel of hints that the key may be free.
    pub(crate) fn metadata(&self) -> &str {
        &self.metadata
    }

    /// The length of both names in bytes.
    pub(crate) fn len(&self) -> usize {
        self.plain.len() + self.metadata.len()
    }

    /// Its slot in a cluster.
    pub(crate) fn slot(&self) -> u16 {
        slot(&self.plain)
    }
}

/// The name of the metadata key: under the prefix, with a hash tag that puts it into the slot of the plain key.
fn tagged(prefix: &str, plain: &str) -> String {
    let tag = match hash_tag(plain) {
        Some(tag) => tag,
        // No tag gives the same slot then, and a cluster does not accept the key.
        None if plain.contains('}') => "",
        None => plain,
    };
    [prefix, METADATA, "{", tag, "}:", &plain[prefix.len()..]].concat()
}

/// The name of the mark of all tokens: in a cluster, of those of a slot.
pub(crate) fn mark(slot: Option<u16>) -> Cow<'static, str> {
    /// Behind the mark's name, the least number that puts it into each slot.
    static NUMBERS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let mut numbers = vec![None; usize::from(SLOTS)];
        let mut missing = numbers.len();
        for number in 0.. {
            if missing == 0 {
                break;
            }
            let of_slot = &mut numbers[usize::from(slot_of_text(&number.to_string()))];
            if of_slot.is_none() {
                (*of_slot, missing) = (Some(number), missing - 1);
            }
        }
        numbers.into_iter().flatten().collect()
    });
    match slot {
        None => MARK.into(),
        Some(slot) => format!("{MARK}:{{{}}}", NUMBERS[usize::from(slot)]).into(),
    }
}

/// A text that matches itself in a SCAN pattern.
fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

/// How many slots a cluster has.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a name in a cluster.
pub(crate) fn slot(name: &str) -> u16 {
    slot_of_text(hash_tag(name).unwrap_or(name))
}

fn slot_of_text(text: &str) -> u16 {
    const CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);
    CRC.checksum(text.as_bytes()) % SLOTS
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
    }

    #[test]
    fn metadata_keys_lie_under_the_prefix() {
        for (prefix, key, metadata) in [
            ("app:", "job", "app:lh:lock:{app:job}:job"),
            ("app:", "a{b}c", "app:lh:lock:{b}:a{b}c"),
            ("{t}:", "a", "{t}:lh:lock:{t}:a"),
        ] {
            let name = Names::new(prefix, true).of(&Key::new(key).unwrap()).unwrap();
            assert_eq!(name.metadata(), metadata);
            assert_eq!(slot(metadata), name.slot());
        }
        let error = Names::new("a{b", true).of(&Key::new("c").unwrap()).unwrap_err();
        assert!(error.to_string().contains("\"a{b\""), "{error}");
        Names::new("a{b", false).of(&Key::new("c").unwrap()).unwrap();
    }

    #[test]
    fn each_slot_has_its_mark() {
        assert_eq!(mark(None), "lh:token");
        for number in [0, 2_906, 16_383] {
            assert_eq!(slot(&mark(Some(number))), number);
        }
        assert!((0..SLOTS).all(|slot| mark(Some(slot)).len() <= "lh:token:{109757}".len()));
    }

    #[test]
    fn slots_are_those_of_the_servers() {
        // As CLUSTER KEYSLOT answers.
        for (name, expected) in [("job", 2_906), ("a{b}c", 3_300), ("b", 3_300), ("", 0)] {
            assert_eq!(slot(name), expected, "{name}");
        }
        let name = name("a{b}c");
        assert_eq!(slot(name.metadata()), 3_300);
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
        let error = Names::new("app:", false).of(&Key::new("lh:x").unwrap()).unwrap_err();
        assert!(error.to_string().contains("app:lh:x"), "{error}");
    }

    #[test]
    fn names_convert_back_to_keys() {
        let names = Names::new("app:", false);
        let key = Key::new("a{b}c").unwrap();
        assert_eq!(names.key(names.of(&key).unwrap().plain().as_bytes()), Some(Ok(key)));
        assert_eq!(names.key(b"other:x"), None);
        assert_eq!(names.key(b"app:\xff"), Some(Err("\u{fffd}".to_owned())));
        assert_eq!(names.key(b"app:a\n"), Some(Err("a\n".to_owned())));
        for taken in ["lh:x", "app:lh:lock:{app:x}:x"] {
            assert!(Names::new("", false).of(&Key::new(taken).unwrap()).is_err(), "{taken}");
        }
        assert_eq!(names.pattern("a*"), "app:lh:lock:{*}:a\\**");
    }
}
