//! The one check behind every short text of the vocabulary.

use crate::InvalidValue;

/// Accepts `text` if it is `1..=max` bytes without control characters; `what` names it in the error.
pub(crate) fn checked<'a>(what: &str, text: &'a str, max: usize) -> Result<&'a str, InvalidValue> {
    if text.is_empty() {
        return Err(InvalidValue::new(format!(
            "the {what} is empty; give 1 to {max} bytes of UTF-8 without control characters"
        )));
    }
    if text.len() > max {
        return Err(InvalidValue::new(format!(
            "the {what} has {} bytes; at most {max} are allowed",
            text.len()
        )));
    }
    if let Some((at, bad)) = text.char_indices().find(|(_, c)| c.is_control()) {
        return Err(InvalidValue::new(format!(
            "the {what} has the control character {} at byte {at}; control characters are not allowed",
            bad.escape_unicode()
        )));
    }
    Ok(text)
}

/// Accepts bytes that are UTF-8.
pub(crate) fn utf8<'a>(what: &str, bytes: &'a [u8]) -> Result<&'a str, InvalidValue> {
    std::str::from_utf8(bytes).map_err(|e| {
        InvalidValue::new(format!(
            "the {what} is not UTF-8 (the byte at {} is wrong); give it as UTF-8",
            e.valid_up_to()
        ))
    })
}

/// The conversions and formatting of every validated text.
macro_rules! text_type {
    ($name:ident) => {
        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::InvalidValue;

            fn from_str(text: &str) -> Result<Self, $crate::InvalidValue> {
                Self::new(text)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = $crate::InvalidValue;

            fn try_from(text: &str) -> Result<Self, $crate::InvalidValue> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = $crate::InvalidValue;

            fn try_from(text: String) -> Result<Self, $crate::InvalidValue> {
                Self::new(&text)
            }
        }

        impl TryFrom<&String> for $name {
            type Error = $crate::InvalidValue;

            fn try_from(text: &String) -> Result<Self, $crate::InvalidValue> {
                Self::new(text)
            }
        }

        impl From<&$name> for $name {
            fn from(text: &$name) -> Self {
                text.clone()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}
pub(crate) use text_type;
