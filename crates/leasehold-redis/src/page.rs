//! Where a listing goes on.

use leasehold_core::{Cursor, Error, Result};

/// A step of a scan, and the last record of it that was shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Position {
    /// The server's own cursor.
    pub(crate) scan: u64,
    /// As of [`Cursor::after`]; what comes after it is still to be shown.
    pub(crate) shown: Option<Vec<u8>>,
}

impl Position {
    pub(crate) fn cursor(&self) -> Cursor {
        let mut bytes = self.scan.to_string().into_bytes();
        if let Some(shown) = &self.shown {
            bytes.push(b' ');
            bytes.extend_from_slice(shown);
        }
        Cursor::new(bytes)
    }

    /// # Errors
    /// `InvalidInput` for a cursor of another store.
    pub(crate) fn of(cursor: &Cursor) -> Result<Self> {
        let mut parts = cursor.as_bytes().splitn(2, |byte| *byte == b' ');
        let scan = parts.next().and_then(|scan| std::str::from_utf8(scan).ok());
        let scan = scan.and_then(|scan| scan.parse().ok()).ok_or_else(|| {
            Error::invalid_input("the cursor is not one that this store gave; begin without one")
        })?;
        Ok(Self { scan, shown: parts.next().map(<[u8]>::to_vec) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_as_they_were_written() {
        for position in [
            Position { scan: 0, shown: None },
            Position { scan: u64::MAX, shown: None },
            Position { scan: 17, shown: Some(b"a key\0id".to_vec()) },
        ] {
            assert_eq!(Position::of(&position.cursor()).unwrap(), position);
        }
        for odd in [&b""[..], b"x", b"k\0id", b"-1"] {
            assert!(Position::of(&Cursor::new(odd.to_vec())).is_err());
        }
    }
}
