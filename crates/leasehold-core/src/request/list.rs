use std::fmt;

use super::admission::{Request, Sealed, check_limit};
use crate::{Capabilities, Error, Filter, Key, LeaseId, Record, Result};

/// A request for one page of records. There is no order and no snapshot: a record that is present throughout comes at
/// least once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRequest {
    filter: Filter,
    cursor: Option<Cursor>,
    limit: usize,
}

/// The position of the next page; opaque, and of use only to the store that returned it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor(Vec<u8>);

impl Cursor {
    /// Wraps a store's own bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The position after `record`, for stores that list in the order of key and lease id.
    pub fn after(record: &Record) -> Self {
        Self::after_lease(&record.key, record.id.as_ref())
    }

    /// As [`Cursor::after`], for the record of a lease on a key.
    pub fn after_lease(key: &Key, id: Option<&LeaseId>) -> Self {
        let mut bytes = key.as_str().as_bytes().to_vec();
        bytes.push(0);
        bytes.extend_from_slice(id.map(LeaseId::to_bytes).as_deref().unwrap_or(&[]));
        Self(bytes)
    }

    /// The key and the bytes of the lease id that [`Cursor::after`] wrote.
    ///
    /// # Errors
    /// `InvalidInput` if another store wrote it.
    pub fn position(&self) -> Result<(Key, Vec<u8>)> {
        let mut parts = self.0.splitn(2, |byte| *byte == 0);
        let key = parts.next().and_then(|key| Key::try_from(key).ok());
        match (key, parts.next()) {
            (Some(key), Some(id)) => Ok((key, id.to_vec())),
            _ => Err(Error::invalid_input("the cursor does not come from this store")),
        }
    }

    /// The store's own bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cursor")
    }
}

impl ListRequest {
    /// Requests the first 100 records that match.
    pub fn new(filter: Filter) -> Self {
        Self { filter, cursor: None, limit: 100 }
    }

    /// Sets the position to continue from.
    #[must_use]
    pub fn with_cursor(mut self, cursor: Cursor) -> Self {
        self.cursor = Some(cursor);
        self
    }

    /// Sets the largest page, 1 to 1,000 records.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Which records match.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The position to continue from.
    pub fn cursor(&self) -> Option<&Cursor> {
        self.cursor.as_ref()
    }

    /// The largest page.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

impl Sealed for ListRequest {}

impl Request for ListRequest {
    fn check(&self, can: &Capabilities) -> Result<()> {
        check_limit(self.limit)?;
        match self.filter.keys() {
            Some(keys) => can.check_key_bytes(keys.iter()),
            None => Ok(()),
        }
    }
}
