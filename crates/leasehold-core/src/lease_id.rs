mod mint;

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::InvalidValue;

/// The id of one *attempt* to acquire, and of the lease that it wins.
///
/// The client creates it before the request: 128 bits of the operating system's random generator, written as UUID
/// text. [`LeaseId::foreign`] takes the id of another client's lock, so that it can be adopted, renewed and
/// released. It is a name, not a credential: every client that can write to the store can end any lease.
///
/// [`Display`](fmt::Display) and [`FromStr`] are exact inverses. An id is shown as it is if it is UTF-8 without
/// control characters and does not begin with `hex:`; otherwise as `hex:` and its bytes in hexadecimal.
///
/// ```
/// use leasehold_core::LeaseId;
///
/// let minted = LeaseId::mint()?;
/// assert_eq!(minted.to_string().len(), 36);
/// assert_eq!(LeaseId::foreign(b"php-worker-7")?.to_string(), "php-worker-7");
/// assert_eq!(LeaseId::foreign(&[0xff, 0x00])?.to_string(), "hex:ff00");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(Repr);

/// One id has one representation, so that derived equality is equality of the bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    /// Stored as the 36 bytes of its UUID text.
    Uuid([u8; 16]),
    /// Stored verbatim; never 36 bytes of canonical UUID text.
    Foreign(Arc<[u8]>),
}

impl LeaseId {
    /// The longest foreign id, in bytes.
    pub const MAX_BYTES: usize = 255;

    pub(crate) fn of_uuid(uuid: [u8; 16]) -> Self {
        Self(Repr::Uuid(uuid))
    }

    /// Takes an id that another client or the caller chose; it is stored and compared verbatim.
    ///
    /// # Errors
    /// Fails unless it has 1 to 255 bytes.
    pub fn foreign(bytes: &[u8]) -> Result<Self, InvalidValue> {
        if bytes.is_empty() || bytes.len() > Self::MAX_BYTES {
            return Err(InvalidValue::new(format!(
                "the lease id has {} bytes; it must have 1 to {}",
                bytes.len(),
                Self::MAX_BYTES
            )));
        }
        Ok(Self(match parse_uuid(bytes) {
            Some(uuid) => Repr::Uuid(uuid),
            None => Repr::Foreign(bytes.into()),
        }))
    }

    /// The bytes a store keeps.
    pub fn to_bytes(&self) -> Cow<'_, [u8]> {
        match &self.0 {
            Repr::Uuid(uuid) => Cow::Owned(uuid_text(uuid).into()),
            Repr::Foreign(bytes) => Cow::Borrowed(bytes),
        }
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.to_bytes();
        match std::str::from_utf8(&bytes) {
            Ok(text) if !text.starts_with("hex:") && !text.chars().any(char::is_control) => {
                f.write_str(text)
            }
            _ => {
                f.write_str("hex:")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({self})")
    }
}

impl FromStr for LeaseId {
    type Err = InvalidValue;

    /// Reads what [`Display`](fmt::Display) wrote.
    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let Some(digits) = text.strip_prefix("hex:") else {
            return Self::foreign(text.as_bytes());
        };
        let bytes = parse_hex(digits.as_bytes()).ok_or_else(|| {
            InvalidValue::new(format!(
                "the lease id {text:?} begins with \"hex:\" but pairs of hexadecimal digits do not follow"
            ))
        })?;
        Self::foreign(&bytes)
    }
}

impl TryFrom<&str> for LeaseId {
    type Error = InvalidValue;

    fn try_from(text: &str) -> Result<Self, InvalidValue> {
        text.parse()
    }
}

fn uuid_text(uuid: &[u8; 16]) -> [u8; 36] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    /// The position of each byte in the text.
    const AT: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];
    let mut text = [b'-'; 36];
    for (at, byte) in AT.into_iter().zip(uuid) {
        text[at] = DIGITS[usize::from(byte >> 4)];
        text[at + 1] = DIGITS[usize::from(byte & 0xf)];
    }
    text
}

/// Reads the canonical form only (36 bytes, lower case), so that every other spelling stays verbatim.
fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    if text.len() != 36 || [8, 13, 18, 23].iter().any(|&at| text[at] != b'-') {
        return None;
    }
    let digits: Vec<u8> = text.iter().copied().filter(|&byte| byte != b'-').collect();
    if digits.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    parse_hex(&digits)?.try_into().ok()
}

fn parse_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    if digits.len() % 2 != 0 {
        return None;
    }
    digits
        .chunks_exact(2)
        .map(|pair| u8::try_from(value(pair[0])? * 16 + value(pair[1])?).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let minted = LeaseId::mint().unwrap();
        assert_eq!(minted.to_string().parse::<LeaseId>().unwrap(), minted);
        for bytes in [&b"worker"[..], b"hex:00", b"\xff\x00", b"a\nb", "\u{fc}".as_bytes()] {
            let id = LeaseId::foreign(bytes).unwrap();
            assert_eq!(id.to_string().parse::<LeaseId>().unwrap(), id, "{id}");
            assert_eq!(&*id.to_bytes(), bytes);
        }
    }

    #[test]
    fn canonical_uuid_text_is_one_id_and_other_spellings_are_not() {
        let minted = LeaseId::mint().unwrap();
        assert_eq!(LeaseId::foreign(&minted.to_bytes()).unwrap(), minted);
        let lower = LeaseId::foreign(b"0a0b0c0d-0000-0000-0000-00000000000f").unwrap();
        let upper = LeaseId::foreign(b"0A0B0C0D-0000-0000-0000-00000000000F").unwrap();
        assert_ne!(lower, upper);
        assert_eq!(upper.to_string(), "0A0B0C0D-0000-0000-0000-00000000000F");
    }

    #[test]
    fn an_id_of_the_generator_is_written_as_uuid() {
        let id = LeaseId::of_uuid(std::array::from_fn(|at| {
            u8::try_from(at).unwrap().wrapping_mul(0x1f)
        }));
        let text = "001f3e5d-7c9b-bad9-f817-36557493b2d1";
        assert_eq!((&*id.to_string(), &*id.to_bytes()), (text, text.as_bytes()));
        assert_eq!(LeaseId::try_from(text).unwrap(), id);
        assert_eq!(format!("{id:?}"), format!("LeaseId({text})"));
    }

    #[test]
    fn what_is_almost_uuid_text_stays_as_it_is() {
        let uuid = "001f3e5d-7c9b-bad9-f817-36557493b2d1";
        let moved = "001f3e5d7-c9b-bad9-f817-36557493b2d1";
        let no_hex = uuid.replace('f', "g");
        let more_dashes = uuid.replace("365574", "3-5574");
        for text in [moved, &no_hex, &more_dashes, &uuid[..35], &format!("{uuid}0")] {
            let id = LeaseId::foreign(text.as_bytes()).unwrap();
            assert!(matches!(id.0, Repr::Foreign(_)), "{text}");
            assert_eq!(id.to_string(), text);
        }
    }

    #[test]
    fn limits() {
        assert!(LeaseId::foreign(b"").is_err());
        assert!(LeaseId::foreign(&[b'x'; 255]).is_ok());
        assert!(LeaseId::foreign(&[b'x'; 256]).is_err());
        assert!("hex:0".parse::<LeaseId>().is_err());
        assert!("hex:0g".parse::<LeaseId>().is_err());
    }

    #[test]
    fn minted_ids_differ() {
        assert_ne!(LeaseId::mint().unwrap(), LeaseId::mint().unwrap());
    }
}
