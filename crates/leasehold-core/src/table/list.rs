use std::convert::identity;

use super::Table;
use crate::{Cursor, ListReply, ListRequest, Now, Page, Result};

impl Table {
    /// Returns one page of records, in the order of their keys and ids.
    ///
    /// # Errors
    /// `InvalidInput` for a cursor of another store.
    pub fn list(&self, request: &ListRequest, now: Now) -> Result<ListReply> {
        let after = request.cursor().map(Cursor::position).transpose()?;
        let mut page = Page::new(request, request.cursor().cloned());
        for (key, holders) in &self.keys {
            if after.as_ref().is_some_and(|(last, _)| key < last) {
                continue;
            }
            let records = holders.iter().filter_map(|holder| holder.record(key, now));
            let mut of_key: Vec<_> =
                records.map(|record| (Cursor::after(&record), record)).collect();
            of_key.sort_by(|(one, _), (other, _)| one.cmp(other));
            for (position, record) in of_key {
                if page.add(position, Some(record)).is_break() {
                    return Ok(page.followed(identity));
                }
            }
        }
        Ok(page.last())
    }
}
