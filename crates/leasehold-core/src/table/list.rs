use super::Table;
use crate::{Cursor, ListReply, ListRequest, Now, Record, Result};

impl Table {
    /// Returns one page of records, in the order of their keys and ids.
    ///
    /// # Errors
    /// `InvalidInput` for a cursor of another store.
    pub fn list(&self, request: &ListRequest, now: Now) -> Result<ListReply> {
        let after = request.cursor().map(Cursor::position).transpose()?;
        let mut records = Vec::new();
        for (key, entry) in &self.keys {
            if after.as_ref().is_some_and(|(last, _)| key < last) {
                continue;
            }
            let mut of_key: Vec<Record> =
                entry.holders.iter().filter_map(|holder| holder.record(key, now)).collect();
            of_key.sort_by_cached_key(Cursor::after);
            of_key.retain(|record| {
                after.as_ref().is_none_or(|last| *last < (key.clone(), id_bytes(record)))
                    && request.filter().matches(record)
            });
            for record in of_key {
                if records.len() == request.limit() {
                    let next = records.last().map(Cursor::after);
                    return Ok(ListReply::new(records, next));
                }
                records.push(record);
            }
        }
        Ok(ListReply::new(records, None))
    }
}

fn id_bytes(record: &Record) -> Vec<u8> {
    record.id.as_ref().map(|id| id.to_bytes().into_owned()).unwrap_or_default()
}
