//! The cursor of a listing.

use leasehold_core::{Cursor, Error, Result};

/// A step of a scan, and the last record of it that was returned.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Position {
    /// In a cluster: the nodes that were scanned to the end, and the one in progress, if any.
    pub(crate) done: Vec<String>,
    pub(crate) node: String,
    /// The server's own cursor.
    pub(crate) scan: u64,
    /// As of [`Cursor::after`]; the records after it are still to come.
    pub(crate) shown: Option<Vec<u8>>,
}

impl Position {
    pub(crate) fn cursor(&self) -> Cursor {
        let done = self.done.join(",");
        let mut bytes = format!("{done};{};{}", self.node, self.scan).into_bytes();
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
        let step = parts.next().and_then(|step| std::str::from_utf8(step).ok());
        let read = |step: &str| {
            let mut parts = step.split(';');
            let done = parts.next()?.split(',').filter(|node| !node.is_empty());
            let done = done.map(str::to_owned).collect();
            let (node, scan) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
            parts.next().is_none().then_some((done, node, scan))
        };
        let (done, node, scan) = step.and_then(read).ok_or_else(|| {
            Error::invalid_input("the cursor does not come from this store; begin without one")
        })?;
        Ok(Self { done, node, scan, shown: parts.next().map(<[u8]>::to_vec) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_round_trip() {
        for position in [
            Position::default(),
            Position { scan: u64::MAX, ..Position::default() },
            Position { scan: 17, shown: Some(b"a key\0id".to_vec()), ..Position::default() },
            Position {
                done: vec!["h:1".to_owned(), "h:2".to_owned()],
                node: "::1:7000".to_owned(),
                scan: 3,
                shown: None,
            },
        ] {
            assert_eq!(Position::of(&position.cursor()).unwrap(), position);
        }
        for unexpected in [&b""[..], b"x", b"k\0id", b"-1", b";0", b";;-1", b";;0;"] {
            assert!(Position::of(&Cursor::new(unexpected.to_vec())).is_err());
        }
    }
}
