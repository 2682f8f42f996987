use std::sync::Arc;

use crate::{InvalidValue, text};

/// Names the thing that is locked.
///
/// A key is 1 to 1,024 bytes of UTF-8 without control characters and is compared byte for byte on every
/// store: no case folding, no Unicode normalisation, no trimming. A store with a lower limit declares it in
/// [`Capabilities::max_key_bytes`](crate::Capabilities) and refuses a longer key before any I/O.
///
/// Cloning is cheap. Keys are ordered by their bytes.
///
/// ```
/// use leasehold_core::Key;
///
/// let key = Key::new("report:monthly")?;
/// assert_eq!(key.as_str(), "report:monthly");
/// assert!(Key::new("").is_err());
/// assert_ne!(Key::new("Job")?, Key::new("job")?);
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The longest key, in bytes.
    pub const MAX_BYTES: usize = 1_024;

    /// Checks `key` and takes it.
    ///
    /// # Errors
    /// Fails if it is empty, longer than [`Key::MAX_BYTES`] or has a control character.
    pub fn new(key: &str) -> Result<Self, InvalidValue> {
        text::checked("key", key, Self::MAX_BYTES).map(|key| Self(key.into()))
    }
}

text::text_type!(Key);

impl TryFrom<&[u8]> for Key {
    type Error = InvalidValue;

    fn try_from(bytes: &[u8]) -> Result<Self, InvalidValue> {
        Self::new(text::utf8("key", bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, ErrorKind};

    #[test]
    fn limits_are_exact_and_named() {
        assert!(Key::new(&"k".repeat(1_024)).is_ok());
        for (bad, fragment) in [("", "empty"), ("a\nb", "u{a} at byte 1"), ("\u{85}", "control")] {
            let error = Error::from(Key::new(bad).unwrap_err());
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(fragment), "{error}");
        }
        let long = Key::new(&"k".repeat(1_025)).unwrap_err();
        assert!(long.to_string().contains("1025 bytes; at most 1024"), "{long}");
        let bytes = Key::try_from(&b"a\xff"[..]).unwrap_err();
        assert!(bytes.to_string().contains("not UTF-8"), "{bytes}");
    }

    #[test]
    fn compared_byte_for_byte() {
        let keys: Vec<_> = ["job", "Job", "job ", "j\u{f6}b", "jo\u{308}b"]
            .iter()
            .map(|k| Key::new(k).unwrap())
            .collect();
        for (i, a) in keys.iter().enumerate() {
            for (j, b) in keys.iter().enumerate() {
                assert_eq!(a == b, i == j);
            }
        }
    }
}
